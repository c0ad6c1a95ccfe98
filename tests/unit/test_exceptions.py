"""Exceptions as attributes: type, message and stack, whatever the exception is, of bounded size and without secrets."""

import pytest

from otel_logger.exceptions import exception_attributes, exception_summary


def same(value: str) -> str:
    """Redacts nothing."""
    return value


class Strange(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


def raised(error: BaseException) -> BaseException:
    """Return an exception that was raised."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_builtin_exception() -> None:
    """The type has no module, the stack ends in the line that failed."""
    attributes = exception_attributes(raised(ValueError("bad")), same)
    assert ("ValueError", "bad") == (attributes["exception.type"], attributes["exception.message"])
    assert "raise error\nValueError: bad" in attributes["exception.stacktrace"]
    assert "ValueError: bad" == exception_summary(ValueError("bad"), same)


def test_an_exception_of_the_programs() -> None:
    """Another type is known by its module; an exception whose text cannot be had costs nothing else."""
    attributes = exception_attributes(raised(Strange()), same)
    assert f"{__name__}.Strange" == attributes["exception.type"]
    assert "<Strange: RuntimeError>" == attributes["exception.message"]
    assert "raise error" in attributes["exception.stacktrace"]


def test_causes_are_in_the_stack() -> None:
    """What an exception came from stands before it."""
    error = ValueError("effect")
    error.__cause__ = raised(KeyError("cause"))
    stack = exception_attributes(error, same)["exception.stacktrace"]
    assert stack.index("KeyError: 'cause'") < stack.index("ValueError: effect")


def test_sizes_are_bounded() -> None:
    """A message is cut at its end, a stack in its middle: what failed is the last line."""
    attributes = exception_attributes(raised(ValueError("x" * 100_000 + "end")), same)
    assert "x" * 8192 + "… (100003 characters)" == attributes["exception.message"]
    stack = attributes["exception.stacktrace"]
    assert ("Traceback", "xxxend\n", True) == (stack[:9], stack[-7:], len(stack) < 17_000)


def test_secrets_are_replaced() -> None:
    """Message and stack go by the redaction that is given."""
    attributes = exception_attributes(raised(ValueError("hunter2")), lambda value: value.replace("hunter2", "*"))
    assert "hunter2" not in repr(attributes)
