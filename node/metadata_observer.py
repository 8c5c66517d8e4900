"""Every node that does not vote: fetches the metadata log from the quorum's leader into a replica of its own.

Kept true:
  1. Only the log of one cluster is ever appended: a folder that belongs to none is given to the leader's first.
  2. Answers of an older quorum epoch than the newest heard of are not used.
  3. Where the logs disagree the replica is cut by epoch, never below what is committed.

Left to others: what is done with the images (metadata_log.py's subscribers).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from node import methods, status
from node.clock import Clock
from node.metadata_log import MetadataLog
from node.quorum_state import QuorumView
from node.transport import Transport
from replication.epochs import common_end
from tidelog.errors import (
    ConnectionLost,
    CorruptLog,
    InconsistentClusterId,
    InvalidConfig,
    KafkaStorageError,
    RequestTimedOut,
    TidelogError,
    UnsupportedVersion,
)
from tidelog.types import Endpoint, EpochEnd, EpochStart, FolderId, LeaderEpoch, NodeId, Offset
from tidelog.v1 import quorum_pb2

_log = logging.getLogger("node.metadata")

FETCH_BYTES: Final = 1 << 20
FETCH_WAIT_MS: Final = 500
ANSWER_MS: Final = 1_000
"""Beyond its wait an answer may take so long: the quorum fetch timeout of the design."""

RETRY_MS: Final = 100
"""Pause after every address has been tried, and up to as much again by chance."""

FATAL: Final = (CorruptLog, InconsistentClusterId, InvalidConfig, KafkaStorageError, UnsupportedVersion)
"""What of this node's own no other leader and no waiting mends."""

Adopt = Callable[[str], Awaitable[None]]
"""Lets all data folders of this node belong to the cluster, durably."""


class MetadataObserver:
    """Fetches from whoever leads, for as long as it runs."""

    def __init__(
        self,
        node_id: NodeId,
        folder_id: FolderId,
        nodes: Sequence[Endpoint],
        metadata: MetadataLog,
        view: QuorumView,
        *,
        listener: str,
        adopt: Adopt,
        clock: Clock,
        rng: random.Random,
        transport: Transport,
    ) -> None:
        """nodes: addresses of the initial list. listener: by which nodes reach each other."""
        self._me, self._folder_id = node_id, folder_id
        self._nodes = tuple(nodes)
        self._metadata, self._view = metadata, view
        self._listener = listener
        self._adopt = adopt
        self._clock, self._rng, self._transport = clock, rng, transport
        self._in_touch = False
        self._said: set[str] = set()

    async def run(self, cluster_id: str | None) -> None:
        """Keep the replica up to date. cluster_id: the cluster of this node's folders, None: none yet.

        Raises what cannot be mended by asking again: see FATAL.
        """
        self._cluster_id = cluster_id or ""
        while True:
            for target in self._targets():
                await self._fetch_from(target)
            await self._clock.sleep_ms(RETRY_MS + self._rng.randrange(RETRY_MS))

    def _targets(self) -> list[Endpoint]:
        """Where the leader may be: the address given last, the voters' as the log has them, the initial list."""
        image = self._metadata.replayed()
        found = [self._view.endpoint]
        for voter in image.voters:
            node = image.nodes.get(voter.node_id)
            found += [voter.listeners.get(self._listener), node.listeners.get(self._listener) if node else None]
        return list(dict.fromkeys(endpoint for endpoint in (*found, *self._nodes) if endpoint is not None))

    async def _fetch_from(self, target: Endpoint) -> None:
        """Fetch for as long as this target answers as the leader."""
        self._in_touch = False
        while True:
            try:
                answer = await self._transport.call(
                    target,
                    methods.QUORUM_FETCH_METADATA,
                    self._request(),
                    timeout_ms=ANSWER_MS + (FETCH_WAIT_MS if self._in_touch else 0),
                )
                if answer.HasField("error"):
                    raise status.from_proto(answer.error)
            except TidelogError as error:
                self._refused(target, error)
                return
            leader, epoch = NodeId(answer.leader_id), LeaderEpoch(answer.leader_epoch)
            if not self._view.follow(leader, epoch, target):
                self._say(f"node {leader} at {target} led the metadata quorum in epoch {epoch}, which is over")
                return
            try:
                await self._take(target, answer)
            except FATAL:
                raise
            except TidelogError as error:
                self._say(f"metadata from {target} cannot be taken: {error.message}")
                return

    def _request(self) -> quorum_pb2.FetchMetadataRequest:
        log = self._metadata.log
        return quorum_pb2.FetchMetadataRequest(
            cluster_id=self._cluster_id,
            node_id=self._me,
            folder_id=self._folder_id.bytes,
            current_leader_epoch=self._view.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.last_epoch,
            max_wait_ms=FETCH_WAIT_MS if self._in_touch else 0,  # the first answer brings the watermark at once
            max_bytes=FETCH_BYTES,
        )

    def _refused(self, target: Endpoint, error: TidelogError) -> None:
        """This target does not lead, or does not answer; it may know who leads."""
        self._say(f"metadata cannot be fetched from {target}: {error.message}")
        hint = error.leader
        if hint is None or hint.endpoint == target:
            silent = isinstance(error, RequestTimedOut | ConnectionLost)  # it may lead on: heartbeats still go there
            if target == self._view.endpoint and not silent:
                self._view.forget()
        elif hint.leader_epoch > self._view.leader_epoch:
            self._view.follow(hint.node_id, hint.leader_epoch, hint.endpoint)

    async def _take(self, target: Endpoint, answer: quorum_pb2.FetchMetadataResponse) -> None:
        if answer.cluster_id != self._cluster_id:
            await self._join(answer.cluster_id)
        if answer.HasField("diverging"):
            self._cut(EpochEnd(LeaderEpoch(answer.diverging.epoch), Offset(answer.diverging.end_offset)))
            return
        if answer.records:
            epochs = [EpochStart(LeaderEpoch(entry.epoch), Offset(entry.start_offset)) for entry in answer.epochs]
            self._metadata.append_fetched(answer.records, epochs)
        self._metadata.commit(Offset(min(answer.high_watermark, self._metadata.end)))
        if not self._in_touch:
            _log.info("fetches metadata from node %d at %s", answer.leader_id, target)
        self._in_touch = True
        self._said.clear()

    async def _join(self, cluster_id: str) -> None:
        if self._cluster_id:
            raise InconsistentClusterId(
                f"node {self._me} belongs to cluster {self._cluster_id}, the leader of the metadata quorum to "
                f"{cluster_id}: check the addresses in [quorum] nodes"
            )
        await self._adopt(cluster_id)
        self._cluster_id = cluster_id
        _log.info("joined cluster %s", cluster_id)

    def _cut(self, end: EpochEnd) -> None:
        log = self._metadata.log
        offset = common_end(log.epoch_entries(), log.log_end_offset, end)
        offset = log.log_start_offset if offset is None else offset
        _log.info("metadata log cut from %d to %d, where it agrees with the leader's", log.log_end_offset, offset)
        self._metadata.truncate_to(offset)

    def _say(self, text: str) -> None:
        """Once, until metadata come again."""
        if text not in self._said:
            self._said.add(text)
            _log.info("%s", text)
