"""The same faults for otel_logger and for the stock OpenTelemetry Python SDK, side by side.

    python benchmarks/reliability.py                 all faults, in a few minutes
    python benchmarks/reliability.py --list
    python benchmarks/reliability.py sigterm fork    some, by name
    python benchmarks/reliability.py --words         also what the programs said

Each fault is played to a program per library and protocol (benchmarks/reliability_program.py), which records a metric
value, a log record and a span per step, each with a number of its own, and sends to a receiver on the loopback
interface that counts which numbers arrive in requests that it accepts. The SDK has its own defaults (batch processors,
exporters with a time-out of 10 s, shutdown at the end of the interpreter), except that it exports metrics each second.

A cell is `arrived/recorded`; `!` says that the program was not told of the loss on its standard error. `later` is what
of it came only by `otel-logger sync`.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machine import measured_on
from reliability_faults import FAULTS, Fault
from reliability_run import LIBRARIES, Result, Run

from otel_logger_exporters.signals import Signal

NAMES = {Signal.METRICS: "values", Signal.LOGS: "log records", Signal.TRACES: "spans"}
SHORT = {"http/protobuf": "HTTP", "grpc": "gRPC"}


def main() -> int:
    """Play the faults and print the table."""
    options = arguments()
    if options.list:
        for fault in FAULTS:
            print(f"{fault.name:16} {fault.title}")
        return 0
    chosen = [fault for fault in FAULTS if not options.faults or fault.name in options.faults]
    # Long ones first, so that the last to end is not one that began last.
    order = sorted(chosen, key=lambda fault: -fault.seconds)
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder, ThreadPoolExecutor(options.parallel) as pool:
        futures = {
            (fault.name, library, protocol): pool.submit(play, fault, library, protocol, Path(folder))
            for fault in order
            for library in LIBRARIES
            for protocol in fault.protocols
        }
        results = {key: future.result() for key, future in futures.items()}
    print(measured_on("opentelemetry-sdk", "opentelemetry-exporter-otlp", "grpcio"))
    print()
    print("| fault | library | values | last value | log records | spans | later | end, s | |")
    print("|" + " --- |" * 9)
    for fault in chosen:
        for library in LIBRARIES:
            of_library = [(protocol, results[fault.name, library, protocol]) for protocol in fault.protocols]
            for row in rows(fault, library, of_library):
                print("| " + " | ".join(row) + " |")
    if options.words:
        print_words(chosen, results)
    return 0


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", choices=[[], *(fault.name for fault in FAULTS)], metavar="FAULT")
    parser.add_argument("--list", action="store_true", help="list the faults and end")
    parser.add_argument("--parallel", type=int, default=8, help="programs at a time (default: 8)")
    parser.add_argument("--words", action="store_true", help="also print what the programs wrote to standard error")
    return parser.parse_args()


def play(fault: Fault, library: str, protocol: str, folder: Path) -> Result:
    """Play one fault to one program."""
    with Run(library, protocol, folder / f"{fault.name}-{library}-{SHORT[protocol]}") as run:
        fault.play(run)
        return run.finish()


def rows(fault: Fault, library: str, results: Sequence[tuple[str, Result]]) -> list[list[str]]:
    """Return the rows of a library: one, when the protocols differ in no more than their time."""
    groups: dict[tuple[str, ...], list[tuple[str, Result]]] = {}
    for protocol, result in results:
        groups.setdefault(tuple(cells(result)), []).append((protocol, result))
    found = []
    for group, members in groups.items():
        protocols = ", ".join(SHORT[protocol] for protocol, _ in members)
        seconds = sorted(result.exit_seconds or 0.0 for _, result in members)
        took = " to ".join(dict.fromkeys(f"{each:.1f}" for each in (seconds[0], seconds[-1])))
        name = {"sdk": "SDK"}.get(library, library)
        found.append([fault.title, f"{name} ({protocols})", *group[:-1], took, group[-1]])
    return found


def cells(result: Result) -> list[str]:
    """Return what of a result is shown: `arrived/recorded`, with `!` where a loss was not told."""
    counts = []
    later = []
    for signal in Signal:
        recorded, arrived = result.recorded[signal], result.in_the_end[signal]
        silent = "!" if arrived < recorded and not result.told(signal) else ""
        counts.append(f"{arrived}/{recorded}{silent}" if recorded else "")
        if late := arrived - result.at_exit.get(signal, arrived):
            later.append((late, NAMES[signal]))
    last = {None: "", True: "yes", False: "no"}[result.has_last_value]
    by_signal = dict(zip(Signal, counts, strict=True))
    return [
        by_signal[Signal.METRICS],
        last,
        by_signal[Signal.LOGS],
        by_signal[Signal.TRACES],
        _later(later),
        "; ".join(result.notes),
    ]


def _later(counts: list[tuple[int, str]]) -> str:
    if len(counts) == len(Signal) and len({count for count, _ in counts}) == 1:
        return f"{counts[0][0]} of each"
    return ", ".join(f"{count} {name}" for count, name in counts)


def print_words(chosen: Sequence[Fault], results: dict[tuple[str, str, str], Result]) -> None:
    """Print what each program wrote to standard error, once each."""
    for fault in chosen:
        for library in LIBRARIES:
            for protocol in fault.protocols:
                print(f"\n{fault.title}, {library} ({SHORT[protocol]}):")
                for line in dict.fromkeys(results[fault.name, library, protocol].said):
                    print(f"    {line[:300]}")


if __name__ == "__main__":
    sys.exit(main())
