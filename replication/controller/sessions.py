"""Which nodes have been heard of lately: the controller's sessions.

Kept true: a session ends only after `session_ms` of silence during which the controller was listening. A controller
that stood still itself (paused, or starved) does not count that time against anybody.
Left to others: what the end of a session means (replication/controller/controller.py).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.types import Millis, NodeId


class Sessions:
    """Last contact with each node, in monotonic milliseconds. `session_ms` is a session's length."""

    def __init__(self, session_ms: int) -> None:
        assert session_ms > 0
        self._session_ms = session_ms
        self._heard: dict[NodeId, Millis] = {}
        self._now = Millis(0)
        self._since: Millis | None = None

    def begin(self, at: Millis, nodes: Collection[NodeId]) -> None:
        """A new controller. Whom it has listened to before keeps what is left of the session; the others have been
        silent for as long as it has listened, a session at most."""
        self.advance(at)
        since = at if self._since is None else self._since
        self._heard = {node: self._heard.get(node, since) for node in nodes}

    def advance(self, at: Millis) -> None:
        """It is `at` now. A gap of half a session since the last event means that nobody listened meanwhile."""
        if self._since is None:
            self._since = self._now = at
        gap = at - self._now
        if gap >= self._session_ms // 2:
            self._heard = {node: Millis(heard + gap) for node, heard in self._heard.items()}
            self._since = Millis(self._since + gap)
        self._now = max(self._now, at)

    def heard(self, node_id: NodeId) -> None:
        """A sign of life, now."""
        self._heard[node_id] = self._now

    def forget(self, node_id: NodeId) -> None:
        """The node said good-bye, or is known to be dead: its session is over."""
        self._heard.pop(node_id, None)

    def alive(self, node_id: NodeId) -> bool:
        """Is the node's session still running?"""
        heard = self._heard.get(node_id)
        return heard is not None and self._now - heard < self._session_ms

    def remaining_ms(self, node_id: NodeId) -> int:
        """How much silence ends the node's session."""
        heard = self._heard.get(node_id)
        return 0 if heard is None else max(0, heard + self._session_ms - self._now)

    def take_ended(self) -> list[NodeId]:
        """Nodes whose session has ended since the last call, by number; they are forgotten."""
        ended = sorted(node for node in self._heard if not self.alive(node))
        for node in ended:
            del self._heard[node]
        return ended
