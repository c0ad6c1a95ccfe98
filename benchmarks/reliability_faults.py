"""The faults: what happens to the program and to the receiver it sends to, in order."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receiver import Reply
from reliability_run import PROTOCOLS, Run

__all__ = ["FAULTS", "Fault"]


STEPS = 160
"""Of most faults: 8 s, so that the SDK sends one batch at least (by default after 1 s for logs, 5 s for spans)."""


@dataclass(frozen=True)
class Fault:
    """One fault: its name on the command line, its row in the table, how it is played, and about how long it takes."""

    name: str
    title: str
    play: Callable[[Run], None]
    seconds: int
    protocols: Sequence[str] = PROTOCOLS


def nothing(run: Run) -> None:
    """Record and end: what there is to lose."""
    run.steps(STEPS)
    run.end()


def outage(run: Run) -> None:
    """The receiver is away for 30 s in the middle."""
    run.steps(60)
    run.down()
    run.steps(600)
    run.up()
    run.steps(200)
    run.end()


def down_at_exit(run: Run) -> None:
    """The receiver goes away and the program ends; later it is back."""
    run.steps(60)
    run.down()
    run.steps(60)
    run.end()
    run.up()
    run.sync()


def black_hole_at_exit(run: Run) -> None:
    """The receiver stops answering and the program ends; later it answers."""
    run.steps(60)
    run.black_hole()
    run.steps(60)
    run.end()
    run.up()
    run.sync()


def killed_by(number: int) -> Callable[[Run], None]:
    """Return the fault of a signal, with everything else as it should be."""

    def play(run: Run) -> None:
        run.steps(STEPS)
        run.kill(number)
        run.sync()

    return play


def ended_by(how: str) -> Callable[[Run], None]:
    """Return the fault of an end that is not normal, with everything else as it should be."""

    def play(run: Run) -> None:
        run.steps(STEPS)
        run.end(how)
        run.sync()

    return play


def restarted(run: Run) -> None:
    """The receiver is away, the program is killed, both come back."""
    run.steps(60)
    run.down()
    run.steps(60)
    run.kill(signal.SIGKILL)
    run.up()
    run.start()
    run.steps(60)
    run.wait_for_all(10.0)
    run.end()


def answered(answer: Callable[[int], Reply], *, mended: bool = False) -> Callable[[Run], None]:
    """Return the fault of a receiver that answers the nth request of each signal by `answer(n)`.

    With `mended` it answers as it should once the program has ended.
    """

    def play(run: Run) -> None:
        run.answer(lambda signal, count: answer(count))
        run.steps(STEPS)
        run.end()
        if mended:
            run.answer(lambda signal, count: Reply())
            run.sync()

    return play


def idle_workers(run: Run) -> None:
    """Workers are forked, which record nothing; the parent goes on."""
    run.steps(40)
    run.fork(4, 0, 4)
    run.steps(60)
    run.join()
    run.end()
    if extra := run.points_of_workers():
        run.result.notes.append(f"workers sent {extra} values that they had inherited")


def recording_workers(run: Run) -> None:
    """Workers are forked, which record by what they inherited; only that is counted."""
    run.steps(40)
    run.fork(4, 20, 4)
    run.join()
    run.only_workers()
    run.end()


def burst(run: Run) -> None:
    """Many spans at once, and a receiver that takes half a second for each request."""
    run.answer(lambda signal, count: Reply(), delay=0.5)
    run.spans(10_000)
    run.end()
    run.sync()


def redirect(count: int) -> Reply:
    """Answer as a proxy that wants to be asked elsewhere."""
    return Reply(http=301, headers={"location": "https://telemetry.example/"})


def partial_success(count: int) -> Reply:
    """Accept the first request of each signal without two of its items."""
    return Reply(rejected=2, message="two items are out of bounds") if count == 0 else Reply()


def fail_first(code: int, name: str, retry_after: float | None = None) -> Callable[[int], Reply]:
    """Return the answers of a receiver that fails the first request of each signal."""
    failure = Reply(grpc=name, http=code, message="not now", retry_after=retry_after)
    return lambda count: Reply() if count else failure


HTTP = ("http/protobuf",)

FAULTS = (
    Fault("none", f"none: {STEPS} steps in 8 s, a normal end", nothing, 12),
    Fault("outage", "receiver down for 30 s, then up", outage, 50),
    Fault("down-at-exit", "receiver down at the end", down_at_exit, 40),
    Fault("black-hole", "receiver never answers at the end", black_hole_at_exit, 80),
    Fault("sigterm", "SIGTERM", killed_by(signal.SIGTERM), 12),
    Fault("sigkill", "SIGKILL", killed_by(signal.SIGKILL), 12),
    Fault("os-exit", "`os._exit`", ended_by("_exit"), 12),
    Fault("exception", "uncaught exception", ended_by("raise"), 12),
    Fault("restart", "receiver down, SIGKILL, both started again", restarted, 20),
    Fault("redirect", "301 until the end", answered(redirect, mended=True), 12, HTTP),
    Fault("partial", "partial success: 2 of each signal rejected", answered(partial_success), 12),
    Fault("500", "500 or INTERNAL, once", answered(fail_first(500, "INTERNAL")), 12),
    Fault("429", "429 or RESOURCE_EXHAUSTED, retry after 2 s", answered(fail_first(429, "RESOURCE_EXHAUSTED", 2)), 14),
    Fault("503", "503 or UNAVAILABLE, retry after 15 s", answered(fail_first(503, "UNAVAILABLE", 15)), 14),
    Fault("fork", "4 forked workers that record nothing", idle_workers, 12),
    Fault("fork-records", "what 4 forked workers record", recording_workers, 12),
    Fault("burst", "10,000 spans at once, each request takes 0.5 s", burst, 20),
)
"""All of them, in the order of the table."""
