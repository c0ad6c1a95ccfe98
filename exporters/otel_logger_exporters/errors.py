"""The errors of configuration, the only ones that construction raises on purpose, and how others are quoted."""

__all__ = ["ConfigurationError", "quoted"]


class ConfigurationError(ValueError):
    """A setting is wrong: the message names the variable, quotes its value and says what would be right."""


def quoted(error: BaseException) -> str:
    """Return the `repr` of an exception, or its class alone: one of the user's code may fail to tell of itself."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__
