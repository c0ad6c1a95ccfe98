#!/usr/bin/env python3
"""Writes the table of OpenTelemetry's variables into docs/settings.md, from otel_logger_exporters/otel_variables.py.

    .venv/bin/python tools/settings_page.py

A test fails while the page does not hold what this would write.
"""

from pathlib import Path

from otel_logger_exporters.otel_variables import VARIABLES, Variable

__all__ = ["main", "with_table"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

BEGIN = "<!-- written by tools/settings_page.py: begin -->"
END = "<!-- written by tools/settings_page.py: end -->"


def with_table(page: str) -> str:
    """Return the text of a page with the table between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"docs/settings.md has lost one of the lines that the table stands between: {BEGIN} and {END}"
        raise ValueError(msg)
    rows = "\n".join(row(variable) for variable in VARIABLES)
    return f"{before}{BEGIN}\n| variable | here | how, or why not |\n|---|---|---|\n{rows}\n{END}{after}"


def row(variable: Variable) -> str:
    """Return one row of the table."""
    names = ", ".join(f"`{name}`" for name in variable.names)
    return f"| {names} | {variable.treatment.value} | {variable.words} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
