"""Environment variables are read as what they are meant to be, or refused with a message that says what is right."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_logger_exporters.envvars import (
    read_bool,
    read_choice,
    read_int,
    read_list,
    read_path,
    read_ratio,
    read_text,
)
from otel_logger_exporters.errors import ConfigurationError


def _refusal(read, *args, **kwargs):
    with pytest.raises(ConfigurationError) as caught:
        read(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"X": ""}, {"X": " \t"}])
def test_unset_empty_and_blank_are_the_default(environ):
    """A variable that is unset, empty or blank gives the default of every reader."""
    assert read_text(environ, "X", "d") == "d"
    assert read_int(environ, "X", 7, unit="ms") == 7
    assert read_int(environ, "X", None) is None
    assert read_bool(environ, "X", True) is True
    assert read_ratio(environ, "X", 0.5) == 0.5
    assert read_choice(environ, "X", "a", ("a", "b")) == "a"
    assert read_path(environ, "X", None) is None
    assert read_list(environ, "X", ("d",)) == ("d",)


def test_blanks_around_a_value_are_ignored():
    """A value counts without the blanks around it."""
    environ = {"X": "  v  ", "N": " 12 ", "B": " TRUE ", "C": " Call "}
    assert read_text(environ, "X", None) == "v"
    assert read_int(environ, "N", 0) == 12
    assert read_bool(environ, "B", False) is True
    assert read_choice(environ, "C", None, ("call", "interval")) == "call"


@given(st.integers(min_value=0, max_value=10**18))
def test_whole_numbers_are_read_back(number):
    """Every whole number that is not negative reads as itself."""
    assert read_int({"X": str(number)}, "X", None) == number


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("0", 0.0), ("1", 1.0), (" 0.25 ", 0.25), (".5", 0.5), ("1.", 1.0), ("1e-3", 0.001), ("1E0", 1.0)],
)
def test_ratios_are_read(text, ratio):
    """A number from 0 to 1 in any usual notation reads as itself."""
    assert read_ratio({"X": text}, "X", None) == ratio


@pytest.mark.parametrize("text", ["1.01", "-0.5", "+0.5", "1_0", "nan", "inf", "50%", "0,5", "٠", ".", "1e", "1e1"])
def test_what_is_no_ratio_is_refused(text):
    """Anything else is refused, quoted, with the remedy."""
    assert _refusal(read_ratio, {"X": text}, "X", 1.0) == f"X={text!r} is not understood: give a number from 0 to 1"


def test_negative_numbers_need_a_negative_minimum():
    """A negative number is read where the minimum allows it."""
    assert read_int({"X": "-3"}, "X", None, minimum=-5) == -3


@pytest.mark.parametrize("text", ["ten", "1.5", "1_000", "+5", "-1", "٣", "1e3", "0x10", "9" * 5000, "--1", "-"])
def test_what_is_no_whole_number_is_refused(text):
    """Anything but plain digits is refused, with the unit and the bound in the message."""
    assert _refusal(read_int, {"X": text}, "X", 1, unit="ms").endswith(
        "is not understood: give whole milliseconds, 0 or more"
    )


def test_numbers_outside_their_bounds_are_refused():
    """The message names the variable, the value, the unit and both bounds."""
    assert _refusal(read_int, {"X": "11"}, "X", 1, unit="bytes", minimum=1, maximum=10) == (
        "X='11' is not understood: give whole bytes, from 1 to 10"
    )


def test_truth_values_are_true_and_false_only():
    """Words other than true and false are refused."""
    assert read_bool({"X": "False"}, "X", None) is False
    assert _refusal(read_bool, {"X": "1"}, "X", False) == "X='1' is not understood: give true or false"


def test_choices_are_listed_in_the_refusal():
    """A word that is no choice is refused with the choices."""
    assert _refusal(read_choice, {"X": "lz4"}, "X", "none", ("none", "gzip")) == (
        "X='lz4' is not understood: give none or gzip"
    )


def test_paths_have_the_home_folder_expanded():
    """A path's `~` is expanded, an unknown user's is refused."""
    assert read_path({"X": "~/runs"}, "X", None) == Path.home() / "runs"
    assert "no such home folder" in _refusal(read_path, {"X": "~nobody-by-that-name/runs"}, "X", None)


def test_lists_lose_blanks_and_empty_items():
    """Items are trimmed, empty ones left out, order kept."""
    assert read_list({"X": " b, a,,a , "}, "X") == ("b", "a", "a")
