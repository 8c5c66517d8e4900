"""What each test took: recorded in durations.json, printed at the end of each run.

    make durations        renews the record from a run of both tiers, on two idle cores

A test above a second has an entry of its own; the others of its file are one sum. What a fixture takes that several
tests share counts for the file, not for the test that happens to come first.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pytest

Tier = Literal["test", "deep"]

RECORD: Final = Path(__file__).with_name("durations.json")
WORKERS: Final[Mapping[Tier, int]] = {"test": 3, "deep": 2}
"""Of each tier on two cores (Makefile)."""
BUDGETS: Final[Mapping[Tier, int]] = {"test": 12 * 60, "deep": 40 * 60}
"""Seconds of each tier on two idle cores; CONTRIBUTING.md says the same."""
OWN_ENTRY_S: Final = 1.0
LONG_S: Final = 10.5
"""A test above 10 s says in its docstring why; a run is not exact to less than half a second."""
REST: Final = "(others)"
SHARED: Final = "(shared)"
SLOWEST: Final = 30

DEEP_MARKERS: Final = frozenset({"deep", "containers", "interop", "k8s"})


def tier_of(markers: Iterable[str]) -> Tier:
    return "deep" if DEEP_MARKERS.intersection(markers) else "test"


@dataclass(frozen=True, slots=True)
class Entry:
    seconds: float
    tests: int
    """How many tests took these seconds together."""

    def plus(self, seconds: float, *, tests: int) -> Entry:
        return Entry(self.seconds + seconds, self.tests + tests)


@dataclass(slots=True)
class Durations:
    """Seconds by tier, file and entry: the name of a test with its parameters, REST or SHARED."""

    tiers: dict[Tier, dict[str, dict[str, Entry]]] = field(default_factory=lambda: {"test": {}, "deep": {}})

    def total(self, tier: Tier) -> float:
        return sum(entry.seconds for _, _, entry in self.entries(tier))

    def entries(self, tier: Tier) -> Iterator[tuple[str, str, Entry]]:
        for file, entries in self.tiers[tier].items():
            for name, entry in entries.items():
                yield file, name, entry

    def tests_above(self, seconds: float) -> Iterator[tuple[str, str, Entry]]:
        """The tests with an entry of their own that took more."""
        for tier in self.tiers:
            for file, name, entry in self.entries(tier):
                if name not in (REST, SHARED) and entry.seconds > seconds:
                    yield file, name, entry

    def of(self, nodeid: str) -> float:
        """Seconds that a test is expected to take: its own, the mean of the small ones of its file, or the mean of
        all files."""
        file, _, name = nodeid.partition("::")
        for files in self.tiers.values():
            if entry := files.get(file, {}).get(name):
                return entry.seconds
        for files in self.tiers.values():
            if entry := files.get(file, {}).get(REST):
                return entry.seconds / entry.tests
        return self._mean()

    def _mean(self) -> float:
        every = [entry for tier in self.tiers for _, _, entry in self.entries(tier)]
        return sum(entry.seconds for entry in every) / max(sum(entry.tests for entry in every), 1)

    def renewed(self, run: Durations, existing: Container[str]) -> Durations:
        """With what the run measured, file by file and tier by tier. Files that no longer exist are left out."""
        return Durations(
            {
                tier: {file: entries for file, entries in sorted((files | run.tiers[tier]).items()) if file in existing}
                for tier, files in self.tiers.items()
            }
        )

    def write(self, path: Path = RECORD) -> None:
        """One line for each file, so that a difference can be read."""
        tiers = []
        for tier, files in self.tiers.items():
            lines = []
            for file, entries in files.items():
                values = {name: [round(entry.seconds, 1), entry.tests] for name, entry in entries.items()}
                lines.append(f"  {json.dumps(file)}: {json.dumps(values)}")
            tiers.append(f"{json.dumps(tier)}: {{\n" + ",\n".join(lines) + "\n}")
        path.write_text("{\n" + ",\n".join(tiers) + "\n}\n", encoding="utf-8")


def read(path: Path = RECORD) -> Durations:
    if not path.exists():
        return Durations()
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Durations(
        {
            tier: {
                file: {name: Entry(seconds, tests) for name, (seconds, tests) in entries.items()}
                for file, entries in raw.get(tier, {}).items()
            }
            for tier in BUDGETS
        }
    )


@dataclass(slots=True)
class Measured:
    """What one test took: setup, call and teardown, and the setup of the fixtures that it shares."""

    tier: Tier
    worker: str
    seconds: float = 0.0
    shared: float = 0.0


class Run:
    """The durations of one run, collected from pytest's reports."""

    def __init__(self) -> None:
        self._tests: dict[str, Measured] = {}

    def add(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)  # of pytest-xdist
        worker = node.gateway.id if node is not None else "this process"
        measured = self._tests.setdefault(report.nodeid, Measured(tier_of(report.keywords), worker))
        shared = 0.0
        if report.when == "setup":
            shared = sum(float(str(value)) for name, value in report.user_properties if name == SHARED)
        measured.shared += shared
        measured.seconds += report.duration - shared

    def seconds(self) -> float:
        return sum(each.seconds + each.shared for each in self._tests.values())

    def durations(self) -> Durations:
        """Entries of their own for the long tests, sums for the others."""
        found = Durations()
        for nodeid, measured in self._tests.items():
            file, _, name = nodeid.partition("::")
            entries = found.tiers[measured.tier].setdefault(file, {})
            own = name if measured.seconds > OWN_ENTRY_S else REST
            entries[own] = entries.get(own, Entry(0.0, 0)).plus(measured.seconds, tests=1)
            if measured.shared > 0:
                entries[SHARED] = entries.get(SHARED, Entry(0.0, 0)).plus(measured.shared, tests=0)
        return found

    def summary(self) -> Iterator[str]:
        """The slowest tests with their share of the whole, and the time of each worker."""
        total = self.seconds()
        slowest = sorted(self._tests.items(), key=lambda item: -item[1].seconds)[:SLOWEST]
        share = sum(each.seconds for _, each in slowest) / total
        yield f"the {len(slowest)} slowest of {len(self._tests)} tests: {share:.0%} of {total:.0f} s"
        for nodeid, each in slowest:
            yield f"{each.seconds:7.1f} s {each.seconds / total:6.1%}  {nodeid}"
        workers: dict[str, float] = defaultdict(float)
        for each in self._tests.values():
            workers[each.worker] += each.seconds + each.shared
        yield ", ".join(f"{worker}: {seconds:.0f} s" for worker, seconds in sorted(workers.items()))
