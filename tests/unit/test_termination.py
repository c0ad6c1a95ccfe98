"""SIGTERM in this very process: what it tells the sessions, and what it does to the program."""

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from otel_logger import termination
from otel_logger.termination import Termination, shield


@pytest.fixture(autouse=True)
def nothing_stands(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No session is open, and the default action stands."""
    monkeypatch.setattr(termination, "_watching", set())
    standing = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, standing)


class Steps:
    """Notes what happens; its methods stand for a session's end and a program's own handler."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def finish(self) -> None:
        """Note that the session is finished."""
        self.done.append("finish")

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note that the program's own handler was called."""
        self.done.append(f"handle {number}")


@pytest.fixture
def steps() -> Steps:
    """Return an empty note."""
    return Steps()


def terminate() -> None:
    """Have SIGTERM come, now."""
    signal.raise_signal(signal.SIGTERM)


def in_a_thread(action: Callable[[], Any]) -> Any:
    """Carry out an action in another thread, and return what it does."""
    results = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]


def test_it_ends_the_program_by_exit_status_143(steps: Steps) -> None:
    """Where the default action stood SystemExit is raised, so that exit hooks run; the session is only told."""
    session = Termination(steps.finish)

    with pytest.raises(SystemExit) as caught:
        terminate()

    assert 143 == caught.value.code
    assert (True, True, []) == (session.came, session.explains(caught.value), steps.done)


def test_all_sessions_share_a_handler_that_goes_with_the_last(steps: Steps) -> None:
    """Each is told, and the default action stands again when none is left."""
    first, second = Termination(steps.finish), Termination(steps.finish)
    handler = signal.getsignal(signal.SIGTERM)
    first.close()

    assert handler == signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    with pytest.raises(SystemExit):
        terminate()
    second.close()

    assert (False, True) == (first.came, second.came)
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_the_programs_own_handler_is_called(steps: Steps) -> None:
    """What it does is what happens: here nothing, and the run was preempted all the same; it is restored as it was."""
    signal.signal(signal.SIGTERM, steps.handle)
    session = Termination(steps.finish)
    terminate()

    assert (["handle 15"], True) == (steps.done, session.explains(None))
    session.close()
    assert steps.handle == signal.getsignal(signal.SIGTERM)


def test_an_exception_of_the_programs_own_handler_is_explained(steps: Steps) -> None:
    """What else ends the program is not: it may have failed of itself after SIGTERM came."""

    class Preempted(Exception):
        pass

    def handle(number: int, frame: FrameType | None) -> None:
        raise Preempted

    signal.signal(signal.SIGTERM, handle)
    session = Termination(steps.finish)
    before = session.explains(Preempted())
    with pytest.raises(Preempted):
        terminate()

    found = [session.explains(error) for error in (Preempted(), KeyboardInterrupt(), None, ValueError())]
    assert (False, [True, True, True, False]) == (before, found)


