"""Which worker runs which test: all are busy until the end.

The first worker begins with the tests of Spark and those marked `alone`, one after the other, then the other files that
start processes; the others begin with the pure tests, which need the processor while processes wait. A worker that has
finished its own share takes what is left of the other's, except that Spark and `alone` stay on one worker.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final, cast

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import durations

ROOT: Final = Path(__file__).resolve().parent.parent
ONE_AT_A_TIME: Final = frozenset({"alone", "containers", "interop", "k8s", "spark"})
"""One Spark session for a run, and no other processes beside a measurement of some."""
PROCESSES: Final = "integration"


class Kind(Enum):
    ONE_AT_A_TIME = "one at a time"
    PROCESSES = "processes"
    PURE = "pure"


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that one worker runs in one go."""

    name: str
    kind: Kind
    seconds: float


@dataclass(frozen=True, slots=True)
class MarkersOf:
    """The markers of a test file: of all its tests, and of each function."""

    module: frozenset[str]
    functions: dict[str, frozenset[str]]

    def of(self, function: str) -> frozenset[str]:
        return self.module | self.functions.get(function, frozenset())


@cache
def markers_in(file: str) -> MarkersOf:
    """Read from the source: the controller of pytest-xdist imports no test."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    module: set[str] = set()
    functions: dict[str, frozenset[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            module.update(_marker_names(node.value))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            functions[node.name] = frozenset(name for each in node.decorator_list for name in _marker_names(each))
    return MarkersOf(frozenset(module), functions)


def _marker_names(expression: ast.expr) -> Iterator[str]:
    """The NAME of each pytest.mark.NAME, except in the parameters of a test: these marks are of some of its cases."""
    if isinstance(expression, ast.Call):
        expression = expression.func
    if isinstance(expression, ast.List | ast.Tuple):
        for element in expression.elts:
            yield from _marker_names(element)
    elif isinstance(expression, ast.Attribute) and ast.unparse(expression.value) == "pytest.mark":
        yield expression.attr


def unit_of(nodeid: str) -> tuple[str, Kind]:
    """The name of the unit of a test, and its kind. Tests of one file share clusters, which one worker starts."""
    file, _, name = nodeid.partition("::")
    markers = markers_in(file).of(name.split("::")[0].split("[")[0])
    if markers & ONE_AT_A_TIME:
        return "one at a time", Kind.ONE_AT_A_TIME
    if PROCESSES in markers:
        return file, Kind.PROCESSES
    return nodeid, Kind.PURE


def units_of(nodeids: Iterable[str], seconds_of: Callable[[str], float]) -> list[Unit]:
    """The units of a run, each kind with its longest first: what is left at the end is short. Short pure tests stay in
    their order, in which modules follow each other."""
    seconds: dict[tuple[str, Kind], float] = {}
    for nodeid in nodeids:
        unit = unit_of(nodeid)
        seconds[unit] = seconds.get(unit, 0.0) + seconds_of(nodeid)
    units = [Unit(name, kind, total) for (name, kind), total in seconds.items()]
    order = list(Kind)
    return sorted(
        units,
        key=lambda unit: (
            order.index(unit.kind),
            -unit.seconds if unit.kind is not Kind.PURE or unit.seconds > durations.OWN_ENTRY_S else 0.0,
        ),
    )


class Balance:
    """Hands out the units of a run: `next_of` is asked whenever a worker has nothing left to do."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._names: dict[Kind, deque[str]] = {kind: deque() for kind in Kind}
        for unit in units:
            self._names[unit.kind].append(unit.name)

    def next_of(self, *, is_first: bool) -> str | None:
        """The next unit of a worker; the first worker runs what must not run twice at a time."""
        for kind in (Kind.ONE_AT_A_TIME, Kind.PROCESSES, Kind.PURE) if is_first else (Kind.PURE, Kind.PROCESSES):
            if names := self._names[kind]:
                return names.popleft()
        return None


class BalancedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """The scheduler of pytest-xdist that gives away scopes, with units as scopes and an order for each worker."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._balance: Balance | None = None
        self._crashed: set[str] = set()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)[0]

    def remove_node(self, node: WorkerController) -> str | None:
        # pytest-xdist would run the test again that ended its worker, which may take its whole time limit a second
        # time: it counts as failed already.
        pending = (nodeid for unit in self.assigned_work[node].values() for nodeid, done in unit.items() if not done)
        if crashed := next(pending, None):
            self._crashed.add(crashed)
        return cast("str | None", super().remove_node(node))

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._balance is None:
            self._balance = Balance(units_of(self.collection, durations.read().of))
        while self.workqueue:
            name = self._balance.next_of(is_first=node is self.nodes[0])
            if name is None:  # a worker that crashed has left units that were handed out before
                name = next(iter(self.workqueue))
            unit = self.workqueue[name]
            unit.update((nodeid, True) for nodeid in self._crashed & unit.keys())
            if all(unit.values()):
                del self.workqueue[name]
                continue
            self.workqueue.move_to_end(name, last=False)
            super()._assign_work_unit(node)
            return
        node.shutdown()
