"""The directories written by Kafka, file by file and in memory, with what Kafka's tools reported about their
producers."""

from __future__ import annotations

import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"


@cache
def recorded_of(directory: str) -> dict[str, Any]:
    """What Kafka's tools and its running broker reported, by partition."""
    with lzma.open(VECTORS / f"{directory}.json.xz") as file:
        partitions: dict[str, Any] = json.load(file)["partitions"]
    return partitions


@cache
def files_of(directory: str) -> dict[str, bytes]:
    """Every file except the indexes, by its path below the log directory, including preallocated tails."""
    found = {}
    with tarfile.open(VECTORS / f"{directory}.tar.xz") as archive:
        for member in archive:
            if member.isfile() and not member.name.endswith((".index", ".timeindex")):
                content = archive.extractfile(member)
                assert content is not None
                found[member.name.partition("/")[2]] = content.read()
    return found
