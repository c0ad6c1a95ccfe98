"""Exceptions as attributes, in OpenTelemetry's words: type, message and stack trace."""

import traceback
from collections.abc import Callable
from typing import Final

from otel_logger.conventions import EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE, EXCEPTION_TYPE
from otel_logger.values import LONGEST_TEXT, key_text, text

__all__ = ["exception_attributes", "exception_summary"]

LONGEST_STACK: Final = 2 * LONGEST_TEXT
"""Characters of a stack trace: beyond, its middle is left out, for the call that failed stands at its end."""


def exception_attributes(error: BaseException, redact: Callable[[str], str]) -> dict[str, str]:
    """Return `exception.type`, `.message` and `.stacktrace` of an exception, its texts by `redact`; never raises.

    The type is its qualified name, without `builtins`. A message is cut at 8,192 characters; of a stack trace of more
    than 16,384 the middle is left out.
    """
    return {
        EXCEPTION_TYPE: _type(error),
        EXCEPTION_MESSAGE: _message(error, redact),
        EXCEPTION_STACKTRACE: _shorten(redact(_stack(error))),
    }


def exception_summary(error: BaseException, redact: Callable[[str], str]) -> str:
    """Return an exception in one line, as the status of what failed by it: type and message; never raises."""
    return f"{_type(error)}: {_message(error, redact)}"


def _type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException, redact: Callable[[str], str]) -> str:
    message = redact(key_text(error))
    return message if len(message) <= LONGEST_TEXT else f"{message[:LONGEST_TEXT]}… ({len(message)} characters)"


def _stack(error: BaseException) -> str:
    try:
        return text("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    except Exception as fault:
        # The exception is the caller's, and so is the code of its `__str__` and `__cause__`.
        return f"<{type(fault).__name__}>"


def _shorten(stack: str) -> str:
    if len(stack) <= LONGEST_STACK:
        return stack
    head = LONGEST_STACK // 4
    left_out = len(stack) - LONGEST_STACK
    return f"{stack[:head]}\n… ({left_out} characters)\n{stack[head + left_out :]}"
