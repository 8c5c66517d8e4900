"""Recovery gives Kafka's result, or a better one, for 85 planned damages and a start that was fatal for Kafka.

Each start unpacks the directory, changes its files, opens it at the clock of Kafka's start and sends each log the
requests that Kafka's broker got. `BETTER` lists every case with other answers, with the reason and the expected ones:
mostly Kafka's answers in another start, in which the same data were undamaged or the same damage was found."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from tests.storage.kafka_vectors import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    batches,
    consume,
    damage,
    largest_timestamp,
    log_of,
    open_directory,
    producer_states,
    ranges,
    recorded,
    recorded_snapshot,
    snapshot,
    starts,
    unpack,
)

Key = tuple[str, str, str]
"""Archive, start, partition."""
Opened = Callable[[str, str], LogDirectory]


@dataclass(frozen=True)
class Better:
    """Why the answers differ from Kafka's, and where the right ones are: in another start of Kafka (`like`), or here
    (`recorded` changes some answers)."""

    why: str
    like: tuple[str, str] | None = None
    reported: dict[str, Any] = field(default_factory=dict)
    damaged: tuple[int, int] | None = None
    """Offsets that are reported as lost, first and end."""
    unreadable: tuple[int, ...] = ()
    """First offsets of the batches that a consumer reports as damaged."""
    cut: int | None = None
    """Base offset of the segment that is empty here."""
    readable: bool = False
    """Offsets that are reported as damaged and can be read nevertheless."""
    files: tuple[str, ...] = ()
    """Files that differ from Kafka's."""


BETTER: dict[Key, Better] = {
    ("unclean", "clean-marker", "plain-0"): Better(
        "the marker is false: an index entry points behind the torn end. Kafka puts the log end back to 695, over 16 "
        "good records",
        like=("torn-2", "plain-0"),
    ),
    ("unclean", "clean-marker", "zipped-0"): Better(
        "the marker is false: Kafka leaves 11 bytes of a batch behind the log end and does not see the youngest times",
        like=("torn-3", "zipped-0"),
    ),
    ("unclean", "clean-marker", "idem-0"): Better(
        "the marker is false: Kafka's largest timestamp ends with the last segment", like=("as-killed", "idem-0")
    ),
    ("unclean", "clean-marker", "txn-0"): Better(
        "the marker is false: Kafka does not rebuild the producers and forgets an open transaction",
        like=("as-killed", "txn-0"),
    ),
    ("unclean", "clean-marker", "prealloc-0"): Better(
        "the marker is false: Kafka knows no times and no producers", like=("as-killed", "prealloc-0")
    ),
    ("unclean", "clean-marker", "compacted-0"): Better(
        "the marker is false: Kafka's largest timestamp ends with the last segment", like=("as-killed", "compacted-0")
    ),
    ("unclean", "flipped-1", "compacted-0"): Better(
        "the checksum does not cover the magic: Kafka keeps 9, and no consumer reads on. Here what is not durable yet "
        "ends before that batch",
        like=("as-killed", "compacted-0"),
        reported={
            "logEndOffset": 184,
            "lastStableOffset": 184,
            "maxTimestamp": [183, 1795260632977, 0],
            "leaderEpochs": [[0, 0], [1, 184]],
            "read_uncommitted": [[160, 160], [163, 163], [168, 168], [170, 170], [179, 183]],
            "read_committed": [[160, 160], [163, 163], [168, 168], [170, 170], [179, 183]],
        },
        cut=184,
        files=("00000000000000000184.log", "00000000000000000184.timeindex", "leader-epoch-checkpoint"),
    ),
    ("unclean", "flipped-2", "plain-0"): Better(
        "below the recovery point payloads are not read again, here as there; but a consumer loses that batch alone",
        reported={level: [[0, 34], [39, 714]] for level in ("read_uncommitted", "read_committed")},
        unreadable=(35,),
    ),
    ("unclean", "flipped-2", "zipped-0"): Better(
        "the checksum does not cover the leader epoch: Kafka believes 99, and its epoch cache is empty after that. "
        "Here it is reported: the epoch file has another one there",
        like=("as-killed", "zipped-0"),
        reported={"maxTimestamp": [543, 1795260626974, 99]},
        damaged=(540, 544),
        readable=True,
        files=("00000000000000000519.log",),
    ),
    ("unclean", "flipped-2", "idem-0"): Better(
        "Kafka throws the whole segment away where an offset goes back; here the log ends before that batch",
        like=("torn-2", "idem-0"),
    ),
    ("unclean", "files-1", "txn-0"): Better(
        "lost transaction indexes are rebuilt: Kafka shows aborted records", like=("as-killed", "txn-0")
    ),
    ("unclean", "files-2", "txn-0"): Better(
        "a cut transaction index is rebuilt: Kafka shows aborted records", like=("as-killed", "txn-0")
    ),
    ("unclean", "no-checkpoints", "trimmed-0"): Better(
        "the log start is lost and falls back to the first segment: Kafka's epochs begin above it, so a replica that "
        "ends there would find no epoch in common",
        reported={"leaderEpochs": [[0, 90], [2, 200]]},
        files=("leader-epoch-checkpoint",),
    ),
    ("unclean", "files-2", "zipped-0"): Better(
        "the lost segment is reported; Kafka does not notice it", damaged=(264, 346)
    ),
}

