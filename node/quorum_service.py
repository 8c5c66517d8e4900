"""The Quorum service: who this node is to the metadata quorum, and its metadata log for those who fetch.

Kept true: only the leader of the quorum serves records; whoever does not vote gets committed ones only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node import status
from node.metadata_log import MetadataLog
from node.quorum_state import QuorumView
from node.transport import Caller
from replication.epochs import divergence
from tidelog.errors import (
    InconsistentClusterId,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
    UnknownLeaderEpoch,
)
from tidelog.types import FolderId, LeaderEpoch, Offset
from tidelog.v1 import common_pb2, quorum_pb2

WAIT_MS_MAX = 10_000
FETCH_BYTES_MAX = 8 << 20


class QuorumService:
    """One method per RPC."""

    def __init__(
        self, folder_id: FolderId, metadata: MetadataLog, view: QuorumView, *, cluster_id: Callable[[], str | None]
    ) -> None:
        """cluster_id: the cluster that this node's folders belong to now, None: none yet."""
        self._folder_id = folder_id
        self._metadata, self._view = metadata, view
        self._cluster_id = cluster_id

    async def introduce(self, _request: quorum_pb2.IntroduceRequest, _caller: Caller) -> quorum_pb2.IntroduceResponse:
        """Who this node is, and which cluster its folder belongs to."""
        return quorum_pb2.IntroduceResponse(
            node_id=self._view.node_id,
            cluster_id=self._cluster_id() or self._metadata.replayed().cluster_id,
            folder_id=self._folder_id.bytes,
            leader_id=self._view.leader_id,
            leader_epoch=self._view.leader_epoch,
        )

    async def fetch_metadata(
        self, request: quorum_pb2.FetchMetadataRequest, _caller: Caller
    ) -> quorum_pb2.FetchMetadataResponse:
        """Records from an offset on; waits for news where there are none. Refusals are in the answer's `error`."""
        answer = quorum_pb2.FetchMetadataResponse(cluster_id=self._cluster_id() or "")
        try:
            self._refuse(request)
            await self._fill(request, answer)
        except TidelogError as error:
            answer.Clear()
            answer.cluster_id = self._cluster_id() or ""
            answer.error.CopyFrom(status.to_proto(error))
        answer.leader_id = self._view.leader_id
        answer.leader_epoch = self._view.leader_epoch
        return answer

    def _refuse(self, request: quorum_pb2.FetchMetadataRequest) -> None:
        cluster_id = self._cluster_id()
        if request.cluster_id and cluster_id and request.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"node {request.node_id} belongs to cluster {request.cluster_id}, node {self._view.node_id} to "
                f"{cluster_id}: check the addresses in [quorum] nodes"
            )
        self._ensure_leading()
        if request.current_leader_epoch > self._view.leader_epoch:
            raise UnknownLeaderEpoch(
                f"node {self._view.node_id} leads the metadata quorum in epoch {self._view.leader_epoch}, the request "
                f"speaks of epoch {request.current_leader_epoch}"
            )

    def _ensure_leading(self) -> None:
        if not self._view.leads:
            raise NotLeaderOrFollower(
                f"node {self._view.node_id} does not lead the metadata quorum", leader=self._view.address()
            )

    async def _fill(self, request: quorum_pb2.FetchMetadataRequest, answer: quorum_pb2.FetchMetadataResponse) -> None:
        log = self._metadata.log
        offset = Offset(request.fetch_offset)
        end = divergence(
            log.epoch_entries(),
            log.log_start_offset,
            log.log_end_offset,
            offset,
            LeaderEpoch(request.last_fetched_epoch),
        )
        if end is not None:
            answer.diverging.CopyFrom(common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset))
        elif offset < log.log_start_offset:
            raise OffsetOutOfRange(f"the metadata log begins at offset {log.log_start_offset}, {offset} was asked for")
        else:
            await self._wait(request, offset)
            self._ensure_leading()
            up_to = self._readable(request)
            if offset < up_to:
                read = log.read(offset, min(request.max_bytes, FETCH_BYTES_MAX), up_to=up_to)
                answer.records = bytes(read.records)
                answer.epochs.extend(
                    common_pb2.EpochStart(epoch=entry.epoch, start_offset=entry.start_offset) for entry in read.epochs
                )
        answer.high_watermark = log.high_watermark
        answer.log_start_offset = log.log_start_offset

    def _readable(self, request: quorum_pb2.FetchMetadataRequest) -> Offset:
        """Voters get everything, so that it can be committed; all others what is."""
        votes = any(
            voter.node_id == request.node_id and voter.folder_id.bytes == request.folder_id
            for voter in self._metadata.image.voters
        )
        return self._metadata.end if votes else self._metadata.high_watermark

    async def _wait(self, request: quorum_pb2.FetchMetadataRequest, offset: Offset) -> None:
        if request.max_wait_ms <= 0:
            return
        try:
            async with asyncio.timeout(min(request.max_wait_ms, WAIT_MS_MAX) / 1_000):
                await self._metadata.wait_until(lambda: offset < self._readable(request) or not self._view.leads)
        except TimeoutError:
            return
