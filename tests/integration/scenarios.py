"""The programs whose stories are told: small trainings by real Composer, each in a process of its own.

As a program without arguments it imports Composer once and forks a child for each scenario that it reads, one JSON
object a line; it answers with the child's exit status as `os.waitpid` gives it. A child ends as any program does: with
Composer's hooks at exit, and with an uncaught exception where there is one. With arguments (`torchrun` starts it so) it
is itself the scenario and the name of the run that they say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import received
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from composer import Trainer
    from composer.algorithms import SWA
    from composer.loggers import LoggerDestination
    from composer.models import ComposerClassifier
from composer.utils import dist
from tiny import tiny_loader, tiny_trainer

from otel_logger import conventions as names
from otel_logger.composer import OTelLogger

__all__ = ["OUTPUT", "PORTS", "SCENARIOS"]

OUTPUT = "STORY_OUTPUT"
"""The variable that names the folder to which the Collector writes at once what it has received."""

PORTS = "STORY_PORTS"
"""The variable that names free ports, by which ranks find each other: one for each time that they are started."""

PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.01

STATE_CHANGES = frozenset(
    {"fit_start", "fit_end", "eval_standalone_start", "eval_start", "eval_end", "predict_start", "predict_end"}
    | {"batch_checkpoint", "epoch_checkpoint"}
)
"""The events at which the state of a run may change. It does so too where a checkpoint begins, which is no event."""


BEGINNINGS = frozenset({"fit_start", "eval_standalone_start", "predict_start"})
"""The events from the first of which on the heart beats."""


class Waiting(LoggerDestination):
    """Holds the training, wherever its state may have changed, until the Collector has been told the state.

    What a heartbeat tells is thereby the same in each run. Given after the logger, it is called after it.
    """

    def __init__(self) -> None:
        self._run_name = ""
        self._is_bound = False
        self._path = Path(os.environ[OUTPUT]) / "metrics.jsonl"
        self._heartbeats: BinaryIO | None = None
        self._rest = b""

    def init(self, state: Any, logger: Any) -> None:
        """Take note of the run."""
        self._run_name = state.run_name

    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Wait where the state may have changed."""
        super().run_event(event, state, logger)
        self._is_bound = self._is_bound or event.value in BEGINNINGS
        if event.value in STATE_CHANGES:
            self.wait()

    def state_dict(self) -> dict[str, Any]:
        """Wait in the midst of a checkpoint, of which this is the beginning."""
        self.wait()
        return {}

    def wait(self) -> None:
        """Wait for a heartbeat that is later than this moment."""
        now = time.time_ns()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._is_bound and not any(time_ns > now for time_ns in self._told()):
            assert time.monotonic() < deadline, "no heartbeat has come"
            time.sleep(POLL_SECONDS)

    def _told(self) -> Iterator[int]:
        if self._heartbeats is None:
            if not self._path.exists():
                return
            self._heartbeats = self._path.open("rb")
        *lines, self._rest = (self._rest + self._heartbeats.read()).split(b"\n")
        for line in lines:
            for point in received.metric_points(json.loads(line)):
                writer = point.resource[names.RUN_NAME], point.resource[names.RANK]
                if point.name == names.STATE and writer == (self._run_name, dist.get_global_rank()):
                    yield point.time_ns


class Ending(Waiting):
    """Ends the process by a signal after the third batch, of which all is delivered by then."""

    def __init__(self, log: OTelLogger, sent: signal.Signals) -> None:
        super().__init__()
        self._log = log
        self._sent = sent

    def batch_end(self, state: Any, logger: Any) -> None:
        """End the process."""
        if state.timestamp.batch.value == 3:
            self.wait()
            assert self._log.flush(PATIENCE_SECONDS)
            os.kill(os.getpid(), self._sent)


