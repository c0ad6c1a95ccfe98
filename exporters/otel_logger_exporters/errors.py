"""The errors of configuration, the only ones that construction raises on purpose."""

__all__ = ["ConfigurationError"]


class ConfigurationError(ValueError):
    """A setting is wrong: the message names the variable, quotes its value and says what would be right."""
