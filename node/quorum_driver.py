"""The voter's side of the metadata quorum: a quorum of one, for now.

Kept true:
  1. Each time this voter begins to lead it is in a new quorum epoch, its vote for itself fsynced first, and the epoch
     opens with a leader-change control record.
  2. The high watermark is what the voter holds, and moves only once a record of its own epoch is held.
  3. A log that cannot be written any more ends the node: an error of its disk leaves unknown what is on it.

Left to others: the controller (controller_driver.py), who may fetch (quorum_service.py), nodes that do not vote
(metadata_observer.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from node.clock import Clock
from node.metadata_log import MetadataLog
from node.quorum_state import QuorumState, QuorumView, read_state, write_state
from node.work import run_in
from replication.image import ClusterImage
from replication.metadata import ClusterRecord, Voter, VotersRecord
from storage.executor import Executor
from storage.files import Files
from tidelog.errors import DiskFull, TidelogError
from tidelog.records import LeaderChange
from tidelog.records import Voter as ControlVoter
from tidelog.types import Endpoint, FolderId, LeaderEpoch, NodeId, Offset

_log = logging.getLogger("node.quorum")

FEATURE_LEVEL: Final = 1
"""What the records of a new cluster may use: all that is in the first version."""

LEAD_AGAIN_MS: Final = 1_000
"""Pause before leading again after the disk was full."""


class QuorumDriver:
    """Leads the quorum for as long as the disk allows."""

    def __init__(
        self,
        node_id: NodeId,
        folder_id: FolderId,
        listeners: Mapping[str, Endpoint],
        metadata: MetadataLog,
        view: QuorumView,
        *,
        files: Files,
        executor: Executor,
        clock: Clock,
        on_lead: Callable[[ClusterImage], None],
        on_resign: Callable[[], None],
    ) -> None:
        """on_lead: given the image of the whole log, once this node leads. on_resign: it does not any more."""
        self._me = node_id
        self._voter = Voter(node_id, folder_id, listeners)
        self._metadata, self._view = metadata, view
        self._files, self._executor, self._clock = files, executor, clock
        self._on_lead, self._on_resign = on_lead, on_resign
        self._full: DiskFull | None = None
        self._epoch_opened = False
        self._opened_at = Offset(0)
        metadata.on_held = self._commit

    async def run(self, cluster_id: str) -> None:
        """Lead, until the disk refuses. cluster_id: the cluster to begin where the log has none yet.

        Raises KafkaStorageError, CorruptLog.
        """
        try:
            self._metadata.on_full = self.refused
            while True:
                await self._lead(cluster_id)
                self._on_resign()
                self._view.forget()
                await self._clock.sleep_ms(LEAD_AGAIN_MS)
        finally:
            self._on_resign()

    async def _lead(self, cluster_id: str) -> None:
        """One leadership. Returns after the disk was full."""
        self._full, self._epoch_opened, self._opened_at = None, False, Offset(0)
        try:
            epoch = await self._vote()
            self._open_epoch(epoch, cluster_id)
        except DiskFull as error:
            self._full = error
            _log.error("this node cannot lead the metadata quorum: %s", error.message)
            return
        await self._metadata.wait_until(lambda: self._epoch_opened or self._full is not None)
        if not self._epoch_opened:
            return
        self._view.follow(self._me, epoch, None)
        _log.info("leads the metadata quorum in epoch %d, from offset %d", epoch, self._metadata.end)
        self._on_lead(self._metadata.replayed())
        await self._metadata.wait_until(lambda: self._full is not None)

    def refused(self, error: TidelogError) -> None:
        """The log refused what the controller appended, or to make it durable: the controller has decided what is not
        there, or not yet, so it must begin again."""
        _log.error("this node stops leading the metadata quorum: %s", error.message)
        if isinstance(error, DiskFull):
            self._full = error
        else:
            self._metadata.failure = error
        self._metadata.wake()

    async def _vote(self) -> LeaderEpoch:
        """Vote for this voter in a new epoch, durably. Raises DiskFull, KafkaStorageError, CorruptLog."""
        log = self._metadata.log
        try:
            before = await run_in(self._executor, lambda: read_state(self._files, log.path))
            epoch = LeaderEpoch(max(before.leader_epoch, log.latest_epoch, self._view.leader_epoch, 0) + 1)
            state = QuorumState(epoch, self._me, self._me, self._voter.folder_id)
            await run_in(self._executor, lambda: write_state(self._files, log.path, state))
        except OSError as error:
            raise log.folder.fail(f"voting in {log.path}", error) from error
        return epoch

    def _open_epoch(self, epoch: LeaderEpoch, cluster_id: str) -> None:
        me = ControlVoter(self._me, self._voter.folder_id)
        opening = self._metadata.append_leader_change(LeaderChange(self._me, (me,), (me,)), epoch)
        self._opened_at = opening.end
        image = self._metadata.replayed()
        if not image.cluster_id:
            self._metadata.append([ClusterRecord(cluster_id, FEATURE_LEVEL), VotersRecord((self._voter,))], epoch)
        elif image.voters != (self._voter,):
            self._metadata.append([VotersRecord((self._voter,))], epoch)
        self._commit()

    def _commit(self) -> None:
        """What the only voter holds is committed, once that reaches into its own epoch."""
        held = self._metadata.held
        if self._full is None and held >= self._opened_at > 0:
            self._epoch_opened = True
            self._metadata.commit(held)
