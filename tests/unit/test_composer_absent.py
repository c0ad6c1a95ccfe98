"""Composer is optional: without it its module says what to install."""

import importlib
import sys

import pytest


def test_the_composer_module_without_composer_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is a ModuleNotFoundError with the install command, not one deep inside an import."""
    monkeypatch.setitem(sys.modules, "composer", None)
    monkeypatch.delitem(sys.modules, "otel_logger.composer", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[composer\]"):
        importlib.import_module("otel_logger.composer")
