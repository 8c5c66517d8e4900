"""Handlers of the metadata quorum's requests: votes, announcements of leaders, and fetches of the metadata log.

Invariants: only the leader of the quorum serves records; a node that does not vote gets committed ones only. A request
that does not name this node's cluster and this replica is rejected before its values are checked; `introduce` alone
needs neither, and a fetch of an empty directory names no cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from node.api.caller import Caller
from node.api.quorum_requests import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchMetadataAnswer,
    FetchMetadataRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    IntroduceAnswer,
    IntroduceRequest,
    QuorumVoteRequest,
    UncheckedReplicaKey,
)
from node.metadata.metadata_log import MetadataLog
from node.quorum.checks import begin_of, end_of, epoch_of, fetch_of, key_of, unchecked, vote_of
from node.quorum.driver import QuorumDriver
from node.quorum.state import QuorumView
from replication.raft.quorum_events import (
    BelowLogStart,
    LeaderAndEpoch,
    LogsAgree,
    LogsDiverge,
    Requested,
    SnapshotRequested,
    VoteAnswer,
)
from replication.raft.voters import VoterSet
from tidelog.clock import Clock
from tidelog.errors import (
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.types import NO_LEADER_EPOCH, EpochStart, Incarnation, LeaderEpoch, Millis, NodeId, Offset

WAIT_MS_MAX: Final = 10_000
FETCH_BYTES_MAX: Final = 8 << 20
SNAPSHOT_BYTES_MAX: Final = 4 << 20

_NO_EPOCHS: Final[tuple[EpochStart, ...]] = ()


class QuorumHandlers:
    """One method for each request of node/api/quorum_requests.py."""

    def __init__(
        self,
        driver: QuorumDriver,
        metadata: MetadataLog,
        view: QuorumView,
        incarnation: Incarnation,
        *,
        clock: Clock,
        cluster_id: Callable[[], str | None],
    ) -> None:
        """incarnation: of this process. cluster_id: returns the cluster of this node's directories, None for none."""
        self._driver, self._metadata, self._view = driver, metadata, view
        self._clock = clock
        self._incarnation, self._cluster_id = incarnation, cluster_id

    async def introduce(self, _request: IntroduceRequest, _caller: Caller) -> IntroduceAnswer:
        """The identity of this replica, and the cluster of its directory."""
        return IntroduceAnswer(
            node_id=self._view.node_id,
            cluster_id=self._cluster_id() or self._metadata.replayed().cluster_id,
            directory_id=self._driver.me.directory_id.bytes,
            leader_id=self._view.leader_id,
            leader_epoch=self._view.leader_epoch,
            voters=tuple(map(unchecked, VoterSet.of(self._metadata.voters).members)),
            incarnation=self._incarnation.bytes,
        )

    # --- elections ------------------------------------------------------------------------------------------------

    async def vote(self, request: QuorumVoteRequest, _caller: Caller) -> VoteAnswer:
        """A candidate requests this node's vote."""
        self._ensure_cluster(request.cluster_id, request.candidate.node_id)
        asked = vote_of(request)
        return await self._driver.ask(lambda number: Requested(number, self._now(), asked), VoteAnswer)

    async def begin_quorum_epoch(self, request: BeginQuorumEpochRequest, _caller: Caller) -> LeaderAndEpoch:
        """A node announces that it leads."""
        self._ensure_cluster(request.cluster_id, request.leader_id)
        self._ensure_meant(request.receiver)
        begin = begin_of(request)
        return await self._driver.ask(lambda number: Requested(number, self._now(), begin), LeaderAndEpoch)

    async def end_quorum_epoch(self, request: EndQuorumEpochRequest, _caller: Caller) -> LeaderAndEpoch:
        """A node announces that it no longer leads."""
        self._ensure_cluster(request.cluster_id, request.leader_id)
        self._ensure_meant(request.receiver)
        end = end_of(request)
        return await self._driver.ask(lambda number: Requested(number, self._now(), end), LeaderAndEpoch)

    # --- the log --------------------------------------------------------------------------------------------------

    async def fetch_metadata(self, request: FetchMetadataRequest, _caller: Caller) -> FetchMetadataAnswer:
        """Records from an offset on; waits for new ones if there are none. The answer's `error` is the rejection."""
        cluster_id = self._cluster_id() or ""
        try:
            is_empty = request.fetch_offset == request.durable_offset == 0
            self._ensure_cluster(request.cluster_id, request.node_id, may_be_none=is_empty)
            self._ensure_meant(request.receiver)
            return await self._fetch(request, cluster_id)
        except TidelogError as error:
            return FetchMetadataAnswer(self._cluster_id() or "", *self._leader(), self._with_leader(error))

    async def fetch_snapshot(self, request: FetchSnapshotRequest, _caller: Caller) -> FetchSnapshotAnswer:
        """A part of a snapshot. The answer's `error` is the rejection."""
        try:
            self._ensure_cluster(request.cluster_id, request.replica.node_id)
            self._ensure_meant(request.receiver)
            self._ensure_leading()
            wanted = min(request.max_bytes, SNAPSHOT_BYTES_MAX)
            asker, epoch = key_of(request.replica), epoch_of(request.current_leader_epoch, NO_LEADER_EPOCH)
            self._driver.post(SnapshotRequested(self._now(), asker, epoch))
            size, data = self._metadata.read_snapshot(request.snapshot, request.position, wanted)
        except TidelogError as error:
            return FetchSnapshotAnswer(*self._leader(), self._with_leader(error))
        return FetchSnapshotAnswer(*self._leader(), size=size, data=data)

    def _ensure_cluster(self, asked_by: str, sender: int, *, may_be_none: bool = False) -> None:
        if not asked_by and not may_be_none:
            raise InvalidRequest(
                f"the request of node {sender} names no cluster: only a fetch of an empty directory may omit it"
            )
        cluster_id = self._cluster_id()
        if asked_by and cluster_id and asked_by != cluster_id:
            raise InconsistentClusterId(
                f"node {sender} belongs to cluster {asked_by}, node {self._view.node_id} to {cluster_id}: check "
                "controller.quorum.bootstrap.servers"
            )

    def _ensure_meant(self, receiver: UncheckedReplicaKey) -> None:
        """Raise InvalidVoterKey for a request to another replica: the sender's voter set or address may be stale."""
        me, named = self._driver.me, key_of(receiver)
        if named != me:
            raise InvalidVoterKey(f"the request is meant for {named}, this is {me}: query its key again")

    def _ensure_leading(self, epoch: LeaderEpoch | None = None) -> None:
        """Raise NotLeaderOrFollower unless this node leads, in that epoch: the log may have changed since then."""
        if not self._view.leads or epoch not in (None, self._view.leader_epoch):
            raise NotLeaderOrFollower(f"node {self._view.node_id} does not lead the metadata quorum")

    def _leader(self) -> tuple[NodeId, LeaderEpoch]:
        """The leader and its epoch for an answer."""
        return self._view.leader_id, max(LeaderEpoch(0), self._view.leader_epoch)

    def _with_leader(self, error: TidelogError) -> TidelogError:
        if isinstance(error, NotLeaderOrFollower):
            return NotLeaderOrFollower(error.message, leader=self._view.address())
        return error

    async def _fetch(self, request: FetchMetadataRequest, cluster_id: str) -> FetchMetadataAnswer:
        log = self._metadata.log
        fetch = fetch_of(request)
        verdict = await self._driver.ask(lambda number: Requested(number, self._now(), fetch), object)
        epoch = self._view.leader_epoch if fetch.epoch == NO_LEADER_EPOCH else fetch.epoch
        self._ensure_leading(epoch)  # the answer names the present leader, and the verdict is older
        records, epochs = b"", _NO_EPOCHS
        if isinstance(verdict, LogsAgree):
            await self._wait(request, epoch, verdict.is_voter)
            self._ensure_leading(epoch)
            records, epochs = self._read(fetch.offset, request.max_bytes, verdict.is_voter)
        return FetchMetadataAnswer(
            cluster_id,
            *self._leader(),
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            diverging=verdict.end if isinstance(verdict, LogsDiverge) else None,
            snapshot=verdict.snapshot if isinstance(verdict, BelowLogStart) else None,
            epochs=epochs,
            records=records,
        )

    def _read(self, offset: Offset, max_bytes: int, is_voter: bool) -> tuple[bytes, tuple[EpochStart, ...]]:
        """Records from an offset on, and the epoch entries in their range. Raises OffsetOutOfRange."""
        log = self._metadata.log
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(f"the metadata log begins at offset {log.log_start_offset}, not at {offset}")
        up_to = self._readable(is_voter)
        if offset >= up_to:
            return b"", ()
        read = log.read(offset, min(max_bytes, FETCH_BYTES_MAX), up_to=up_to)
        return bytes(read.records), tuple(read.epochs)

    def _readable(self, is_voter: bool) -> Offset:
        """Limit of reads: the log end for voters, which must replicate uncommitted records, otherwise the watermark."""
        return self._metadata.end if is_voter else self._metadata.high_watermark

    async def _wait(self, request: FetchMetadataRequest, epoch: LeaderEpoch, is_voter: bool) -> None:
        """Wait for records, for a high watermark that the sender does not know, or for another leader."""
        if request.max_wait_ms <= 0:
            return
        known = self._metadata.end if request.high_watermark is None else request.high_watermark

        def has_changed() -> bool:
            return (
                request.fetch_offset < self._readable(is_voter)
                or known < self._metadata.high_watermark
                or not self._view.leads
                or self._view.leader_epoch != epoch
            )

        try:
            async with asyncio.timeout(min(request.max_wait_ms, WAIT_MS_MAX) / 1_000):
                await self._metadata.wait_until(has_changed)
        except TimeoutError:
            return

    def _now(self) -> Millis:
        return self._clock.monotonic_ms()
