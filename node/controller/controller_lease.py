"""The lease of this node: until when no other node can have been elected in its place because it was silent.

The controller fences a node, and elects other leaders, once it has received no heartbeat for a session. The
acknowledgement of a heartbeat says how much of that is certain (`lease_ms`), and the node counts it from when it sent
the heartbeat. The lease of a node that is cut off ends before another node leads its partitions.

Not covered: leaderships that move while the node is heard from (reassignments, preferred leaders), of which it learns
with the metadata log; a new controller that has not received the heartbeats which the earlier one acknowledged; a node
whose address refuses connections while its process runs. In the last two cases the lease bounds the time.
"""

from __future__ import annotations

from tidelog.clock import Clock
from tidelog.types import Millis


class ControllerLease:
    """The lease of one incarnation of a node. Without an acknowledged heartbeat there is none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_at = self._until = clock.monotonic_ms()

    def renew(self, sent_at: Millis, lease_ms: Millis) -> None:
        """The active controller has acknowledged a heartbeat. sent_at: monotonic time before it was sent."""
        self._sent_at, self._until = sent_at, Millis(sent_at + lease_ms)

    def ended_ms(self) -> int:
        """For how long there has been no lease; 0 while there is one."""
        return max(0, self._clock.monotonic_ms() - self._until)

    def why_ended(self) -> str:
        """Why there is no lease now, as text; empty while there is one."""
        now = self._clock.monotonic_ms()
        if now < self._until:
            return ""
        return (
            f"the controller has acknowledged no heartbeat of this node for {now - self._sent_at} ms, or could not "
            "confirm that it leads: another node may be the leader"
        )
