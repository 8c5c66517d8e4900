"""Handlers of the RemoteLogs service: requests of leaders to the coordinators of remote segments on this node.

Not here: the coordinators (node/coordinators/remote_log_coordinators.py), their decisions
(replication/coordination/tiering/).
"""

from __future__ import annotations

from node.coordinators.remote_log_coordinators import RemoteLogCoordinators
from node.requests.context import RequestContext
from replication.coordination.remote_log_requests import (
    BeginCopy,
    BeginRemoteLog,
    DeleteRemoteSegments,
    FindOrphans,
    FinishCopy,
    FollowRemoteLogs,
    ListRemoteSegments,
    OrphansFound,
    RemoteLogChanged,
    RemoteSegmentsPage,
    RemoteSegmentsPages,
)
from tidelog.errors import InvalidRequest


class RemoteLogHandlers:
    """One method for each API of the RemoteLogs service."""

    def __init__(self, coordinators: RemoteLogCoordinators) -> None:
        self._coordinators = coordinators

    async def begin_remote_log(self, request: BeginRemoteLog, _context: RequestContext) -> RemoteLogChanged:
        """Register a leader epoch."""
        return await self._changed(request)

    async def begin_copy(self, request: BeginCopy, _context: RequestContext) -> RemoteLogChanged:
        """Begin the copy of a segment."""
        return await self._changed(request)

    async def finish_copy(self, request: FinishCopy, _context: RequestContext) -> RemoteLogChanged:
        """Finish the copy of a segment."""
        return await self._changed(request)

    async def delete_remote_segments(self, request: DeleteRemoteSegments, _context: RequestContext) -> RemoteLogChanged:
        """Begin to delete segments."""
        return await self._changed(request)

    async def list_remote_segments(self, request: ListRemoteSegments, _context: RequestContext) -> RemoteSegmentsPage:
        """A page of a partition's segments."""
        page: RemoteSegmentsPage = await self._coordinators.submit(request.key, request)
        return page

    async def find_orphans(self, request: FindOrphans, _context: RequestContext) -> OrphansFound:
        """Which objects belong to no segment. Raises InvalidRequest for none, or of several coordinators."""
        coordinators = self._coordinators
        if len({coordinators.partition_of(each.key) for each in request.objects}) != 1:
            # Without this check, the coordinator would declare objects of another one to be orphans.
            raise InvalidRequest("the objects must be of partitions with one coordinator: ask each one for its own")
        found: OrphansFound = await coordinators.submit(request.objects[0].key, request)
        return found

    async def follow_remote_logs(self, request: FollowRemoteLogs, _context: RequestContext) -> RemoteSegmentsPages:
        """Pages of many partitions."""
        return await self._coordinators.follow(request)

    async def _changed(
        self, request: BeginRemoteLog | BeginCopy | FinishCopy | DeleteRemoteSegments
    ) -> RemoteLogChanged:
        answer: RemoteLogChanged = await self._coordinators.submit(request.leader.key, request)
        return answer