class Dying(Ending):
    """Kills rank 1 after the third batch, unless it has been started again; the others wait for their end."""

    def __init__(self, log: OTelLogger) -> None:
        super().__init__(log, signal.SIGKILL)

    def batch_end(self, state: Any, logger: Any) -> None:
        """End the process, or wait for `torchrun` to do so."""
        if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0 or state.timestamp.batch.value != 3:
            return
        arrived = Path("rank 0 is there too")
        if dist.get_global_rank() == 0:
            self.wait()
            arrived.touch()
            # The exception of the signal's handler ends it.
            time.sleep(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not arrived.exists():
            assert time.monotonic() < deadline, "rank 0 has not come"
            time.sleep(POLL_SECONDS)
        super().batch_end(state, logger)


class Overflowing(torch.nn.Linear):
    """A layer that fails in the third batch."""

    calls = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Fail, or be a linear layer."""
        self.calls += 1
        if self.calls == 3:
            msg = "activations overflow"
            raise FloatingPointError(msg)
        return super().forward(batch)


def small_trainer(run_name: str, *loggers: LoggerDestination, **options: Any) -> Trainer:
    """A trainer of two batches an epoch."""
    loggers = loggers or (OTelLogger(), Waiting())
    return tiny_trainer(loggers, run_name=run_name, train_subset_num_batches=2, **options)


def several_fits(run_name: str) -> None:
    """Two fits with evaluations, the second from step 0 on, and an evaluation after them."""
    evaluated = {"eval_dataloader": tiny_loader(), "eval_subset_num_batches": 1}
    trainer = small_trainer(run_name, **evaluated, eval_interval="1ep")
    trainer.fit()
    trainer.fit(reset_time=True)
    trainer.eval()
    trainer.close()


def evaluation(run_name: str) -> None:
    """An evaluation of two sets, without any training."""
    trainer = small_trainer(run_name, train_dataloader=None, max_duration=None)
    trainer.eval(eval_dataloader=tiny_loader(), subset_num_batches=2)
    trainer.close()


def prediction(run_name: str) -> None:
    """A prediction, without any training."""
    trainer = small_trainer(run_name, train_dataloader=None, max_duration=None)
    trainer.predict(dataloader=tiny_loader(), subset_num_batches=2)
    trainer.close()


def exception(run_name: str) -> None:
    """A model that fails, which ends the program."""
    model = ComposerClassifier(Overflowing(4, 2), num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    small_trainer(run_name, model=model, optimizers=optimizer, max_duration="2ep").fit()


def ended_by(sent: signal.Signals) -> Callable[[str], None]:
    """A training that a signal ends in the midst of its second epoch."""

    def scenario(run_name: str) -> None:
        log = OTelLogger()
        small_trainer(run_name, log, Ending(log, sent), max_duration="2ep").fit()

    return scenario


def one_epoch(run_name: str) -> None:
    """A training of one epoch, which the end of the program closes."""
    small_trainer(run_name).fit()


def with_checkpoints(hyperparameters: dict[str, Any]) -> Callable[[str], None]:
    """A training of one of two epochs, which goes on from the last checkpoint and saves one."""

    def scenario(run_name: str) -> None:
        saving = {"save_folder": "checkpoints/{run_name}", "save_interval": "1ep", "autoresume": True}
        trainer = small_trainer(run_name, max_duration="2ep", **saving)
        trainer.logger.log_hyperparameters(hyperparameters)
        trainer.fit(duration="1ep")
        trainer.close()

    return scenario


def averaging(run_name: str) -> None:
    """A training with stochastic weight averaging in its second epoch."""
    algorithm = SWA(swa_start="1ep", swa_end="2ep", update_interval="1ba")
    trainer = small_trainer(run_name, max_duration="2ep", algorithms=[algorithm])
    trainer.fit()
    trainer.close()


def with_hyperparameters(run_name: str) -> None:
    """A training whose arguments Composer logs, and the program some more: before the fit and after it."""
    trainer = small_trainer(run_name, auto_log_hparams=True)
    trainer.logger.log_hyperparameters({"data": {"path": Path("corpus"), "api_key": "sk-live-0123456789abcdef"}})
    trainer.fit()
    trainer.logger.log_hyperparameters({"late": True})
    trainer.close()


def several_ranks(run_name: str) -> None:
    """A training of several processes together."""
    trainer = small_trainer(run_name, dist_timeout=PATIENCE_SECONDS)
    trainer.fit()
    trainer.close()


def a_rank_that_dies(run_name: str) -> None:
    """A training of several processes, of which one dies in the midst of the second epoch."""
    # The launcher's own store still has the addresses of the ranks before, to which Gloo then connects now and then.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    os.environ["MASTER_PORT"] = os.environ[PORTS].split(",")[int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
    log = OTelLogger()
    trainer = small_trainer(run_name, log, Dying(log), max_duration="2ep", dist_timeout=PATIENCE_SECONDS)
    trainer.fit()
    trainer.close()


SCENARIOS: dict[str, Callable[[str], None]] = {
    "several fits": several_fits,
    "evaluation": evaluation,
    "prediction": prediction,
    "exception": exception,
    "SIGTERM": ended_by(signal.SIGTERM),
    "SIGKILL": ended_by(signal.SIGKILL),
    "one epoch": one_epoch,
    "first of two epochs": with_checkpoints({"lr": 0.1, "warmup": 10}),
    "second of two epochs": with_checkpoints({"lr": 0.05, "decay": 0.01}),
    "averaging": averaging,
    "hyperparameters": with_hyperparameters,
    "ranks": several_ranks,
    "a rank that dies": a_rank_that_dies,
}


def main() -> None:
    """Carries out the scenario of the arguments, or one after the other in children."""
    if len(sys.argv) > 1:
        SCENARIOS[sys.argv[1]](sys.argv[2])
        return
    for line in sys.stdin:
        told = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.update(told["environ"])
            os.chdir(told["folder"])
            # What the child prints is not an answer.
            os.dup2(os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
            os.dup2(1, 2)
            SCENARIOS[told["scenario"]](told["run_name"])
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
