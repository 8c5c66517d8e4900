"""What each in-sync replica has in its files, once all nodes have ended: consumers see only the leader's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from storage.dump.dump_events import DumpFinding, RecordFound, Severity
from storage.dump.walk import NotFound, dump
from storage.files.os_files import OsFiles
from tests.chaos.history import Records, Replica
from tests.chaos.nodes import Nodes


def read_replicas(
    nodes: Nodes, in_sync: Mapping[tuple[str, int], Sequence[int]], flipped: Collection[tuple[int, str]]
) -> Iterator[Replica]:
    """The replicas of these partitions on the nodes that are in sync.

    flipped: nodes and partition directories (`orders-0`) in which a fault has flipped bits. Such damage may stay
    unnoticed until somebody reads the batch: these replicas are left out if they are damaged.
    """
    for (topic, partition), members in sorted(in_sync.items()):
        for node in members:
            name = f"{topic}-{partition}"
            records, damage = _read(nodes.data(node) / name)
            if not damage or (node, name) not in flipped:
                yield Replica(node, topic, partition, records, damage)


def _read(directory: Path) -> tuple[Records, list[str]]:
    records: Records = []
    damage: list[str] = []
    try:
        for event in dump(OsFiles(), str(directory), records=True):
            match event:
                case RecordFound() if event.control is None:
                    records.append((event.offset, (event.value or b"").decode(errors="replace")))
                # Only of logs: epoch checkpoints and indexes are repaired from these at the next start.
                case DumpFinding() if event.severity is Severity.DAMAGE and event.path.endswith(".log"):
                    damage.append(event.cause)
    except NotFound as absent:
        damage.append(str(absent))
    return records, damage
