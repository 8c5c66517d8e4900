"""The judgement of a run, from what its workers did and saw (history.py). Pure.

The names are those of Jepsen's analyses of Kafka and Redpanda, where these have one. A value is written once: each
producer numbers its records by partition (`worker/partition/number`) and sends none a second time itself. A value of a
transaction begins with the name of the transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.chaos.history import (
    Acked,
    Assigned,
    Begun,
    Committed,
    Committing,
    Event,
    OfWorker,
    Polled,
    Probed,
    Records,
    Refused,
    Replica,
    Step,
    Stored,
    StoredOffsets,
    StoredTopics,
    Topic,
    Transaction,
    Undrained,
)
from tests.chaos.workloads.work import COPIES, KEYS, LATEST, SPARKED
from tests.chaos.workloads.work import LEDGER as SOURCE

Place = tuple[str, int]
"""A topic and a partition."""
AT_WORK_S: Final = 60.0
"""Within it every worker must succeed again once all faults have ended."""
CHECKS: Final = {
    "lost": "an acknowledged record is not at the offset that the acknowledgement named, nor a later one of its key",
    "duplicate": "a record that was sent once is stored twice",
    "reordered": "records of one producer in one partition are stored in another order than they were sent",
    "phantom": "a record is read that nobody has sent, or whose sender was told that it is not written",
    "diverged": "a consumer got another value at an offset than is stored there",
    "replicas differ": "an in-sync replica lacks a record, has another one, or has a damaged log",
    "aborted read": "a record of an aborted transaction is read with read_committed",
    "torn transaction": "some records of a transaction are visible, others are not",
    "copied wrongly": "the pipeline or Spark copied a record twice, or not at all, or one that is not stored",
    "offsets back": "a group continues before an offset that it has committed",
    "skipped": "a group never got a record, or a member continues behind one that it did not get",
    "not monotonic": "a member got an offset again without a new assignment",
    "topics": "a topic that was created is missing, or one that was deleted is there",
    "killed by a probe": "the probes found a node dead that no fault had struck",
    "not at work": "a worker did not succeed again in time after the end of the faults",
}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """When the faults of one round lasted (seconds of the history's clock)."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Silence:
    """How long no acknowledgement came, around one round."""

    name: str
    all_partitions: float
    """The longest time without an acknowledgement of any partition."""
    one_partition: float
    """The same for the partition that waited longest."""


@dataclass
class Evidence:
    """The history, sorted by what it is about."""

    acked: list[Acked] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    members: list[Assigned | Polled] = field(default_factory=list)
    begun: list[Committing] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    topics: list[Topic] = field(default_factory=list)
    stored: dict[Place, Records] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    probed: list[Probed] = field(default_factory=list)
    stored_offsets: list[StoredOffsets] = field(default_factory=list)
    stored_topics: set[str] = field(default_factory=set)
    undrained: list[str] = field(default_factory=list)
    succeeded: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The moments at which each worker made progress; of producers, in each partition."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Evidence:
        found = cls()
        for event in events:
            found.add(event)
        return found

    def add(self, event: Event) -> None:
        match event:
            case Stored():
                self.stored[event.topic, event.partition] = [(offset, value) for offset, value in event.records]
            case Probed():
                self.probed.append(event)
            case Replica():
                self.replicas.append(event)
            case StoredOffsets():
                self.stored_offsets.append(event)
            case StoredTopics():
                self.stored_topics = set(event.names)
            case Undrained():
                self.undrained.append(event.what)
            case _:
                self._add_of_worker(event)
                if _is_success(event):
                    self.succeeded[_duty(event)].append(event.t)

    def is_at_work(self, since: float) -> bool:
        """Whether every worker has succeeded after this moment."""
        return all(moments and moments[-1] > since for moments in self.succeeded.values())

    def _add_of_worker(self, event: OfWorker) -> None:
        match event:
            case Begun():
                # A worker that never succeeds must be found too: it has no other event.
                places: Sequence[Place | None] = event.places or [None]
                for place in places:
                    self.succeeded.setdefault(_at(event.worker, place), [])
            case Acked():
                self.acked.append(event)
            case Refused():
                self.refused.append(event)
            case Polled() | Assigned():
                self.members.append(event)
            case Committing():
                self.begun.append(event)
            case Committed():
                self.commits.append(event)
            case Transaction():
                self.transactions.append(event)
            case Topic():
                self.topics.append(event)


def _duty(event: OfWorker) -> str:
    """What a worker has done. A producer that gets no record into one partition is not at work, whatever the others
    take."""
    return _at(event.worker, (event.topic, event.partition) if isinstance(event, Acked) else None)


def _at(worker: str, place: Place | None) -> str:
    return worker if place is None else f"{worker} at {place[0]}-{place[1]}"


def _is_success(event: OfWorker) -> bool:
    """Whether a worker has done what it is there for."""
    match event:
        case Transaction():
            return event.outcome == "committed"
        case Topic():
            return event.state in ("created", "deleted")
        case _:
            return isinstance(event, Acked | Polled | Step)


def judge(evidence: Evidence, faults_end: float, struck: Sequence[tuple[int, Span]] = ()) -> list[Finding]:
    """Everything that is wrong with a run whose last fault ended at `faults_end`. struck: nodes, each with a fault."""
    return [
        *_lost(evidence),
        *_duplicate_or_reordered(evidence),
        *_phantoms(evidence),
        *_diverged(evidence),
        *_replicas(evidence),
        *(() if evidence.undrained else _pipeline(evidence)),
        *_offsets_back(evidence),
        *_polls(evidence),
        *_topics(evidence),
        *_killed_by_probes(evidence, struck),
        *_not_at_work(evidence, faults_end),
    ]


# --- records ---


def _lost(evidence: Evidence) -> Iterator[Finding]:
    stored = {place: dict(records) for place, records in evidence.stored.items()}
    values = {place: {value for _, value in records} for place, records in evidence.stored.items()}
    newest = {place: _newest(records) for place, records in evidence.stored.items() if place[0] == LATEST}
    for each in evidence.acked:
        if each.offset is None and each.value in values.get((each.topic, each.partition), ()):
            continue
        if each.topic == LATEST:
            number = _sent(each.value)[1]
            if newest.get((each.topic, each.partition), {}).get(number % KEYS, -1) > number:
                continue  # compacted away
        found = None if each.offset is None else stored.get((each.topic, each.partition), {}).get(each.offset)
        if found != each.value:
            place = f"{each.topic}-{each.partition}"
            holders = [
                replica.node
                for replica in evidence.replicas
                if (replica.topic, replica.partition) == (each.topic, each.partition)
                and any(value == each.value and each.offset in (None, offset) for offset, value in replica.records)
            ]
            yield Finding(
                "lost",
                f"{each.value} was acknowledged at {place} offset {each.offset}, t={each.t:.3f}, where "
                f"{found or 'nothing'} is read; the in-sync replicas of nodes {holders} have it",
            )


def _sent(value: str) -> tuple[str, int]:
    """The sender of a value (with the partition) and its number."""
    sender, _, number = value.rpartition("/")
    return sender, int(number)


def _newest(records: Records) -> dict[int, int]:
    """The number of the last record of each key of a compacted partition, which has one producer."""
    numbers = (_sent(value)[1] for _, value in records)
    return {number % KEYS: number for number in numbers}


def _duplicate_or_reordered(evidence: Evidence) -> Iterator[Finding]:
    for (topic, partition), records in evidence.stored.items():
        if topic in (COPIES, SPARKED):
            continue  # judged by what was copied
        newest: dict[str, int] = {}
        seen: set[str] = set()
        for offset, value in records:
            sender, number = _sent(value)
            if value in seen:
                yield Finding("duplicate", f"{value} is stored again at {topic}-{partition} offset {offset}")
            elif number < newest.get(sender, -1):
                yield Finding(
                    "reordered", f"{value} at {topic}-{partition} offset {offset} follows number {newest[sender]}"
                )
            seen.add(value)
            newest[sender] = max(number, newest.get(sender, -1))


def _phantoms(evidence: Evidence) -> Iterator[Finding]:
    sent = {(each.topic, each.partition, each.value) for each in evidence.acked}
    sent.update((each.topic, each.partition, each.value) for each in evidence.refused)
    unwritten = {(each.topic, each.partition, each.value): each for each in evidence.refused if each.written is False}
    names = {each.name for each in evidence.transactions}
    for (topic, partition), records in evidence.stored.items():
        for offset, value in records:
            where = f"{value} at {topic}-{partition} offset {offset}"
            if topic == SPARKED:
                continue  # judged by what was copied
            if topic == COPIES:
                if _transaction_of(value) not in names:
                    yield Finding("phantom", f"{where} is of no transaction that was begun")
            elif (topic, partition, value) not in sent:
                yield Finding("phantom", f"{where} was sent by no producer")
            elif (refusal := unwritten.get((topic, partition, value))) is not None:
                yield Finding("phantom", f"{where} was refused as not written: {refusal.error}")


def _diverged(evidence: Evidence) -> Iterator[Finding]:
    stored = {place: dict(records) for place, records in evidence.stored.items()}
    for each in evidence.members:
        if isinstance(each, Polled) and (held := stored.get((each.topic, each.partition))) is not None:
            end = max(held, default=-1) if evidence.undrained and each.topic == COPIES else float("inf")
            for offset, value in each.records:
                if offset <= end and held.get(offset) != value:
                    yield Finding(
                        "diverged",
                        f"{each.worker} got {value} at {each.topic}-{each.partition} offset {offset}, t={each.t:.3f}, "
                        f"where {held.get(offset, 'nothing')} is stored",
                    )


def _replicas(evidence: Evidence) -> Iterator[Finding]:
    """Any in-sync replica may lead next: what is stored must be in each, and below its end they must be equal."""
    first: dict[Place, dict[int, str]] = {}
    read = {(each.topic, each.partition) for each in evidence.replicas}
    for topic, partition in sorted(evidence.stored.keys() - read):
        # Without files to compare with, records that one node answers for would look as safe as those of three.
        yield Finding("replicas differ", f"no in-sync replica of {topic}-{partition} was read")
    for each in evidence.replicas:
        place, held = (each.topic, each.partition), dict(each.records)
        stored = dict(evidence.stored.get(place, ()))
        where = f"the replica of {each.topic}-{each.partition} on node {each.node}"
        for what in each.damage:
            yield Finding("replicas differ", f"{where} is damaged: {what}")
        if each.topic == LATEST:
            # Replicas are compacted each at its own time.
            end = max(stored, default=-1)
            if _newest([record for record in each.records if record[0] <= end]) != _newest(list(stored.items())):
                yield Finding("replicas differ", f"{where} has other last records of some keys than is stored")
            stored = {offset: value for offset, value in stored.items() if offset in held}
        if wrong := [offset for offset, value in stored.items() if held.get(offset) != value]:
            at = wrong[0]
            found = held.get(at, "nothing")
            yield Finding(
                "replicas differ",
                f"{where} differs at {len(wrong)} offsets: {found} at offset {at}, where {stored[at]} is stored",
            )
        if each.topic == LATEST:
            continue
        # Aborted records are not stored for readers, and are compared here.
        other = first.setdefault(place, held)
        end = max(stored, default=-1)
        unlike = sorted(at for at in held.keys() | other.keys() if at <= end and held.get(at) != other.get(at))
        if unlike:
            yield Finding("replicas differ", f"{where} differs from another one at offsets {unlike[:5]}")


# --- transactions ---


def _pipeline(evidence: Evidence) -> Iterator[Finding]:
    """Of a pipeline and a query that have copied everything. Beside one that still copies, final reads are of another
    moment than the outcomes of its last transactions."""
    yield from _transactions(evidence)
    yield from _copies(evidence, COPIES, lambda value: value.partition("|")[2])
    if any(topic == SPARKED for topic, _ in evidence.stored):
        yield from _copies(evidence, SPARKED, lambda value: value)


def _transaction_of(value: str) -> str:
    return value.partition("|")[0]


def _transactions(evidence: Evidence) -> Iterator[Finding]:
    visible: Counter[str] = Counter()
    for (topic, _), records in evidence.stored.items():
        if topic == COPIES:
            visible.update(_transaction_of(value) for _, value in records)
    for each in evidence.transactions:
        count = visible[each.name]
        if each.outcome == "aborted" and count:
            yield Finding("aborted read", f"{count} records of the aborted transaction {each.name} are read")
        elif each.outcome == "committed" and count != each.records:
            yield Finding("torn transaction", f"{count} of {each.records} records of {each.name}, committed, are read")
        elif each.outcome == "unknown" and count not in (0, each.records):
            yield Finding("torn transaction", f"{count} of {each.records} records of {each.name} are read")


def _copies(evidence: Evidence, target: str, original: Callable[[str], str]) -> Iterator[Finding]:
    """Each record of the source must be once in this target, where it is found by its value."""
    copied: Counter[str] = Counter()
    for (topic, _), records in evidence.stored.items():
        if topic == target:
            copied.update(original(value) for _, value in records)
    for (topic, _), records in evidence.stored.items():
        if topic == SOURCE:
            for _, value in records:
                count = copied.pop(value, 0)
                if count != 1:
                    yield Finding("copied wrongly", f"{value} of {SOURCE} was copied {count} times to {target}")
    # The pipeline got a record that was lost afterwards, acknowledged or not.
    for value in copied:
        yield Finding("copied wrongly", f"{value} was copied to {target}, and is not in {SOURCE}")


# --- groups ---


def _offsets_back(evidence: Evidence) -> Iterator[Finding]:
    """An assignment that begins after an acknowledged commit must continue there or behind it."""
    newest: dict[tuple[str, str, int], int] = {}
    begins: dict[tuple[str, str, int, str], int] = {}
    """What was committed when a member got a partition, until its first record of it."""
    moments: list[Assigned | Polled | Committed] = [*evidence.members, *evidence.commits]
    for event in sorted(moments, key=lambda each: each.t):
        match event:
            case Committed():
                for topic, partition, offset in event.offsets:
                    key = (event.group, topic, partition)
                    newest[key] = max(offset, newest.get(key, 0))
            case Assigned():
                for topic, partition in event.partitions:
                    begins[event.group, topic, partition, event.worker] = newest.get((event.group, topic, partition), 0)
            case Polled():
                committed = begins.pop((event.group, event.topic, event.partition, event.worker), 0)
                if event.records and event.records[0][0] < committed:
                    yield Finding(
                        "offsets back",
                        f"{event.worker} continues {event.topic}-{event.partition} at {event.records[0][0]}, "
                        f"t={event.t:.3f}, although {event.group} had committed {committed}",
                    )
    held = {(final.group, *place): offset for final in evidence.stored_offsets for *place, offset in final.offsets}
    for key, offset in newest.items():
        if held.get(key, 0) < offset:
            group, topic, partition = key
            yield Finding(
                "offsets back", f"{group} had committed {offset} of {topic}-{partition}, stored is {held.get(key)}"
            )


def _polls(evidence: Evidence) -> Iterator[Finding]:
    offsets = {place: [offset for offset, _ in records] for place, records in evidence.stored.items()}
    begun: dict[tuple[str, str, int], int] = {}
    got: dict[tuple[str, Place], set[int]] = defaultdict(set)
    reached: dict[tuple[str, str, Place], int] = {}
    """The newest offset that a member got since its assignment."""
    moments: list[Assigned | Polled | Committing] = [*evidence.members, *evidence.begun]
    for event in sorted(moments, key=lambda each: each.t):
        match event:
            case Committing():
                for topic, partition, offset in event.offsets:
                    key = (event.group, topic, partition)
                    begun[key] = max(offset, begun.get(key, 0))
            case Assigned():
                for topic, partition in event.partitions:
                    reached.pop((event.group, event.worker, (topic, partition)), None)
            case Polled() if event.records:
                place = (event.topic, event.partition)
                got[event.group, place].update(offset for offset, _ in event.records)
                member = (event.group, event.worker, place)
                before = reached.get(member)
                # A member that begins may continue at an offset whose commit is not acknowledged, or before it.
                first = min(begun.get((event.group, *place), 0), event.records[0][0])
                start = first - 1 if before is None else before
                yield from _gaps(event, offsets.get(place), before, start)
                reached[member] = event.records[-1][0]
    for (group, place), read in got.items():
        missing = [offset for offset in offsets.get(place, ()) if offset not in read]
        if missing:
            where = f"{place[0]}-{place[1]}"
            yield Finding("skipped", f"{group} never got {len(missing)} records of {where}: {missing[:5]}")
    for what in evidence.undrained:
        yield Finding("skipped", what)


def _gaps(event: Polled, stored: Sequence[int] | None, before: int | None, start: int) -> Iterator[Finding]:
    polled = [offset for offset, _ in event.records]
    where = f"{event.worker} at {event.topic}-{event.partition}, t={event.t:.3f}"
    if (before is not None and polled[0] <= before) or any(after <= one for one, after in pairwise(polled)):
        yield Finding("not monotonic", f"{where}: {polled[:5]} after {before}")
    elif stored is not None:
        skipped = stored[bisect_right(stored, start) : bisect_left(stored, polled[-1])]
        missing = sorted(set(skipped) - set(polled))
        if missing:
            yield Finding("skipped", f"{where}: {len(missing)} records behind {start} were not returned: {missing[:5]}")


# --- the rest ---


def _topics(evidence: Evidence) -> Iterator[Finding]:
    states: dict[str, list[str]] = defaultdict(list)
    for each in evidence.topics:
        states[each.name].append(each.state)
    for name, passed in states.items():
        if "created" in passed and "deleting" not in passed and name not in evidence.stored_topics:
            yield Finding("topics", f"{name} was created, and is missing")
        if "deleted" in passed and name in evidence.stored_topics:
            yield Finding("topics", f"{name} was deleted, and is there")


def _killed_by_probes(evidence: Evidence, struck: Sequence[tuple[int, Span]]) -> Iterator[Finding]:
    for each in evidence.probed:
        is_explained = any(node == each.node and span.begin < each.t and span.end > each.since for node, span in struck)
        if each.state == "killed" and not is_explained:
            yield Finding(
                "killed by a probe",
                f"node {each.node} at t={each.t:.3f}: its {each.probe} probe failed since t={each.since:.3f}",
            )


def _not_at_work(evidence: Evidence, faults_end: float) -> Iterator[Finding]:
    for worker, moments in sorted(evidence.succeeded.items()):
        back = next((t for t in sorted(moments) if t > faults_end), None)
        if back is None:
            yield Finding("not at work", f"{worker} never succeeded after the end of the faults")
        elif back - faults_end > AT_WORK_S:
            yield Finding(
                "not at work", f"{worker} succeeded only {back - faults_end:.1f} s after the end of the faults"
            )


def silences(evidence: Evidence, spans: Sequence[Span], end: float) -> list[Silence]:
    """For each round: the longest time without an acknowledgement that began in it, or in the quiet time after it."""
    by_partition: dict[Place, list[float]] = defaultdict(list)
    for each in evidence.acked:
        by_partition[each.topic, each.partition].append(each.t)
    every = sorted(each.t for each in evidence.acked)
    found = []
    for index, span in enumerate(spans):
        until = spans[index + 1].begin if index + 1 < len(spans) else max(span.begin, end)
        alone = [_longest(sorted(moments), span.begin, until) for moments in by_partition.values()]
        found.append(Silence(span.name, _longest(every, span.begin, until), max(alone, default=until - span.begin)))
    return found


def _longest(moments: Sequence[float], begin: float, end: float) -> float:
    inside = moments[bisect_left(moments, begin) : bisect_right(moments, end)]
    return max(after - before for before, after in pairwise([begin, *inside, end]))
