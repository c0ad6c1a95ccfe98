"""The training loop of the soak: calls `log_metrics` at a steady rate and notes how long each call took.

With `--control` the same loop packs the same values into memory and has no logger: what it shows is the machine.

It writes into `--folder`: `latency.bin`, for each call two int64 of nanoseconds, its beginning since the first and its
duration; `waiting.bin`, for each second two int64, nanoseconds since the first call and values not yet delivered;
`result.json` at its end. It keeps no more than a second of them, so that its memory is the logger's and the
interpreter's alone.
"""

import argparse
import json
import os
import struct
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from otel_logger import OTelLogger


def main() -> None:
    """Run the loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--metrics", type=int, required=True)
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    keys = [f"soak/{number}" for number in range(options.metrics)]
    if options.control:
        packing = struct.Struct(f"<qq{len(keys)}d")
        memory = bytearray(packing.size)

        def pack(values: dict[str, float], step: int) -> None:
            packing.pack_into(memory, 0, time.time_ns(), step, *values.values())

        loop(pack, lambda: 0, keys, options)
        return
    log = OTelLogger(run_name="soak")
    loop(log.log_metrics, lambda: log.stats().waiting["metrics"], keys, options)
    started = time.perf_counter()
    log.close()
    result = {"close_seconds": time.perf_counter() - started, "stats": asdict(log.stats())}
    (options.folder / "result.json").write_text(json.dumps(result), "utf-8")


def loop(
    call: Callable[[dict[str, float], int], object],
    waiting: Callable[[], int],
    keys: list[str],
    options: argparse.Namespace,
) -> None:
    """Make the calls, each at its time or, when it is late, at once."""
    latencies = os.open(options.folder / "latency.bin", os.O_WRONLY | os.O_CREAT)
    backlog = os.open(options.folder / "waiting.bin", os.O_WRONLY | os.O_CREAT)
    period = 1_000_000_000 // options.rate
    clock = time.perf_counter_ns
    second = array("q", bytes(16 * options.rate))
    begin = clock()
    for number in range(options.calls):
        place = number % options.rate
        if place == 0 and number:
            os.write(latencies, second)
            os.write(backlog, array("q", (clock() - begin, waiting())))
        early = begin + number * period - clock()
        if early > 0:
            time.sleep(early / 1e9)
        values = dict.fromkeys(keys, float(number))
        started = clock()
        call(values, number)
        took = clock() - started
        second[2 * place] = started - begin
        second[2 * place + 1] = took
    os.write(latencies, second[: 2 * ((options.calls - 1) % options.rate + 1)])


if __name__ == "__main__":
    main()
