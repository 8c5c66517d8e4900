"""The open heartbeat streams of group members, by which a coordinator sends them new assignments at once.

Invariants: a member has at most one stream; a newer one ends the older. When the coordinator of a group is dropped, the
streams of its members end, and the members look the coordinator up again.
Not here: the messages of a stream (node/requests/group_handlers.py).
"""

from __future__ import annotations

import asyncio

from tidelog.errors import InvalidRequest, NotCoordinator, TidelogError
from tidelog.types import PartitionIndex


class MemberStream:
    """The stream of one member."""

    def __init__(self, partition: PartitionIndex, group_id: str, member_id: str) -> None:
        self.partition, self.group_id, self.member_id = partition, group_id, member_id
        self.turn = asyncio.Lock()
        """Locked from a request to the coordinator until its answer is sent, so that answers keep their order."""
        self._ended: TidelogError | None = None
        self._nudged = False
        self._wake = asyncio.Event()

    def nudge(self) -> None:
        """Let the stream send a heartbeat answer: the member's assignment may have changed."""
        self._nudged = True
        self._wake.set()

    def end(self, error: TidelogError) -> None:
        """End the stream with this error."""
        self._ended = error
        self._wake.set()

    async def wait_nudged(self) -> None:
        """Return once the member was nudged since the last call. Raises the error that ends the stream."""
        while True:
            if self._ended is not None:
                raise self._ended
            if self._nudged:
                self._nudged = False
                return
            self._wake.clear()
            await self._wake.wait()


class MemberStreams:
    """The open streams of a node."""

    def __init__(self) -> None:
        self._by_partition: dict[PartitionIndex, dict[tuple[str, str], MemberStream]] = {}

    def open(self, partition: PartitionIndex, group_id: str, member_id: str) -> MemberStream:
        """A new stream of a member. partition: of the internal topic."""
        streams = self._by_partition.setdefault(partition, {})
        earlier = streams.pop((group_id, member_id), None)
        if earlier is not None:
            earlier.end(
                InvalidRequest(
                    f"member {member_id!r} of group {group_id!r} has opened another stream, which replaces this"
                )
            )
        stream = streams[group_id, member_id] = MemberStream(partition, group_id, member_id)
        return stream

    def close(self, stream: MemberStream) -> None:
        """Forget a stream that has ended."""
        streams = self._by_partition.get(stream.partition, {})
        if streams.get((stream.group_id, stream.member_id)) is stream:
            del streams[stream.group_id, stream.member_id]
            if not streams:
                del self._by_partition[stream.partition]

    def nudge(self, partition: PartitionIndex, group_id: str, member_ids: tuple[str, ...]) -> None:
        """Nudge the streams of these members: their assignments may have changed."""
        streams = self._by_partition.get(partition)
        if not streams:
            return
        for member_id in member_ids:
            stream = streams.get((group_id, member_id))
            if stream is not None:
                stream.nudge()

    def unloaded(self, partition: PartitionIndex) -> None:
        """End the streams of all members whose coordinator was dropped, by its partition."""
        for stream in self._by_partition.pop(partition, {}).values():
            stream.end(
                NotCoordinator(
                    f"this node no longer coordinates group {stream.group_id!r}, or loads its coordinator again: look "
                    "the coordinator up, and send the next heartbeat there"
                )
            )

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))