CASES = [
    pytest.param(archive, name, partition, id=f"{archive}-{name}-{partition}-{result['case']}")
    for (archive, name), start in starts().items()
    for partition, result in start.partitions.items()
]


def begin(archive: str, name: str, into: Path) -> tuple[Path, LogDirectory]:
    """Repeat a start: unpack the directory, damage it, open it."""
    start = starts()[archive, name]
    root = unpack(archive, into / f"{archive}-{name}")
    damage(root, start.all_edits())
    return root, open_directory(root, archive, start.clock)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Starts that tests share. The tests only query them, except that an epoch begins."""
    into = tmp_path_factory.mktemp("recovery")
    found: dict[tuple[str, str], LogDirectory] = {}

    def find(archive: str, name: str) -> LogDirectory:
        if (archive, name) not in found:
            _, found[archive, name] = begin(archive, name, into)
        return found[archive, name]

    yield find
    for directory in found.values():
        directory.close()


def expected(archive: str, name: str, partition: str) -> dict[str, Any]:
    """Kafka's answers: of this start, or of the one that is right where this one is not."""
    better = BETTER.get((archive, name, partition))
    like = better.like if better and better.like else (name, partition)
    found = starts()[archive, like[0]].partitions[like[1]]
    return {**found, **found["running"], **found["running"]["visible"], **(better.reported if better else {})}


def test_there_are_85_cases_and_a_fatal_start() -> None:
    assert len(CASES) == 85
    assert [start.name for start in starts().values() if start.fatal] == ["clean-marker-on-zeros"]
    assert set(BETTER) <= {tuple(case.values) for case in CASES}


EXPIRED_MS = 86_400_000


def _known_to_kafka(log: Log, now: int) -> list[dict[str, int]]:
    """The producers without those that Kafka removes with each snapshot that it loads, because their records are old.
    Tidelog counts only the time since the append or the start."""
    return [
        state
        for state in producer_states(log)
        if now - state["lastTimestamp"] < EXPIRED_MS or state["currentTransactionStartOffset"] >= 0
    ]


@pytest.mark.parametrize(("archive", "name", "partition"), CASES)
def test_recovery_equals_kafkas_or_is_better(opened: Opened, archive: str, name: str, partition: str) -> None:
    """Goal: Kafka's result, or a better one. Method: every answer is compared with Kafka's, damage with the plan."""
    log = log_of(opened(archive, name), partition)
    said = expected(archive, name, partition)
    better = BETTER.get((archive, name, partition))

    assert log.log_start_offset == said["logStartOffset"]
    assert log.log_end_offset == said["logEndOffset"]
    found = None if log.damage is None else (log.damage.first_offset, log.damage.end_offset)
    assert found == (better.damaged if better else None)
    assert log.last_stable_offset == said["lastStableOffset"]
    if not isinstance(said["maxTimestamp"][0], str):
        assert largest_timestamp(log) == said["maxTimestamp"]
    assert _known_to_kafka(log, starts()[archive, name].clock) == said["producerStates"]
    for isolation, name in ((READ_UNCOMMITTED, "read_uncommitted"), (READ_COMMITTED, "read_committed")):
        seen = consume(log, isolation)
        assert ranges(seen.offsets) == said[name]
        damaged = (better.damaged[0],) if better and better.damaged and not better.readable else ()
        assert tuple(offset for offset, _ in seen.trouble) == (better.unreadable if better else ()) + damaged
    assert batches(log) == [
        {"baseOffset": segment["baseOffset"], "size": 0, "batches": []}
        if better and segment["baseOffset"] == better.cut
        else {key: segment[key] for key in ("baseOffset", "size", "batches")}
        for segment in said["segments"]
    ]
    begun = said["leaderEpochs"] or []
    if archive == "unclean":  # a 4.1 broker begins an epoch when it starts
        log.begin_epoch(begun[-1][0])
    assert [[entry.epoch, entry.start_offset] for entry in log.epochs.entries] == begun


# --- what is left on the disk ---------------------------------------------------------------------------------------

