"""Processes that fork, spawn and are forked while they log: the parent's run is the parent's, and nobody hangs."""

import signal
import sys
from pathlib import Path

import pytest

from tests.children import ALLOWANCE, ENOUGH, FOREVER, Begin, assert_all_there_once, outcomes


def test_forked_children_die_by_sigterm_as_without_a_logger(begin: Begin) -> None:
    """Workers of a data loader are ended by it; the parent goes on, and still ends in order itself."""
    child, collector = begin(f"""
        from multiprocessing import get_context

        def idle(pipe):
            pipe.send(signal.getsignal(signal.SIGTERM))
            time.sleep(60)

        work({ENOUGH})
        fork = get_context("fork")
        here, there = fork.Pipe()
        process = fork.Process(target=idle, args=(there,))
        process.start()
        say("handler", int(here.recv()))
        process.terminate()
        process.join()
        say("child", process.exitcode)
        work({FOREVER}, start={ENOUGH})
    """)
    assert [[str(int(signal.SIG_DFL))]] == child.wait_for("handler")
    assert [[str(-signal.SIGTERM)]] == child.wait_for("child")
    child.wait_for("step", 2 * ENOUGH)
    child.kill(signal.SIGTERM)
    child.wait()

    assert 143 == child.status, child.stderr
    assert_all_there_once(child, collector)
    assert ["preempted"] == outcomes(child, collector)


def test_a_spawned_child_is_a_writer_that_ends_in_order(begin: Begin) -> None:
    """It has opened the logger it was given in its main thread, so that SIGTERM ends its part of the run."""
    opening = """
from multiprocessing import get_context
def train(log):
    work(10**9, log, "spawned")
if __name__ == "__main__":
    log = OTelLogger(run_name="run")
    say("folder", log.run_dir)
"""
    child, collector = begin(
        f"""
        if __name__ == "__main__":
            work({ENOUGH})
            process = get_context("spawn").Process(target=train, args=(log,))
            process.start()
            wait_for_the_word()
            process.terminate()
            process.join()
            say("child", process.exitcode)
        """,
        opening=opening,
    )
    child.wait_for("step", 2 * ENOUGH)
    child.tell()
    child.wait()

    assert (0, [["143"]]) == (child.status, child.said("child")), child.stderr
    assert_all_there_once(child, collector)
    assert ["finished", "preempted"] == sorted(map(str, outcomes(child, collector)))


def test_a_logger_made_in_a_forked_child_ends_with_it(begin: Begin) -> None:
    """It is finished though such a child runs no exit hooks, also when its work has failed or was ended."""
    child, collector = begin(
        """
        from multiprocessing import get_context
        processes = [get_context("fork").Process(target=train, args=(way,)) for way in ("end", "fail", "wait")]
        for process in processes:
            process.start()
        wait_for_the_word()
        processes[-1].terminate()
        for process in processes:
            process.join()
        say("children", *(process.exitcode for process in processes))
        """,
        opening=f"""
def train(way):
    log = OTelLogger(run_name="run", run_id="run")
    work({ENOUGH}, log, way)
    if way == "fail":
        raise ValueError("boom")
    if way == "wait":
        time.sleep(60)
log = OTelLogger(run_name="run", run_id="run")
say("folder", log.run_dir)
""",
    )
    child.wait_for("step", 3 * ENOUGH)
    child.tell()
    child.wait()

    assert (0, [["0", "1", "143"]]) == (child.status, child.said("children")), child.stderr
    assert_all_there_once(child, collector)
    # Since Python 3.13 the exception is over when the exit hooks run.
    failed = "failed" if sys.version_info < (3, 13) else "finished"
    assert sorted([failed, "finished", "finished", "preempted"]) == sorted(map(str, outcomes(child, collector)))


@pytest.mark.parametrize(("kind", "protocol"), [("up", "grpc"), ("hole", "grpc"), ("up", "http/protobuf")])
def test_a_fork_in_the_middle_of_everything(begin: Begin, kind: str, protocol: str) -> None:
    """While rows are written by several threads and sent by another: the child neither hangs nor adds to the run."""
    child, collector = begin(
        f"""
        work({ENOUGH})
        wait_for_the_word()
        done = threading.Event()

        def log_on(name):
            step = 0
            while not done.is_set():
                work(10, name=name, start=step)
                step += 10
                # More than 1,000 calls a second for a minute would be coalesced.
                time.sleep(0.005)

        threads = [threading.Thread(target=log_on, args=(f"thread{{n}}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        statuses = set()
        for number in range(12):
            if (child := os.fork()) == 0:
                log.log_metrics({{"child": 1.0}}, number)
                log.log_traces({{"child": 1}})
                log.flush()
                log.close()
                if log.stats().dropped != {{"fork": 2}}:
                    os._exit(1)
                if number % 2:
                    os._exit(0)
                sys.exit(0)
            statuses.add(os.waitpid(child, 0)[1])
        done.set()
        for thread in threads:
            thread.join()
        say("children", *statuses)
        say("end", time.monotonic())
        """,
        kind,
        protocol,
    )
    child.wait_for("step", ENOUGH)
    collector.wait_until_used()
    child.tell()
    ended = child.wait()

    assert (0, [["0"]]) == (child.status, child.said("children")), child.stderr
    assert ended - float(child.said("end")[-1][0]) < collector.shutdown + ALLOWANCE
    assert_all_there_once(child, collector, most_unreported=0)
    assert ["finished"] == outcomes(child, collector)


def test_a_fork_while_other_threads_hold_every_lock(begin: Begin) -> None:
    """In the child nobody will ever release them, and what may still be called there needs none of them."""
    child, _ = begin("""
        held, session = threading.Event(), log._session
        path = session.writer.folder / "uploaded"
        path.write_text("content")
        log.upload_file(None, "name", path)
        log.flush()

        def hold():
            locks = [session.ledger._lock, session.deposits._shelf._lock, session.writer._place._moving, log._lock]
            for lock in [*locks, session._finishing, session.writer._lock, session.writer.spans._lock]:
                lock.acquire()
            held.set()
            time.sleep(60)

        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        if os.fork() == 0:
            with log.span("span"):
                log.log_metrics({"child": 1.0})
            log.log_hyperparameters({"lr": 1})
            log.upload_file(None, "other", path)
            log.download_file("name", str(path.with_name("downloaded")))
            log.flush()
            log.close()
            say("child", log.run_dir.name, path.with_name("downloaded").read_text(), log.stats().dropped["fork"])
            os._exit(0)
        os.wait()
        os._exit(0)
    """)
    ((folder,),) = child.said("folder")

    assert [[Path(folder).name, "content", "4"]] == child.wait_for("child")
