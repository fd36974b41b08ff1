"""Configuration: schema, loading, overrides. Imports no torch."""

from spade_actors.config.dump import to_toml
from spade_actors.config.errors import ConfigError
from spade_actors.config.loader import load
from spade_actors.config.schema import Config

__all__ = ["Config", "ConfigError", "load", "to_toml"]
