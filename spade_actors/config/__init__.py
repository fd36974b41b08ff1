"""Configuration: schema, loading, overrides. Imports no torch."""
