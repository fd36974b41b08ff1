"""The one error a configuration can have: a line for the user."""


class ConfigError(ValueError):
    """One line that names the key, the value, what was expected and how to mend it."""
