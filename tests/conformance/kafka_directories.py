"""The directories that Kafka wrote, unpacked into memory, beside what Kafka's own tools say of them."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tidelog.records import RecordBatch, iter_batches

VECTORS = Path(__file__).parent.parent / "vectors"
DIRECTORIES = ("cluster", "unclean", "old")


@dataclass(frozen=True)
class Segment:
    """One file of batches. `ends_in_zeros`: preallocated and still open, Kafka's tool stopped there."""

    name: str
    data: bytes
    batches: list[dict[str, Any]]
    ends_in_zeros: bool

    def whole(self) -> bytes:
        """The file without what is behind its last batch; of a sound file, all of it."""
        if not self.ends_in_zeros:
            return self.data
        return self.data[: self.batches[-1]["position"] + self.batches[-1]["size"]]

    def pairs(self) -> Iterator[tuple[RecordBatch, dict[str, Any]]]:
        """Our view of each batch beside Kafka's."""
        return zip(iter_batches(self.whole(), partial_tail="raise"), self.batches, strict=True)


@cache
def says(directory: str) -> dict[str, Any]:
    """What Kafka's tools printed, by partition."""
    partitions: dict[str, Any] = json.loads(lzma.decompress((VECTORS / f"{directory}.json.xz").read_bytes()))[
        "partitions"
    ]
    return partitions


@cache
def wrote(directory: str) -> dict[str, bytes]:
    """The `.log` files by path below the log directory, and the metadata snapshots, which are batches as well."""
    archive = io.BytesIO(lzma.decompress((VECTORS / f"{directory}.tar.xz").read_bytes()))
    files = {}
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None and member.name.endswith((".log", ".checkpoint")):
                files[member.name.partition("/")[2]] = content.read()
    return files


def segments(directory: str, partition: str) -> list[Segment]:
    said = says(directory)[partition]
    found = [(f"{s['baseOffset']:020d}.log", s["batches"], "notes" in s) for s in said["segments"]]
    found += [(name, batches, False) for name, batches in (said.get("raftSnapshots") or {}).items()]
    return [Segment(name, wrote(directory)[f"{partition}/{name}"], *rest) for name, *rest in found]


PARTITIONS = [(directory, partition) for directory in DIRECTORIES for partition in sorted(says(directory))]
