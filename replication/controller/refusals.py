"""Reports that a node's address refuses connections: no process listens there, so the registered process has ended.

Invariants:
  1. A process counts as ended only by the reports of `WITNESSES` other nodes, each at most `REPORT_MS` old: one bad
     link or one faulty node does not suffice.
  2. A report names a registration by its node epoch and says nothing about another registration of that node.
  3. A heartbeat of the process removes the reports about it. If it was fenced by such reports, only a heartbeat that
     was sent after the process had applied the fencing ends it; an earlier one arrives late. From then on reports about
     the same registration do not count: something between the nodes refuses the connections in its name.
  4. While a witness is missing, other nodes are asked to probe, one at a time.

Not here: probing addresses (node/controller/process_watch.py), the consequences (controller.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidelog.types import Millis, NodeEpoch, NodeId
from tidelog.values import dataclass

WITNESSES: Final = 2
"""Different nodes that must report a refused connection; the node of the active controller counts as one."""

REPORT_MS: Final = 1_000
"""Validity of a report. A witness repeats it with each heartbeat (400 ms by default) while connections are refused."""

ASK_MS: Final = 100
"""Pause between two requests to probe a node. A bad link may last, and must not cost probes of the whole cluster."""


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A registration whose address refused a connection."""

    node_id: NodeId
    node_epoch: NodeEpoch


class Refusals:
    """The reports that one active controller has received."""

    def __init__(self) -> None:
        self._reports: dict[RefusedNode, dict[NodeId, Millis]] = {}
        self._fenced: set[RefusedNode] = set()
        self._contradicted: set[RefusedNode] = set()
        self._asked_at: dict[NodeId, Millis] = {}

    def report(self, witness: NodeId, refused: Collection[RefusedNode], at: Millis) -> None:
        """Replace the reports of `witness` by those of its newest heartbeat."""
        for reports in self._reports.values():
            reports.pop(witness, None)
        for each in refused:
            self._reports.setdefault(each, {})[witness] = at
        self._reports = {each: reports for each, reports in self._reports.items() if reports}

    def is_confirmed(self, node: RefusedNode, at: Millis) -> bool:
        """Whether enough witnesses report this registration, and no heartbeat has contradicted such reports."""
        return node not in self._contradicted and len(self._witnesses(node, at)) >= WITNESSES

    def _witnesses(self, node: RefusedNode, at: Millis) -> list[NodeId]:
        return [witness for witness, since in self._reports.get(node, {}).items() if at - since <= REPORT_MS]

    def ask(self, helper: NodeId, at: Millis) -> tuple[NodeId, ...]:
        """The nodes that `helper` is to probe: others report them, and a witness is missing. It may have no connections
        to them that break."""
        asked = []
        for node in self._reports:
            witnesses = self._witnesses(node, at)
            if node in self._contradicted or not witnesses or helper in (node.node_id, *witnesses):
                continue
            last = self._asked_at.get(node.node_id)
            if last is None or at - last >= ASK_MS:
                self._asked_at[node.node_id] = at
                asked.append(node.node_id)
        return tuple(asked)

    def fenced(self, node: RefusedNode) -> None:
        """The registration is fenced by the reports about it."""
        self._fenced.add(node)
        self._reports.pop(node, None)

    def heard_from(self, node: RefusedNode, *, informed: bool) -> bool:
        """The process of this registration sent a heartbeat. informed: after it had applied its fencing. Returns True
        if that contradicts its fencing."""
        self._reports.pop(node, None)
        if node not in self._fenced or not informed:
            return False
        self._fenced.remove(node)
        self._contradicted.add(node)
        return True

    def forget(self, node_id: NodeId) -> None:
        """The node registered another process."""
        self._reports = {each: reports for each, reports in self._reports.items() if each.node_id != node_id}
        self._fenced = {each for each in self._fenced if each.node_id != node_id}
        self._contradicted = {each for each in self._contradicted if each.node_id != node_id}
        self._asked_at.pop(node_id, None)
