"""The handler of DescribeRemoteLogs: readers that take history from the object store themselves learn which objects.

Not here: which segments a leader believes (replication/coordination/tiering/remote_log.py), such a reader
(tidelog/spark/ranges/).
"""

from __future__ import annotations

from typing import Final

from node.api.remote_ranges import (
    DescribedRemoteLog,
    DescribeRemoteLogsAnswer,
    DescribeRemoteLogsRequest,
    RemoteLogQuestion,
)
from node.api.table import DATA_DESCRIBE_REMOTE_LOGS
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.requests.permitted import locate_permitted
from node.runtime.limits import ensure_few
from replication.coordination.coordinator_machine import Instant
from tidelog.clock import Clock
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.tiering.remote_segment import LostRemoteSegment, RemoteSegment

SEGMENTS_MAX: Final = 1_000
"""In one answer, for all of its partitions: some 300 kB."""
SEGMENTS_PER_TURN: Final = 100
"""Decoded in one turn of the loop: some ms."""


class RemoteRangeHandlers:
    """The handler."""

    def __init__(self, manager: ReplicaManager, clock: Clock) -> None:
        self._manager, self._clock = manager, clock

    async def describe_remote_logs(
        self, request: DescribeRemoteLogsRequest, context: RequestContext
    ) -> DescribeRemoteLogsAnswer:
        """State the remote segments of each range, as the leader believes them. A partition that cannot be answered
        gets its error."""
        ensure_few(request.partitions, "partitions")
        described, left = [], SEGMENTS_MAX
        for question in request.partitions:
            answer = await self._describe(question, left, context)
            left -= len(answer.segments) + len(answer.lost)
            described.append(answer)
        return DescribeRemoteLogsAnswer(tuple(described))

    async def _describe(self, question: RemoteLogQuestion, most: int, context: RequestContext) -> DescribedRemoteLog:
        replica: Replica | None = None
        segments: list[RemoteSegment] = []
        lost: list[LostRemoteSegment] = []
        offset, url, progress = question.start_offset, "", None
        try:
            if not 0 <= question.start_offset <= question.end_offset:
                raise InvalidRequest(
                    f"the range from offset {question.start_offset} to {question.end_offset} cannot be: it must begin "
                    "at 0 or above, and not end before"
                )
            replica = self._locate(question, context)
            while offset < question.end_offset and len(segments) + len(lost) < most:
                found = replica.remote_range(
                    offset,
                    question.end_offset,
                    min(SEGMENTS_PER_TURN, most - len(segments) - len(lost)),
                    question.current_leader_epoch,
                    lost_at=Instant(self._clock.monotonic_ms(), self._clock.wall_ms()) if question.lost else None,
                )
                segments += found.segments
                lost += found.lost
                progress = found.progress
                offset, url = found.next_offset, found.store_url
                await self._clock.sleep_ms(0)
                replica = self._locate(question, context)  # it may be another one after the pause
        except TidelogError as error:
            refused = self._manager.registry.with_leader(error, replica, context.listener)
            return DescribedRemoteLog(question.topic_id, question.partition, refused)
        return DescribedRemoteLog(
            question.topic_id, question.partition, None, tuple(segments), offset, url, tuple(lost), progress
        )

    def _locate(self, question: RemoteLogQuestion, context: RequestContext) -> Replica:
        return locate_permitted(
            self._manager, context, DATA_DESCRIBE_REMOTE_LOGS, question.topic_id, question.partition
        )
