"""Where a configuration's files lie. Imports no torch."""

from importlib import resources
from pathlib import Path

from spade_actors.config.schema import Config


def model_folder(config: Config) -> Path:
    """The base model of a run: `run.model`, or the micro model that ships with the package."""
    if config.run.model:
        return Path(config.run.model).expanduser()
    return Path(str(resources.files("spade_actors"))) / "micro" / "assets" / "model"
