"""The command `otel-logger doctor`: its checks as lines or as JSON."""

import textwrap
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

from otel_logger import readable
from otel_logger.doctor import examine
from otel_logger.doctor_network import Network
from otel_logger.findings import OK, PROBLEM, SKIPPED, WARNING, Finding
from otel_logger_exporters.clock import Clock

__all__ = ["folded", "run_doctor"]

_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red", SKIPPED: "dim"}
_VERDICT_WIDTH = 9
_CHECK_WIDTH = 15
_INDENT = " " * (_VERDICT_WIDTH + _CHECK_WIDTH)
_NARROWEST = 30
"""Characters of a sentence that stand in a line at least, however narrow the terminal."""


def run_doctor(environ: Mapping[str, str], *, timeout: float, clock: Clock, as_json: bool) -> bool:
    """Print what each check finds, as it finds it; return whether there is no problem."""
    findings = examine(environ, clock=clock, network=Network(timeout, clock))
    verdicts = [_print_json(finding) for finding in findings] if as_json else _print(findings)
    return PROBLEM not in verdicts


def _print_json(finding: Finding) -> str:
    print(readable.as_json(finding), flush=True)  # noqa: T201
    return finding.verdict


def _print(findings: Iterable[Finding]) -> list[str]:
    console = Console(highlight=False)
    verdicts = []
    # A server that does not answer takes a while; this is drawn on terminals alone.
    with console.status("trying ..."):
        for finding in findings:
            # The lines are broken here, not by rich: it would break paths and variables too.
            console.print(_lines(finding, console.width if console.is_terminal else None), soft_wrap=True)
            verdicts.append(finding.verdict)
    counts = {"problem": verdicts.count(PROBLEM), "warning": verdicts.count(WARNING)}
    words = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count]
    style = _STYLES[PROBLEM if PROBLEM in verdicts else WARNING if WARNING in verdicts else OK]
    console.print(Text("\n" + (", ".join(words) or "No problem found."), style=style))
    return verdicts


def _lines(finding: Finding, width: int | None) -> Text:
    """Return a finding with its remedy below; in lines of `width` at most where there is one."""
    # No markup: a server's words may hold brackets.
    lines = Text.assemble(
        (f"{finding.verdict:{_VERDICT_WIDTH}}", _STYLES[finding.verdict]), f"{finding.check:{_CHECK_WIDTH}}"
    )
    lines.append(folded(finding.found, width))
    if finding.remedy is not None:
        lines.append(f"\n{_INDENT}{folded(finding.remedy, width)}", style="cyan")
    return lines


def folded(sentence: str, width: int | None) -> str:
    """Return a sentence fit for a terminal, in lines that leave room for the columns before it."""
    text = readable.text(sentence)
    if width is None:
        return text
    parts = textwrap.wrap(text, max(_NARROWEST, width - len(_INDENT)), break_long_words=False, break_on_hyphens=False)
    return f"\n{_INDENT}".join(parts)
