"""Settling: a writer finds out which run it is of, and moves into that run's folder."""

import os
from collections.abc import Callable
from pathlib import Path

from otel_logger.identity import Checkpoint, Identity, Known, settle
from otel_logger.launch import Launch
from otel_logger.lookout import LONGEST_LOOK, Lookout
from otel_logger.writer_folder import WriterFolder
from otel_logger_exporters.ledger import Ledger

__all__ = ["Settling"]


class Settling:
    """Settles the run of the writer in `place`, once."""

    def __init__(self, launch: Launch, place: WriterFolder, ledger: Ledger) -> None:
        self._launch = launch
        self._place = place
        self._ledger = ledger
        self._lookout: Lookout[tuple[Known, ...]] | None = None

    def look_ahead(self) -> None:
        """Begin to look through the folder of runs in the background, for the call that settles which run this is."""
        self._lookout = Lookout(self._place.known)

    def settle(
        self,
        *,
        run_name: str | None,
        run_id: str | None,
        checkpoint: Checkpoint | None,
        relocate: Callable[[Path], None],
    ) -> Identity:
        """Return the identity of the writer, whose folder is in the run's then; `relocate` renames it."""
        drawn = os.urandom(3).hex()

        def decide() -> Identity:
            # Who gives the id alone of a run to go on with means the run of that name.
            named = (item.writer.run_name for item in reversed(known) if item.writer.run_id == run_id)
            return settle(
                run_name=run_name or (run_id and next(filter(None, named), None)) or self._launch.script,
                run_id=run_id,
                writer=self._place.writer.writer,
                ranks=self._launch.ranks,
                known=known,
                checkpoint=checkpoint,
                seed=self._launch.seed,
                draw=lambda: drawn,
                parent_id=self._launch.settings.parent_run_id,
                launch=self._launch.mark,
                restarts=self._launch.restarts.total,
            )

        # Of a run that is named others tell nothing.
        known = self._look_around() if run_id is None else ()
        identity = decide()
        while True:
            likely = identity.run_id
            with self._place.entering(likely):
                # Others may have begun since: of the run that it is about to be, what is known has to be of now.
                known = (*(item for item in known if item.writer.run_id != likely), *self._place.known_of(likely))
                identity = decide()
                if identity.run_id == likely:
                    self._place.move_in(identity, relocate)
                    break
        self._warn_of_twin(identity)
        return identity

    def _look_around(self) -> tuple[Known, ...]:
        if self._lookout is None:
            return self._place.known()
        known = self._lookout.answer(LONGEST_LOOK)
        if known is None:
            self._ledger.warn(
                "look",
                f"{self._launch.directory} could not be looked through within {LONGEST_LOOK:g} s: this is a run of its "
                "own, also if it restarts another. Set OTEL_LOGGER_RUN_ID to go on with a run.",
            )
        return known or ()

    def _warn_of_twin(self, identity: Identity) -> None:
        if (twin := identity.twin) is not None:
            self._ledger.warn(
                "identity",
                f"Another process writes run {identity.run_id!r} as rank {identity.ranks.rank} too (attempt "
                f"{twin.writer.attempt}, writer {twin.writer.writer}, in {twin.folder}), or has died within the last "
                f"minute: this one is attempt {identity.attempt}, writer {identity.writer}. Give each a run_id of its "
                "own if they are two runs, or each its RANK if they are one.",
            )
