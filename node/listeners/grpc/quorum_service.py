"""The Quorum service: votes, news of leaderships, and the metadata log for those who fetch.

Kept true: only the leader of the quorum serves records; a node that does not vote gets committed ones only. A request
that does not name this node's cluster, or not this replica, is refused; `Introduce` alone needs neither, and a fetch of
an empty directory names no cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.metadata.metadata_log import MetadataLog
from node.quorum.codec import (
    BEGIN_EPOCH,
    END_EPOCH,
    LEADER_AND_EPOCH,
    SNAPSHOT_ID,
    VOTE_ANSWER,
    VOTE_REQUEST,
    epoch_of,
    fetch_from_proto,
    key_from_proto,
    key_to_proto,
)
from node.quorum.driver import QuorumDriver
from node.quorum.state import QuorumView
from node.requests.types.context import RequestContext
from node.runtime import status
from node.runtime.clock import Clock
from replication.raft.events import (
    BeginEpochAsked,
    BelowLogStart,
    EndEpochAsked,
    FetchAgreed,
    Fetched,
    LeaderAndEpoch,
    LogsDiverge,
    SnapshotAsked,
    VoteAnswer,
    VoteAsked,
)
from replication.raft.voters import VoterSet
from tidelog.errors import (
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.protocol.v1 import common_pb2, quorum_pb2
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Millis, Offset

WAIT_MS_MAX = 10_000
FETCH_BYTES_MAX = 8 << 20
SNAPSHOT_BYTES_MAX = 4 << 20


class QuorumService:
    """One method per RPC."""

    def __init__(
        self,
        driver: QuorumDriver,
        metadata: MetadataLog,
        view: QuorumView,
        *,
        clock: Clock,
        cluster_id: Callable[[], str | None],
    ) -> None:
        """cluster_id: the cluster that this node's directories belong to now, None: none yet."""
        self._driver, self._metadata, self._view = driver, metadata, view
        self._clock = clock
        self._cluster_id = cluster_id

    async def introduce(
        self, _request: quorum_pb2.IntroduceRequest, _context: RequestContext
    ) -> quorum_pb2.IntroduceResponse:
        """Who this node is, and which cluster its directory belongs to."""
        return quorum_pb2.IntroduceResponse(
            node_id=self._view.node_id,
            cluster_id=self._cluster_id() or self._metadata.replayed().cluster_id,
            directory_id=self._driver.me.directory_id.bytes,
            leader_id=self._view.leader_id,
            leader_epoch=self._view.leader_epoch,
            voters=[key_to_proto(key) for key in VoterSet.of(self._metadata.voters).members],
        )

    # --- elections ------------------------------------------------------------------------------------------------

    async def vote(self, request: quorum_pb2.VoteRequest, _context: RequestContext) -> quorum_pb2.VoteResponse:
        """A voter stands."""
        self._ensure_cluster(request.cluster_id, f"node {request.candidate.node_id}")
        asked = VOTE_REQUEST.from_message(request)
        answer = await self._driver.ask(lambda number: VoteAsked(number, self._now(), asked), VoteAnswer)
        return quorum_pb2.VoteResponse(**VOTE_ANSWER.to_fields(answer))

    async def begin_quorum_epoch(
        self, request: quorum_pb2.BeginQuorumEpochRequest, _context: RequestContext
    ) -> quorum_pb2.LeaderAndEpoch:
        """A node says that it leads."""
        self._ensure_cluster(request.cluster_id, f"node {request.leader_id}")
        self._ensure_meant(request.receiver)
        begin = BEGIN_EPOCH.from_message(request)
        answer = await self._driver.ask(lambda number: BeginEpochAsked(number, self._now(), begin), LeaderAndEpoch)
        return quorum_pb2.LeaderAndEpoch(**LEADER_AND_EPOCH.to_fields(answer))

    async def end_quorum_epoch(
        self, request: quorum_pb2.EndQuorumEpochRequest, _context: RequestContext
    ) -> quorum_pb2.LeaderAndEpoch:
        """A node says that it leads no more."""
        self._ensure_cluster(request.cluster_id, f"node {request.leader_id}")
        self._ensure_meant(request.receiver)
        end = END_EPOCH.from_message(request)
        answer = await self._driver.ask(lambda number: EndEpochAsked(number, self._now(), end), LeaderAndEpoch)
        return quorum_pb2.LeaderAndEpoch(**LEADER_AND_EPOCH.to_fields(answer))

    # --- the log --------------------------------------------------------------------------------------------------

    async def fetch_metadata(
        self, request: quorum_pb2.FetchMetadataRequest, _context: RequestContext
    ) -> quorum_pb2.FetchMetadataResponse:
        """Records from an offset on; waits for news where there are none. Refusals are in the answer's `error`."""
        answer = quorum_pb2.FetchMetadataResponse(cluster_id=self._cluster_id() or "")
        try:
            is_empty = request.fetch_offset == request.durable_offset == 0
            self._ensure_cluster(request.cluster_id, f"node {request.node_id}", may_be_none=is_empty)
            self._ensure_meant(request.receiver)
            await self._fill(request, answer)
        except TidelogError as error:
            answer.Clear()
            answer.cluster_id = self._cluster_id() or ""
            answer.error.CopyFrom(status.to_proto(self._with_leader(error)))
        answer.leader_id = self._view.leader_id
        answer.leader_epoch = max(0, self._view.leader_epoch)
        return answer

    async def fetch_snapshot(
        self, request: quorum_pb2.FetchSnapshotRequest, _context: RequestContext
    ) -> quorum_pb2.FetchSnapshotResponse:
        """A piece of a snapshot. Refusals are in the answer's `error`."""
        answer = quorum_pb2.FetchSnapshotResponse()
        try:
            self._ensure_cluster(request.cluster_id, f"node {request.replica.node_id}")
            self._ensure_meant(request.receiver)
            self._ensure_leading()
            wanted = min(request.max_bytes, SNAPSHOT_BYTES_MAX)
            asker, epoch = key_from_proto(request.replica), epoch_of(request.current_leader_epoch, NO_LEADER_EPOCH)
            self._driver.post(SnapshotAsked(self._now(), asker, epoch))
            snapshot = SNAPSHOT_ID.from_message(request.snapshot)
            answer.size, answer.data = self._metadata.read_snapshot(snapshot, request.position, wanted)
        except TidelogError as error:
            answer.error.CopyFrom(status.to_proto(self._with_leader(error)))
        answer.leader_id = self._view.leader_id
        answer.leader_epoch = max(0, self._view.leader_epoch)
        return answer

    def _ensure_cluster(self, asked_by: str, who: str, *, may_be_none: bool = False) -> None:
        if not asked_by and not may_be_none:
            raise InvalidRequest(
                f"{who} does not say of which cluster it is: only an empty directory may fetch without"
            )
        cluster_id = self._cluster_id()
        if asked_by and cluster_id and asked_by != cluster_id:
            raise InconsistentClusterId(
                f"{who} belongs to cluster {asked_by}, node {self._view.node_id} to {cluster_id}: check "
                "controller.quorum.bootstrap.servers"
            )

    def _ensure_meant(self, receiver: quorum_pb2.ReplicaKey) -> None:
        """A voter set, or an address, may be an old one: what is meant for another replica must do nothing here."""
        me = self._driver.me
        if key_from_proto(receiver) != me:
            raise InvalidVoterKey(f"the request is meant for {key_from_proto(receiver)}, this is {me}: ask for its key")

    def _ensure_leading(self, epoch: LeaderEpoch | None = None) -> None:
        """In that epoch still: the log may be another since then."""
        if not self._view.leads or epoch not in (None, self._view.leader_epoch):
            raise NotLeaderOrFollower(f"node {self._view.node_id} does not lead the metadata quorum")

    def _with_leader(self, error: TidelogError) -> TidelogError:
        if isinstance(error, NotLeaderOrFollower):
            return NotLeaderOrFollower(error.message, leader=self._view.address())
        return error

    async def _fill(self, request: quorum_pb2.FetchMetadataRequest, answer: quorum_pb2.FetchMetadataResponse) -> None:
        log = self._metadata.log
        fetch = fetch_from_proto(request)
        verdict = await self._driver.ask(lambda number: Fetched(number, self._now(), fetch), object)
        epoch = self._view.leader_epoch if fetch.epoch == NO_LEADER_EPOCH else fetch.epoch
        self._ensure_leading(epoch)  # the answer names the leader of now, and the verdict was of a moment ago
        match verdict:
            case BelowLogStart(snapshot):
                answer.snapshot.CopyFrom(quorum_pb2.SnapshotId(**SNAPSHOT_ID.to_fields(snapshot)))
            case LogsDiverge(end):
                answer.diverging.CopyFrom(common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset))
            case FetchAgreed(is_voter):
                await self._wait(request, epoch, is_voter)
                self._ensure_leading(epoch)
                self._read(request, answer, is_voter)
        answer.high_watermark = log.high_watermark
        answer.log_start_offset = log.log_start_offset

    def _read(
        self, request: quorum_pb2.FetchMetadataRequest, answer: quorum_pb2.FetchMetadataResponse, is_voter: bool
    ) -> None:
        log, offset = self._metadata.log, Offset(request.fetch_offset)
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(f"the metadata log begins at offset {log.log_start_offset}, {offset} was asked for")
        up_to = self._readable(is_voter)
        if offset < up_to:
            read = log.read(offset, min(request.max_bytes, FETCH_BYTES_MAX), up_to=up_to)
            answer.records = bytes(read.records)
            answer.epochs.extend(
                common_pb2.EpochStart(epoch=entry.epoch, start_offset=entry.start_offset) for entry in read.epochs
            )

    def _readable(self, is_voter: bool) -> Offset:
        """Voters get everything, so that it can be committed; all others what is."""
        return self._metadata.end if is_voter else self._metadata.high_watermark

    async def _wait(self, request: quorum_pb2.FetchMetadataRequest, epoch: LeaderEpoch, is_voter: bool) -> None:
        """For records, for a watermark that the asker does not know, or for another leader."""
        if request.max_wait_ms <= 0:
            return
        known = request.high_watermark if request.HasField("high_watermark") else self._metadata.end

        def news() -> bool:
            return (
                request.fetch_offset < self._readable(is_voter)
                or known < self._metadata.high_watermark
                or not self._view.leads
                or self._view.leader_epoch != epoch
            )

        try:
            async with asyncio.timeout(min(request.max_wait_ms, WAIT_MS_MAX) / 1_000):
                await self._metadata.wait_until(news)
        except TimeoutError:
            return

    def _now(self) -> Millis:
        return self._clock.monotonic_ms()
