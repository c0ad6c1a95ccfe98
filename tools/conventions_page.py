#!/usr/bin/env python3
"""Writes the tables of names into docs/conventions.md, from otel_logger/conventions.py and otel_logger/glossary.py.

    .venv/bin/python tools/conventions_page.py

The text around the tables is the page's own. A test fails while the page does not hold what this would write.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from otel_logger import conventions as names
from otel_logger.attribute_glossary import ATTRIBUTES
from otel_logger.glossary import EVENTS, EVERY_EVENT, METRICS, SPAN_EVENTS, SPANS, places

__all__ = ["main", "with_tables"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conventions.md"

BEGIN = "<!-- written by tools/conventions_page.py: {} -->"
END = "<!-- end -->"

NEAREST = "nearest of OpenTelemetry or NVIDIA"


def with_tables(page: str) -> str:
    """Return the text of a page with each table between its two marks."""
    for section, lines in SECTIONS.items():
        begin = BEGIN.format(section)
        between = re.compile(f"{re.escape(begin)}\n.*?{re.escape(END)}", re.DOTALL)
        written = "\n".join((begin, *lines(), END))
        # Doubled, as a backslash begins an escape there.
        page, count = between.subn(written.replace("\\", r"\\"), page)
        if count != 1:
            msg = f"docs/conventions.md has lost one of the lines that a table stands between: {begin} and {END}"
            raise ValueError(msg)
    return page


def scope() -> Iterator[str]:
    """Return what everything is recorded under."""
    yield (
        f"The scope of everything is `{names.SCOPE_NAME}` with the package's version and the schema URL "
        f"`{names.SCHEMA_URL}`, but for log records of the program, whose scope is their logger's name."
    )


def metrics() -> Iterator[str]:
    """Return the table of metrics."""
    yield from _head("name", "kind", "unit", "attributes", "series", "meaning", NEAREST)
    yield _row(
        "*the key*",
        "gauge",
        "none",
        f"`{names.METRIC_KEY}`",
        "1 per key",
        "a value given to `log_metrics`, at the time of the call",
        "`nv.dl.training.objective`, an event there",
    )
    for entry in METRICS:
        yield _row(
            f"`{entry.name}`",
            entry.kind.value,
            f"`{entry.unit}`" if entry.unit else "none",
            _code(entry.carries),
            entry.cardinality,
            entry.meaning,
            entry.synonym,
        )


def attributes() -> Iterator[str]:
    """Return the table of attributes."""
    yield from _head("attribute", "on", "unit", "values", "meaning", NEAREST)
    for entry in ATTRIBUTES:
        yield _row(
            f"`{entry.name}`",
            ", ".join(places(entry.name)),
            f"`{entry.unit}`" if entry.unit else "",
            _code(entry.values) or entry.cardinality,
            entry.meaning,
            entry.synonym,
        )


def events() -> Iterator[str]:
    """Return the table of log records with an event name."""
    yield f"All may have {_code(EVERY_EVENT)}, and the trace and span id of the span they happened in."
    yield ""
    yield from _head("event", "when", "body", "attributes of its own", NEAREST)
    for entry in EVENTS:
        yield _row(
            f"`{entry.name}`", entry.meaning, entry.body or "none", _code(entry.carries) or "none", entry.synonym
        )


def spans() -> Iterator[str]:
    """Return the tables of spans and of their events."""
    yield from _head("span", "what", "attributes", NEAREST)
    for entry in SPANS:
        yield _row(f"`{entry.name}`", entry.meaning, _code(entry.carries), entry.synonym)
    yield _row("*the name given*", "a block of `OTelLogger.span`", "those given", "")
    yield ""
    yield from _head("span event", "when", "attributes")
    for entry in SPAN_EVENTS:
        yield _row(f"`{entry.name}`", entry.meaning, _code(entry.carries))
    yield _row("*the key*", "an entry of `log_traces`", _code((names.TRACE_VALUE, names.STEP)))


SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "scope": scope,
    "metrics": metrics,
    "attributes": attributes,
    "events": events,
    "spans": spans,
}


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield "|" + "---|" * len(titles)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _code(listed: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in listed)


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
