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
    FinishCopy,
    ListRemoteSegments,
    RemoteLogChanged,
    RemoteSegmentsPage,
)


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

    async def _changed(
        self, request: BeginRemoteLog | BeginCopy | FinishCopy | DeleteRemoteSegments
    ) -> RemoteLogChanged:
        answer: RemoteLogChanged = await self._coordinators.submit(request.leader.key, request)
        return answer
