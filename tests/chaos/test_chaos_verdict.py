"""Each verdict can fail: a history of a sound run is changed in one place, and the change is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.history import (
    Acked,
    Assigned,
    Begun,
    Committed,
    Committing,
    Event,
    Failed,
    History,
    Polled,
    Probed,
    Refused,
    Replica,
    Step,
    Stored,
    StoredOffsets,
    StoredTopics,
    Topic,
    Transaction,
    Undrained,
    read,
    read_on,
)
from tests.chaos.verdict import AT_WORK_S, CHECKS, Evidence, Finding, Span, judge, silences

FAULTS_END = 10.0
STRUCK = [(0, Span("pause", 4, 8))]

COPIED = [(0, "copier-1|other/0/0"), (4, "copier-3|other/0/1"), (6, "copier-4|other/0/2")]

SOUND: tuple[Event, ...] = (
    Begun(0, "moves", []),
    Begun(0, "own", [("orders", 0)]),
    Begun(0, "other", [("ledger", 0)]),
    Begun(0, "keeper", [("latest", 0)]),
    Step(1, "moves", "reassigned"),
    Acked(1, "own", "orders", 0, 0, "own/0/0", 2),
    Acked(2, "own", "orders", 0, 1, "own/0/1", 2),
    Refused(3, "own", "orders", 0, "own/0/2", "CommitUnknown", None),
    Refused(3, "own", "orders", 0, "own/0/3", "DiskFull", written=False),
    Acked(4, "other", "ledger", 0, 0, "other/0/0", 2),
    Acked(4.5, "other", "ledger", 0, 1, "other/0/1", 2),
    Assigned(1, "reader-0", "readers", [("orders", 0)]),
    Polled(5, "reader-0", "readers", "orders", 0, [(0, "own/0/0"), (1, "own/0/1")]),
    Committing(5.1, "reader-0", "readers", [("orders", 0, 2)]),
    Committed(5.2, "reader-0", "readers", [("orders", 0, 2)]),
    Assigned(6, "reader-1", "readers", [("orders", 0)]),
    Polled(7, "reader-1", "readers", "orders", 0, [(2, "own/0/2")]),
    Transaction(5, "copier", "copier-1", "committed", 1),
    Transaction(6, "copier", "copier-2", "aborted", 1),
    Transaction(7, "copier", "copier-3", "unknown", 1),
    Topic(5, "topics", "brief-0", "creating"),
    Topic(6, "topics", "brief-0", "created"),
    Topic(6, "topics", "brief-1", "creating"),
    Topic(7, "topics", "brief-1", "created"),
    Topic(8, "topics", "brief-1", "deleting"),
    Topic(9, "topics", "brief-1", "deleted"),
    Failed(9, "moves", "RequestTimedOut"),
    Acked(11, "own", "orders", 0, 3, "own/0/4", 2),
    Acked(11, "other", "ledger", 0, 2, "other/0/2", 2),
    Acked(11, "keeper", "latest", 0, 0, "keeper/0/0", 2),
    Acked(11, "keeper", "latest", 0, 1, "keeper/0/1", 2),
    Acked(12, "keeper", "latest", 0, 16, "keeper/0/16", 2),
    Polled(12, "reader-1", "readers", "orders", 0, [(3, "own/0/4")]),
    Assigned(12.5, "reader-0", "readers", [("orders", 0)]),
    Polled(12.6, "reader-0", "readers", "orders", 0, [(2, "own/0/2"), (3, "own/0/4")]),
    Transaction(12, "copier", "copier-4", "committed", 1),
    Topic(12, "topics", "brief-2", "creating"),
    Topic(13, "topics", "brief-2", "created"),
    Step(13, "moves", "reassigned"),
    Stored("orders", 0, [(0, "own/0/0"), (1, "own/0/1"), (2, "own/0/2"), (3, "own/0/4")]),
    Stored("ledger", 0, [(0, "other/0/0"), (1, "other/0/1"), (2, "other/0/2")]),
    Stored("copies", 0, COPIED),
    Stored("sparked", 0, [(0, "other/0/2"), (2, "other/0/0"), (3, "other/0/1")]),
    Probed(0.5, 0, "startup", "started", 0.5),
    Probed(7, 0, "liveness", "killed", 5),
    Probed(9, 1, "readiness", "not ready", 8.5),
    Stored("latest", 0, [(1, "keeper/0/1"), (16, "keeper/0/16")]),
    Replica(0, "latest", 0, [(0, "keeper/0/0"), (1, "keeper/0/1"), (16, "keeper/0/16")], []),
    Replica(1, "latest", 0, [(1, "keeper/0/1"), (16, "keeper/0/16")], []),
    Replica(0, "copies", 0, [*COPIED, (2, "copier-2|other/0/0"), (8, "copier-5|other/0/3")], []),
    Replica(1, "copies", 0, [*COPIED, (2, "copier-2|other/0/0")], []),
    StoredOffsets("readers", [("orders", 0, 2)]),
    StoredTopics(["brief-0", "brief-2", "orders"]),
)

REPLICA = next(each for each in SOUND if isinstance(each, Replica) and (each.topic, each.node) == ("copies", 1))
COMPACTED = next(each for each in SOUND if isinstance(each, Replica) and (each.topic, each.node) == ("latest", 1))

Change = Callable[[Event], Event | None]


def judged(events: Sequence[Event]) -> list[Finding]:
    """Of partitions whose replicas the history does not have, one holds what is stored."""
    read = {(each.topic, each.partition) for each in events if isinstance(each, Replica)}
    equal = [
        Replica(0, each.topic, each.partition, each.records, [])
        for each in events
        if isinstance(each, Stored) and (each.topic, each.partition) not in read
    ]
    return judge(Evidence.of([*events, *equal]), FAULTS_END, STRUCK)


def changed(change: Change) -> list[str]:
    """The checks that fail, each once, after a change of the sound history; None removes an event."""
    events = [made for event in SOUND if (made := change(event)) is not None]
    assert events != list(SOUND), "nothing was changed"
    return sorted({finding.check for finding in judged(events)})


def stored(place: tuple[str, int], *records: tuple[int, str]) -> Change:
    return lambda event: (
        Stored(*place, list(records))
        if isinstance(event, Stored) and (event.topic, event.partition) == place
        else event
    )


def test_a_sound_run_passes() -> None:
    assert judged(SOUND) == []


def test_a_partition_whose_replicas_nobody_has_read_does_not_pass() -> None:
    (finding,) = judge(Evidence.of([Stored("orders", 0, [])]), FAULTS_END)
    assert (finding.check, finding.text) == ("replicas differ", "no in-sync replica of orders-0 was read")


def test_an_acknowledgement_without_an_offset_is_kept_by_the_record_anywhere() -> None:
    """librdkafka has no offset of a record that it sent again and that the leader no longer remembers."""
    assert changed(lambda event: replace(event, offset=None) if isinstance(event, Acked) else event) == []


def test_a_pipeline_that_has_not_come_to_its_end_is_not_blamed_for_the_rest() -> None:
    """Its watcher reads on, and its transactions end, after the last reads were noted."""
    late = (
        Transaction(14, "copier", "copier-5", "committed", 2),
        Polled(14, "watcher", "watchers", "copies", 0, [*COPIED, (8, "copier-5|other/0/3")]),
        Undrained("the pipeline stays behind"),
    )
    assert [finding.check for finding in judged([*SOUND, *late])] == ["skipped"]


FORGED: dict[str, tuple[str, Change]] = {
    "an acknowledged record is gone": (
        "lost",
        lambda event: Acked(4.6, "own", "orders", 0, 4, "own/0/9", 2) if isinstance(event, Failed) else event,
    ),
    "a record that is acknowledged without an offset is nowhere": (
        "lost",
        lambda event: Acked(4.6, "own", "orders", 0, None, "own/0/9", 2) if isinstance(event, Failed) else event,
    ),
    "another record stands where it was acknowledged": (
        "lost",
        lambda event: replace(event, offset=3) if isinstance(event, Acked) and event.value == "own/0/1" else event,
    ),
    "the last record of a key is compacted away": ("lost", stored(("latest", 0), (1, "keeper/0/1"))),
    "the last record of a key is missing in an in-sync replica": (
        "replicas differ",
        lambda event: replace(event, records=[(0, "keeper/0/0"), (1, "keeper/0/1")]) if event == COMPACTED else event,
    ),
    "a record is stored twice": (
        "duplicate",
        stored(("ledger", 0), (0, "other/0/0"), (1, "other/0/1"), (2, "other/0/2"), (3, "other/0/2")),
    ),
    "two records have changed places": (
        "reordered",
        stored(("ledger", 0), (0, "other/0/1"), (1, "other/0/0"), (2, "other/0/2")),
    ),
    "a record comes from nowhere": (
        "phantom",
        stored(("ledger", 0), (0, "other/0/0"), (1, "other/0/1"), (2, "other/0/2"), (3, "else/0/0")),
    ),
    "a record is in another partition than it was sent to": (
        "phantom",
        lambda event: replace(event, partition=1) if isinstance(event, Refused) and event.written is None else event,
    ),
    "a refused record is read": (
        "phantom",
        lambda event: (
            replace(event, written=False) if isinstance(event, Refused) and event.value == "own/0/2" else event
        ),
    ),
    "a copy belongs to no transaction": (
        "phantom",
        lambda event: None if isinstance(event, Transaction) and event.name == "copier-1" else event,
    ),
    "a consumer saw something else": (
        "diverged",
        lambda event: replace(event, records=[(2, "own/0/9")]) if isinstance(event, Polled) and event.t == 7 else event,
    ),
    "an in-sync replica lacks a record": (
        "replicas differ",
        lambda event: replace(event, records=[*COPIED[:2], (2, "copier-2|other/0/0")]) if event == REPLICA else event,
    ),
    "an in-sync replica has another aborted record": (
        "replicas differ",
        lambda event: replace(event, records=[*COPIED, (2, "copier-2|other/0/1")]) if event == REPLICA else event,
    ),
    "an in-sync replica is damaged": (
        "replicas differ",
        lambda event: replace(event, damage=["checksum"]) if event == REPLICA else event,
    ),
    "an aborted transaction is read": (
        "aborted read",
        lambda event: (
            replace(event, outcome="aborted") if isinstance(event, Transaction) and event.name == "copier-3" else event
        ),
    ),
    "a committed transaction is there in part": (
        "torn transaction",
        lambda event: (
            replace(event, records=2) if isinstance(event, Transaction) and event.name == "copier-1" else event
        ),
    ),
    "a transaction of unknown outcome is there in part": (
        "torn transaction",
        lambda event: (
            replace(event, records=2) if isinstance(event, Transaction) and event.name == "copier-3" else event
        ),
    ),
    "a record was not copied": (
        "copied wrongly",
        stored(("copies", 0), (4, "copier-3|other/0/1"), (5, "copier-1|other/0/1"), (6, "copier-4|other/0/2")),
    ),
    "nothing was copied": (
        "copied wrongly",
        lambda event: (
            None if isinstance(event, Transaction) or (isinstance(event, Stored) and event.topic == "copies") else event
        ),
    ),
    "a record that is lost was copied": (
        "copied wrongly",
        stored(("copies", 0), *COPIED, (7, "copier-4|other/0/3")),
    ),
    "a record that Spark copied is there twice": (
        "copied wrongly",
        stored(("sparked", 0), (0, "other/0/2"), (2, "other/0/0"), (3, "other/0/1"), (5, "other/0/2")),
    ),
    "Spark did not copy a record": (
        "copied wrongly",
        stored(("sparked", 0), (0, "other/0/2"), (2, "other/0/0")),
    ),
    "Spark copied a record that is lost": (
        "copied wrongly",
        stored(("sparked", 0), (0, "other/0/2"), (2, "other/0/0"), (3, "other/0/1"), (4, "other/0/3")),
    ),
    "a node is killed that no fault has struck": (
        "killed by a probe",
        lambda event: replace(event, node=1) if isinstance(event, Probed) and event.state == "killed" else event,
    ),
    "a node is killed whose fault had ended before its probes failed": (
        "killed by a probe",
        lambda event: (
            replace(event, t=9, since=8.5) if isinstance(event, Probed) and event.state == "killed" else event
        ),
    ),
    "a group begins again": (
        "offsets back",
        lambda event: (
            replace(event, records=[(1, "own/0/1"), (2, "own/0/2")])
            if isinstance(event, Polled) and event.t == 7
            else event
        ),
    ),
    "a committed offset is forgotten": (
        "offsets back",
        lambda event: replace(event, offsets=[("orders", 0, 1)]) if isinstance(event, StoredOffsets) else event,
    ),
    "all committed offsets are forgotten": (
        "offsets back",
        lambda event: None if isinstance(event, StoredOffsets) else event,
    ),
    "a group never got a record": (
        "skipped",
        lambda event: None if isinstance(event, Polled) and event.t == 7 else event,
    ),
    "a member goes past a record": (
        "skipped",
        lambda event: (
            replace(event, records=[(0, "own/0/0"), (2, "own/0/2")])
            if isinstance(event, Polled) and event.t == 5
            else event
        ),
    ),
    "a member that begins goes past a record": (
        "skipped",
        lambda event: (
            replace(event, records=[(0, "own/0/0"), (2, "own/0/2"), (3, "own/0/4")])
            if isinstance(event, Polled) and event.t == 12.6
            else event
        ),
    ),
    "a group does not come to its end": (
        "skipped",
        lambda event: Undrained("readers did not reach the end") if isinstance(event, StoredTopics) else event,
    ),
    "a member gets a record again": (
        "not monotonic",
        lambda event: (
            replace(event, records=[(2, "own/0/2"), (3, "own/0/4")])
            if isinstance(event, Polled) and event.t == 12
            else event
        ),
    ),
    "a created topic is missing": (
        "topics",
        lambda event: StoredTopics(["brief-2", "orders"]) if isinstance(event, StoredTopics) else event,
    ),
    "the topics are not known": ("topics", lambda event: None if isinstance(event, StoredTopics) else event),
    "a deleted topic is there": (
        "topics",
        lambda event: StoredTopics(["brief-0", "brief-1", "brief-2"]) if isinstance(event, StoredTopics) else event,
    ),
    "a worker does not come back": (
        "not at work",
        lambda event: None if isinstance(event, Step) and event.t == 13 else event,
    ),
    "a worker never succeeds": (
        "not at work",
        lambda event: Begun(0, "idle", []) if isinstance(event, Failed) else event,
    ),
    "a producer gets nothing into one of its partitions": (
        "not at work",
        lambda event: (
            replace(event, places=[("orders", 0), ("orders", 1)])
            if isinstance(event, Begun) and event.worker == "own"
            else event
        ),
    ),
    "a worker comes back late": (
        "not at work",
        lambda event: (
            replace(event, t=FAULTS_END + AT_WORK_S + 1) if isinstance(event, Step) and event.t == 13 else event
        ),
    ),
}
"""By what is changed: the check that must fail, and the change."""


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_history_fails(what: str) -> None:
    check, change = FORGED[what]
    assert check in changed(change)


def test_a_run_is_waited_for_until_every_worker_is_back() -> None:
    so_far = Evidence()
    for event in SOUND:
        so_far.add(event)
        if event == Step(13, "moves", "reassigned"):
            break
        assert not so_far.is_at_work(FAULTS_END)
    assert so_far.is_at_work(FAULTS_END)


def test_every_check_can_fail() -> None:
    assert {check for check, _ in FORGED.values()} == set(CHECKS)


def test_time_without_acknowledgements_belongs_to_the_round_before_it() -> None:
    moments = {0: [1.0, 2.0, 6.0, 7.0, 8.0, 12.0], 1: [1.0, 2.0, 5.0, 7.0, 8.0, 9.0, 12.0]}
    events = [Acked(t, "own", "orders", partition, 0, "", 1) for partition, ts in moments.items() for t in ts]
    kill, pause = silences(Evidence.of(events), [Span("kill", 2, 4), Span("pause", 7, 8)], 12)
    assert (kill.name, kill.all_partitions, kill.one_partition) == ("kill", 3, 4)
    assert (pause.name, pause.all_partitions, pause.one_partition) == ("pause", 3, 4)
    (after,) = silences(Evidence.of(events), [Span("kill-all", 20, 22)], 12)
    assert (after.all_partitions, after.one_partition) == (0, 0), "producers had stopped before it"


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    with History(tmp_path / "history.jsonl") as history:
        for event in SOUND:
            history.note(event)
    assert judged(list(read(tmp_path / "history.jsonl"))) == []
    with History(tmp_path / "history.jsonl", append=True) as history:
        history.note(Probed(14, 1, "readiness", "ready", 14))
    assert list(read(tmp_path / "history.jsonl"))[len(SOUND) :] == [Probed(14, 1, "readiness", "ready", 14)]


def test_a_history_is_read_on_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.note(Step(1, "moves", "reassigned"))
    whole = path.read_text(encoding="utf-8")
    with path.open("w", encoding="utf-8") as writing, path.open(encoding="utf-8") as reading:
        writing.write(whole + whole[:9])
        writing.flush()
        assert list(read_on(reading)) == [Step(1, "moves", "reassigned")]
        assert list(read_on(reading)) == []
        writing.write(whole[9:])
        writing.flush()
        assert list(read_on(reading)) == [Step(1, "moves", "reassigned")]
