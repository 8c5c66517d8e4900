"""Consume-transform-produce: each decided record of the source topic has exactly one committed result in the target.

A result names its source in its value: `RESULT`. Invariants: two committed results of one record are a violation at
once; a missing one is a violation when the pipeline has come to the end. Not here: the workers (pipelines.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from testbed.sim.ledger import Ledger, Violation

RESULT: Final = re.compile(rb"of (?P<topic>[\w.-]+)-(?P<partition>\d+)@(?P<offset>\d+) by ")
"""How the value of a result begins: the place and the offset of its source; then its worker and number."""

Source = tuple[str, int]
"""Name of the partition's ledger and the offset."""


def result_of(topic: str, partition: int, offset: int, worker: str) -> bytes:
    """The value of a result. worker: a name that no other attempt has."""
    return f"of {topic}-{partition}@{offset} by {worker}".encode()


def source_of(value: bytes | None) -> Source | None:
    """The source of a result; None if the value is not one."""
    found = RESULT.match(value or b"")
    return None if found is None else (f"{found['topic'].decode()}-{int(found['partition'])}", int(found["offset"]))


class ExactlyOnce:
    """The results of one pipeline. sources, targets: the ledgers of its topics, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._committed: dict[Source, tuple[str, int]] = {}
        self._complete: dict[str, int] = {}  # by source ledger: below this offset no result is missing

    def decided(self, ledger: Ledger, offsets: Iterable[int]) -> None:
        """A marker commits these records of a target partition. Raises Violation."""
        for offset in offsets:
            source = source_of(ledger.values.get(offset))
            if source is None:
                continue
            before = self._committed.setdefault(source, (ledger.name, offset))
            if before != (ledger.name, offset):
                raise Violation(
                    f"{self.name}: {source[0]}@{source[1]} has two committed results, at {before[0]}@{before[1]} and "
                    f"at {ledger.name}@{offset}"
                )

    def missing(self, sources: Iterable[Ledger]) -> list[str]:
        """The first decided record of each source without a committed result, for messages."""
        found = []
        for ledger in sources:
            offset = self._first_missing(ledger)
            if offset is not None:
                found.append(f"{self.name}: {ledger.name}@{offset} has no result")
        return found

    def _first_missing(self, ledger: Ledger) -> int | None:
        stable, start = ledger.stable, self._complete.get(ledger.name, 0)
        while (offset := ledger.passed_over(start, stable, decided=True)) is not None:
            if (ledger.name, offset) not in self._committed:
                break
            start = offset + 1
        self._complete[ledger.name] = start
        return offset

    def judge(self, sources: Iterable[Ledger], targets: Iterable[Ledger]) -> None:
        """Compare the multisets at the end: every decided source once, nothing else. Raises Violation."""
        inputs = list(sources)
        if missing := self.missing(inputs):
            raise Violation(missing[0])
        wanted = Counter(
            (ledger.name, offset)
            for ledger in inputs
            for offset in ledger.values
            if offset < ledger.stable and offset not in ledger.aborted
        )
        found = Counter(
            source
            for ledger in targets
            for offset, value in ledger.values.items()
            if offset not in ledger.aborted and (source := source_of(value)) is not None
        )
        if found != wanted:
            more = sorted((found - wanted).elements())
            raise Violation(f"{self.name}: results of records that are no decided sources: {more[:3]}")