def test_what_the_program_ignores_stays_ignored(steps: Steps) -> None:
    """Nothing is installed, and nobody is told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    session = Termination(steps.finish)
    terminate()

    assert (False, signal.SIG_IGN) == (session.came, signal.getsignal(signal.SIGTERM))


def test_by_setting_nothing_is_installed() -> None:
    """With OTEL_LOGGER_SIGNALS=off the default action stands."""
    session = Termination(lambda: None, is_wanted=False)

    assert (signal.SIG_DFL, False) == (signal.getsignal(signal.SIGTERM), session.is_deaf)
    session.close()


def test_a_handler_of_c_code_is_left_alone(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be called, nor restored."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    session = Termination(steps.finish)
    monkeypatch.undo()

    assert (True, signal.SIG_DFL) == (session.is_deaf, signal.getsignal(signal.SIGTERM))


def test_off_the_main_thread_nothing_is_installed(steps: Steps) -> None:
    """Python allows it nowhere else; where a session of the main thread has, one of another hears it too."""
    alone = in_a_thread(lambda: Termination(steps.finish))
    assert (signal.SIG_DFL, False) == (signal.getsignal(signal.SIGTERM), alone.is_deaf)

    Termination(steps.finish)
    with pytest.raises(SystemExit):
        terminate()
    assert alone.came


def test_without_a_session_the_handler_is_as_if_it_were_not_there(steps: Steps) -> None:
    """It stays when the last session is closed off the main thread, and the next shares it."""
    signal.signal(signal.SIGTERM, steps.handle)
    session = Termination(steps.finish)
    handler = signal.getsignal(signal.SIGTERM)
    in_a_thread(session.close)
    terminate()
    assert (["handle 15"], False) == (steps.done, session.came)

    again = Termination(steps.finish)
    assert handler is signal.getsignal(signal.SIGTERM)
    again.close()
    assert steps.handle == signal.getsignal(signal.SIGTERM)


def test_in_the_child_of_a_fork_it_is_as_if_it_were_not_there(steps: Steps) -> None:
    """Also before it is restored there, and in a session that the child opens itself."""
    signal.signal(signal.SIGTERM, steps.handle)
    session = Termination(steps.finish)
    inherited: Any = signal.getsignal(signal.SIGTERM)
    inherited.process = -1
    terminate()
    assert (["handle 15"], False) == (steps.done, session.came)

    child = Termination(steps.finish)
    terminate()
    assert (["handle 15"] * 2, True) == (steps.done, child.came)
    child.close()
    session.close()
    assert steps.handle == signal.getsignal(signal.SIGTERM)


def test_a_handler_that_was_installed_over_ours_stays(steps: Steps) -> None:
    """It decides whether ours is called, also when a further session has installed one over it in turn."""
    session = Termination(steps.finish)
    ours: Any = signal.getsignal(signal.SIGTERM)

    def theirs(number: int, frame: FrameType | None) -> None:
        steps.handle(number, frame)
        ours(number, frame)

    signal.signal(signal.SIGTERM, theirs)
    further = Termination(steps.finish)
    with pytest.raises(SystemExit):
        terminate()
    assert (["handle 15"], True, True) == (steps.done, session.came, further.came)

    further.close()
    session.close()
    assert theirs == signal.getsignal(signal.SIGTERM)


def test_a_second_one_does_not_break_what_the_first_has_set_off(steps: Steps) -> None:
    """In clean-up, and in whatever is caught and handled within it; once it has been caught a further one counts."""
    Termination(steps.finish)

    def train() -> None:
        try:
            terminate()
        finally:
            terminate()
            try:
                raise ValueError
            except ValueError:
                terminate()
            steps.finish()

    with pytest.raises(SystemExit):
        train()
    with pytest.raises(SystemExit):
        terminate()
    assert ["finish"] == steps.done


def test_it_stays_until_what_the_first_has_set_off_is_over(steps: Steps) -> None:
    """The session is finished on the way out; other clean-up follows, and must not be broken off either."""
    session = Termination(steps.finish)

    def train() -> None:
        try:
            terminate()
        finally:
            session.close()
            terminate()
            steps.finish()

    with pytest.raises(SystemExit):
        train()
    assert ["finish"] == steps.done

    # The program has caught it and goes on: the next session takes the handler with it.
    Termination(steps.finish).close()
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_an_exit_of_the_programs_own_does_not_hide_it(steps: Steps) -> None:
    """Only SystemExit(143) is taken for the end by SIGTERM."""
    Termination(steps.finish)

    def leave() -> None:
        try:
            raise SystemExit("143")
        finally:
            terminate()

    with pytest.raises(SystemExit) as caught:
        leave()

    assert 143 == caught.value.code


def test_a_shielded_action_is_carried_out_first(steps: Steps) -> None:
    """What came meanwhile, however often, has its effect once, afterwards; an action within one leaves it to that."""
    session = Termination(steps.finish)

    def inner() -> None:
        terminate()
        terminate()
        steps.finish()

    def outer() -> None:
        shield(inner)
        session.close()
        steps.finish()

    with pytest.raises(SystemExit) as caught:
        shield(outer)

    assert (["finish", "finish"], 143, True) == (steps.done, caught.value.code, session.came)
    shield(steps.finish)
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_a_shield_in_another_thread_holds_nothing_up(steps: Steps) -> None:
    """The main thread ends at once, and has whoever finishes meanwhile waited for by its exit hooks."""
    Termination(steps.finish)
    begun, ended = threading.Event(), threading.Event()

    def action() -> None:
        begun.set()
        ended.wait()

    thread = threading.Thread(target=shield, args=(action,))
    thread.start()
    begun.wait()
    with pytest.raises(SystemExit):
        terminate()
    ended.set()
    thread.join()


def test_an_exception_within_a_shield_goes_on(steps: Steps) -> None:
    """And leaves nothing behind that would put off a later SIGTERM."""
    Termination(steps.finish)

    def action() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shield(action)
    with pytest.raises(SystemExit):
        terminate()
