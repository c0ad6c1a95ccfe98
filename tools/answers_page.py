#!/usr/bin/env python3
"""Writes docs/answers.md from the tables of otel_logger_exporters.answers; `--print` prints it instead."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_logger_exporters.answers import GRPC_ROWS, HTTP_ROWS, LOCAL_ROWS, PHRASES, Row, Verdict
from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL, FIRST_BACKOFF, LONGEST_BACKOFF
from otel_logger_exporters.lane import LONGEST_RETRY_AFTER
from otel_logger_exporters.transports import UNREADABLE

PAGE = Path(__file__).parent.parent / "docs" / "answers.md"

CLASSES = {
    Verdict.ACCEPTED: "what was sent is delivered; what a partial success says is rejected is counted and never sent "
    "again, as OTLP demands",
    Verdict.RETRY: f"the same is sent again, for ever: after {FIRST_BACKOFF:g} s, twice that and so on to "
    f"{LONGEST_BACKOFF:g} s, up to half of it less by chance, or after what `Retry-After` or `RetryInfo` asks for, if "
    f"that is longer ({LONGEST_RETRY_AFTER:g} s at most)",
    Verdict.CONFIGURATION: f"everything is kept, an attempt is made each {CONFIGURATION_INTERVAL:g} s, and a warning "
    "says what to look at",
    Verdict.REFUSED: "what was sent is halved until what is refused stands alone; that goes to `rejected/` in the "
    "run's folder, with the reason",
}

TEXT = """\
# Answers

What an endpoint's answer, or the lack of one, means for the data. This page is made by `tools/answers_page.py` from the
tables in `otel_logger_exporters/answers.py`.

{classes}

`flush` and `close` make one attempt at once, whatever the wait. Redirects are never followed.

## HTTP

The first line that has the status counts; a status in none is of class configuration.

{http}

## gRPC

A code that is in no line is of class configuration.

{grpc}

## No answer

What we find out ourselves. When gRPC says UNAVAILABLE without more, or an HTTP server hangs up, the way there is
looked into (name, connection, proxy, TLS, protocol), and one of these says what is wrong with it.

{local}

## Words that change the class

Some answers say in words what their code does not.

{phrases}

## Compression that was not asked for

Requests are compressed by default when they leave the machine ([settings.md](settings.md)). Until the first of them is
accepted, one that is answered with {unreadable}
is sent again without compression at once; when that is accepted, all others go without.
"""


def page() -> str:
    """Return the page."""
    return TEXT.format(
        classes="\n".join(
            ("| class | what is done |", "|---|---|", *(f"| {kind.value} | {done} |" for kind, done in CLASSES.items()))
        ),
        http="\n".join(_table("status", HTTP_ROWS)),
        grpc="\n".join(_table("code", GRPC_ROWS)),
        local="\n".join(_table("code", LOCAL_ROWS)),
        phrases="\n".join(_phrases()),
        unreadable=_list(UNREADABLE),
    )


def _phrases() -> Iterator[str]:
    yield "| words | of | class | meaning | remedy |"
    yield "|---|---|---|---|---|"
    for phrase in PHRASES:
        words = ", ".join(f"“{words}”" for words in phrase.words)
        yield f"| {words} | {phrase.of} | {phrase.verdict.value} | {phrase.meaning} | {_code(phrase.remedy)} |"


def _table(what: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f"| {what} | class | meaning | remedy |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| {row.codes.replace('-', '–')} | {row.verdict.value} | {row.meaning} | {_code(row.remedy)} |"


def _code(text: str) -> str:
    """Return text with the names of variables as code."""
    return " ".join(_as_code(word) if "OTEL_" in word or "://" in word else word for word in text.split(" "))


def _as_code(word: str) -> str:
    name = word.rstrip(",:;")
    return f"`{name}`{word[len(name) :]}"


def _list(codes: Iterable[str]) -> str:
    *first, last = sorted(codes)
    return f"{', '.join(first)} or {last}"


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), "utf-8")
