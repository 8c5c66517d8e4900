"""What Kafka's recovery made of 85 planned damages, and of a start that was fatal for it, ours makes too, or better.

Each start unpacks the folder, changes its files, opens it at the clock of Kafka's start and asks each log what Kafka's
broker was asked. `BETTER` lists every case where the answers are not Kafka's, with the reason and what they are
instead: mostly what Kafka answered in another start, where the same data were not damaged or the same damage was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from storage.data_folder import DataFolder
from storage.log import Log
from tests.storage.kafka_vectors import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Start,
    batches,
    consume,
    damage,
    largest_timestamp,
    log_of,
    open_folder,
    producer_states,
    ranges,
    starts,
    unpack,
)

Key = tuple[str, str, str]
"""Archive, start, partition."""


@dataclass(frozen=True)
class Better:
    """Why the answers are not Kafka's, and where Kafka gave the right ones: in another start (`like`), or here (`told`
    changes some answers)."""

    why: str
    like: tuple[str, str] | None = None
    told: dict[str, Any] = field(default_factory=dict)
    damaged: tuple[int, int] | None = None
    """Offsets that are reported as lost, first and end."""
    unreadable: tuple[int, ...] = ()
    """First offsets of batches that a consumer is told to be damaged."""


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
        "the checksum does not cover the magic: Kafka keeps 9, and no consumer reads on. Read as format 2 the batch "
        "agrees with its checksum, so the byte is put right",
        like=("as-killed", "compacted-0"),
    ),
    ("unclean", "flipped-2", "plain-0"): Better(
        "below the recovery point payloads are not read again, here as there; but a consumer loses that batch alone",
        told={level: [[0, 34], [39, 714]] for level in ("read_uncommitted", "read_committed")},
        unreadable=(35,),
    ),
    ("unclean", "flipped-2", "zipped-0"): Better(
        "the checksum does not cover the leader epoch: Kafka believes 99, and its epoch cache is empty after that. No "
        "checkpoint knows of it, so the batch gets its epoch back",
        like=("as-killed", "zipped-0"),
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
    ("unclean", "files-2", "zipped-0"): Better(
        "the lost segment is reported; Kafka does not notice it", damaged=(264, 346)
    ),
}

CASES = [
    pytest.param(archive, name, partition, id=f"{archive}-{name}-{partition}-{result['case']}")
    for (archive, name), start in starts().items()
    for partition, result in start.partitions.items()
]


class Opened:
    """A start repeated here: the folder, open, and its logs' answers before anything was asked of them."""

    def __init__(self, start: Start, folder: DataFolder) -> None:
        self.start, self.folder = start, folder

    def log(self, partition: str) -> Log:
        return log_of(self.folder, partition)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def open_(archive: str, name: str) -> Opened:
        start = starts()[archive, name]
        root = unpack(archive, tmp_path_factory.mktemp(f"{archive}-{name}"))
        damage(root, start.all_edits())
        return Opened(start, open_folder(root, archive, start.clock))

    return open_


def expected(archive: str, name: str, partition: str) -> dict[str, Any]:
    """What Kafka says: of this start, or of the one that is right where this one is not."""
    better = BETTER.get((archive, name, partition))
    like = better.like if better and better.like else (name, partition)
    found = starts()[archive, like[0]].partitions[like[1]]
    return {**found, **found["running"], **found["running"]["visible"], **(better.told if better else {})}


def test_there_are_85_cases_and_a_fatal_start() -> None:
    assert len(CASES) == 85
    assert [start.name for start in starts().values() if start.fatal] == ["clean-marker-on-zeros"]
    assert set(BETTER) <= {tuple(case.values) for case in CASES}


@pytest.mark.parametrize(("archive", "name", "partition"), CASES)
def test_recovery_is_kafkas_or_better(opened: Any, archive: str, name: str, partition: str) -> None:
    """Goal: as Kafka, or better. Method: every answer compared with Kafka's, damage with what was planned."""
    log = opened(archive, name).log(partition)
    said = expected(archive, name, partition)
    better = BETTER.get((archive, name, partition))

    assert log.log_start_offset == said["logStartOffset"]
    assert log.log_end_offset == said["logEndOffset"]
    found = None if log.damage is None else (log.damage.first_offset, log.damage.end_offset)
    assert found == (better.damaged if better else None)
    assert log.last_stable_offset == said["lastStableOffset"]
    if not isinstance(said["maxTimestamp"][0], str):
        assert largest_timestamp(log) == said["maxTimestamp"]
    assert producer_states(log) == said["producerStates"]
    for isolation, name in ((READ_UNCOMMITTED, "read_uncommitted"), (READ_COMMITTED, "read_committed")):
        seen = consume(log, isolation)
        assert ranges(seen.offsets) == said[name]
        damaged = (better.damaged[0],) if better and better.damaged else ()
        assert tuple(offset for offset, _ in seen.trouble) == (better.unreadable if better else ()) + damaged
    assert batches(log) == [
        {key: segment[key] for key in ("baseOffset", "size", "batches")} for segment in said["segments"]
    ]
    begun = said["leaderEpochs"] or []
    if archive == "unclean":  # a 4.1 broker begins an epoch when it starts
        log.begin_epoch(begun[-1][0])
    assert [[entry.epoch, entry.start_offset] for entry in log.epoch_entries()] == begun
