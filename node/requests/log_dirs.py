"""The log directories of the cluster's nodes as these see them: their room, and damaged logs, which no metadata tell.

Kept true: an operator's question waits for no node longer than `ASK_MS`; one that does not answer is named, since its
disks may be full or damaged. Fenced nodes are not asked: the metadata tell of those.
Left to others: when a directory refuses appends (storage/directory/reserve.py), the words for people
(replication/controller/explain.py).
Source: Kafka's DescribeLogDirs (KIP-113, KIP-827).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from node.config import CLIENT_LISTENER
from node.requests.types.administration import (
    ADMIN_DESCRIBE_LOG_DIRS,
    DamagedLog,
    DescribeLogDirsRequest,
    LogDirState,
)
from node.runtime.peers import Peers
from replication.controller.explain import OnDisks
from replication.controller.image import ClusterImage
from storage.directory.log_directory import LogDirectory
from tidelog.errors import TidelogError
from tidelog.types import DirectoryId, NodeId, PartitionKey

_log = logging.getLogger("node.log_dirs")

ASK_MS: Final = 1_000
"""How long a node may take to tell of its directories: a person waits."""


class LogDirs:
    """One node's own directories, and its questions about those of others."""

    def __init__(self, me: NodeId, directories: Sequence[LogDirectory], peers: Peers) -> None:
        self._me, self._directories, self._peers = me, tuple(directories), peers

    def own(self) -> tuple[LogDirState, ...]:
        """This node's, in the order of its configuration."""
        return tuple(
            LogDirState(
                directory_id=directory.directory_id,
                path=directory.path,
                offline=directory.offline or "",
                usable_bytes=directory.reserve.free,
                reserve_bytes=directory.reserve.wanted,
                refusal=directory.reserve.refusal or "",
                damaged=tuple(DamagedLog(key, str(damage)) for key, damage in sorted(directory.damaged_logs().items())),
            )
            for directory in self._directories
        )

    async def look(self, image: ClusterImage, nodes: Iterable[NodeId]) -> OnDisks:
        """What these nodes say of their directories and logs. All are asked at once."""
        full: dict[DirectoryId, str] = {}
        damaged: dict[tuple[NodeId, PartitionKey], str] = {}
        unanswered: list[NodeId] = []
        async with asyncio.TaskGroup() as asking:
            for node_id in sorted(set(nodes)):
                asking.create_task(self._note(image, node_id, full, damaged, unanswered))
        return OnDisks(full, damaged, tuple(sorted(unanswered)))

    async def _note(
        self,
        image: ClusterImage,
        node_id: NodeId,
        full: dict[DirectoryId, str],
        damaged: dict[tuple[NodeId, PartitionKey], str],
        unanswered: list[NodeId],
    ) -> None:
        answer = self.own() if node_id == self._me else await self._ask(image, node_id)
        if answer is None:
            unanswered.append(node_id)
            return
        for told in answer:
            if told.refusal:
                full[told.directory_id] = told.refusal
            for log in told.damaged:
                damaged[node_id, log.key] = log.lost

    async def _ask(self, image: ClusterImage, node_id: NodeId) -> Sequence[LogDirState] | None:
        """Its directories, none of a node that is fenced; None where it does not answer."""
        node = image.nodes.get(node_id)
        endpoint = None if node is None or node.fenced else node.listeners.get(CLIENT_LISTENER)
        if endpoint is None:
            return ()
        try:
            answer = await self._peers.call(
                endpoint, ADMIN_DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(), timeout_ms=ASK_MS
            )
        except TidelogError as error:
            _log.info("node %d does not tell of its log directories: %s", node_id, error.message)
            return None
        return answer.log_dirs
