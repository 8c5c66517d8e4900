"""Sessions of nodes with the controller: when each node was last heard from.

Invariant: a session ends only after `session_ms` without contact during which the controller was running. Time in which
the controller itself was paused or starved does not count.
Not here: the consequences of an ended session (replication/controller/controller.py).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.types import Millis, NodeId


def lease_ms(session_ms: int, heartbeat_ms: int, unconfirmed_ms: int) -> Millis:
    """The lease of a node: milliseconds, counted from when it sent the heartbeat that is acknowledged now, in which no
    controller fences it for silence. 0: no lease.

    unconfirmed_ms: since a majority of the voters last confirmed that the controller which acknowledges leads. Another
    one may have been elected since, and its session of the node may have begun with a heartbeat that it received as a
    voter, `heartbeat_ms` before the last one here. A twentieth of the session is for delays and the drift of clocks.
    """
    return Millis(max(0, session_ms - session_ms // 20 - heartbeat_ms - unconfirmed_ms))


class Sessions:
    """Last contact with each node, in monotonic milliseconds. `session_ms`: length of a session."""

    def __init__(self, session_ms: int) -> None:
        assert session_ms > 0
        self._session_ms = session_ms
        self._last_contact: dict[NodeId, Millis] = {}
        self._now = Millis(0)
        self._since: Millis | None = None

    def begin(self, at: Millis, nodes: Collection[NodeId]) -> None:
        """Start as a new active controller. A node heard from before keeps the rest of its session. Any other counts as
        silent since this process began to listen, at most one session."""
        self.advance(at)
        since = at if self._since is None else self._since
        self._last_contact = {node: self._last_contact.get(node, since) for node in nodes}

    def advance(self, at: Millis) -> None:
        """Set the time to `at`. After a gap of half a session or more since the last event the controller was not
        listening, and the gap does not count."""
        if self._since is None:
            self._since = self._now = at
        gap = at - self._now
        if gap >= self._session_ms // 2:
            self._last_contact = {node: Millis(last + gap) for node, last in self._last_contact.items()}
            self._since = Millis(self._since + gap)
        self._now = max(self._now, at)

    def renew(self, node_id: NodeId) -> None:
        """The node was in contact just now."""
        self._last_contact[node_id] = self._now

    def forget(self, node_id: NodeId) -> None:
        """End the session: the node was stopped, or is known to be dead."""
        self._last_contact.pop(node_id, None)

    def alive(self, node_id: NodeId) -> bool:
        """Whether the node's session is running."""
        last = self._last_contact.get(node_id)
        return last is not None and self._now - last < self._session_ms

    def remaining_ms(self, node_id: NodeId) -> int:
        """Milliseconds without contact after which the node's session ends."""
        last = self._last_contact.get(node_id)
        return 0 if last is None else max(0, last + self._session_ms - self._now)

    def take_ended(self) -> list[NodeId]:
        """Remove and return the nodes whose sessions have ended, by id."""
        ended = sorted(node for node in self._last_contact if not self.alive(node))
        for node in ended:
            del self._last_contact[node]
        return ended