COMPARED = (".log", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint")
"""Kafka's files that are the same byte for byte; snapshots are compared by their contents."""


def files_of(directory: Path) -> dict[str, str]:
    """The files of a log by their hashes; an empty transaction index counts as missing."""
    found = {path.name: path for path in directory.iterdir() if path.name.endswith(COMPARED)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in found.items()
        if path.stat().st_size or not name.endswith(".txnindex")
    }


@pytest.mark.parametrize(("archive", "name"), [key for key, start in starts().items() if not start.fatal])
def test_a_clean_stop_leaves_kafkas_files(tmp_path: Path, archive: str, name: str) -> None:
    """Goal: a Kafka broker that opens the directory next finds the files that it would have left, byte for byte:
    segments, indexes, epochs, and producers in any order."""
    root, directory = begin(archive, name, tmp_path)
    partitions = starts()[archive, name].partitions
    said = {partition: expected(archive, name, partition) for partition in partitions}
    for partition in partitions:
        log = log_of(directory, partition)
        if archive == "unclean":
            log.begin_epoch(said[partition]["leaderEpochs"][-1][0])
        log.aborted_transactions(log.log_start_offset, log.log_end_offset)  # a lost index is rebuilt at its first use
    directory.close_clean()
    for partition in partitions:
        facts_told = {file: facts for file, facts in said[partition]["files"].items() if file.endswith(COMPARED)}
        wanted = {
            file: facts["sha256"] for file, facts in facts_told.items() if facts["size"] or ".txnindex" not in file
        }
        found = files_of(root / partition)
        if said[partition]["leaderEpochs"] is None:
            assert (root / partition / "leader-epoch-checkpoint").read_text() == "0\n0\n", (
                "the result is recorded as unknown"
            )
            del found["leader-epoch-checkpoint"]
        if (name, partition) == ("files-2", "plain-0"):  # Kafka keeps the truncated index, here it is complete again
            assert found.pop(f"{0:020d}.index") != wanted.pop(f"{0:020d}.index")
        for file in getattr(BETTER.get((archive, name, partition)), "files", ()):
            assert found.pop(file) != wanted.pop(file)
        assert found == wanted
        _compare_snapshots(root / partition, said[partition], starts()[archive, name].clock)


def _compare_snapshots(directory: Path, said: dict[str, Any], now: int) -> None:
    """Every snapshot of Kafka's except those above the log end exists with the same contents. Kafka removes expired
    producers with each snapshot that it loads, so an older file here may contain more."""
    for name, producers in said["snapshots"].items():
        if int(name[:20]) > said["logEndOffset"]:
            assert not (directory / name).exists()
            continue
        found = {entry["producerId"]: entry for entry in snapshot(directory / name)}
        for entry in recorded_snapshot(producers):
            ours = found.pop(entry["producerId"])
            assert {key: ours[key] for key in entry} == entry
        assert all(now - entry["lastTimestamp"] >= EXPIRED_MS for entry in found.values())


# --- the rest -------------------------------------------------------------------------------------------------------


def test_a_false_clean_marker_over_zeros_does_not_prevent_the_start(opened: Opened) -> None:
    """Kafka stops while it loads; here the start equals one without the marker."""
    directory = opened("unclean", "clean-marker-on-zeros")
    assert directory.identity.was_clean
    assert directory.damaged() == {}
    for partition, said in starts()["unclean", "as-killed"].partitions.items():
        log = log_of(directory, partition)
        assert (log.log_start_offset, log.log_end_offset) == (
            said["running"]["logStartOffset"],
            said["running"]["logEndOffset"],
        )
        assert log.last_stable_offset == said["running"]["lastStableOffset"]
        assert ranges(consume(log, READ_COMMITTED).offsets) == said["running"]["visible"]["read_committed"]
        assert _known_to_kafka(log, starts()["unclean", "as-killed"].clock) == said["running"]["producerStates"]
    assert any("prealloc-0" in note and "marker rejected" in note for note in directory.notes)


@pytest.mark.parametrize(("archive", "name"), list(starts()))
def test_undamaged_logs_keep_everything(opened: Opened, archive: str, name: str) -> None:
    directory = opened(archive, name)
    for tp, log in directory.logs.items():
        if str(tp) in starts()[archive, name].partitions:
            continue
        wanted = [
            [batch["baseOffset"], batch["lastOffset"], batch["position"], batch["size"], batch["crc"]]
            for segment in recorded(archive)["partitions"][str(tp)]["segments"]
            for batch in segment["batches"]
        ]
        assert [batch for segment in batches(log) for batch in segment["batches"]] == wanted
        assert log.damage is None
        assert log.log_end_offset == max((batch[1] + 1 for batch in wanted), default=log.log_start_offset)
