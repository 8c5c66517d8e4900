"""An Iceberg table read as its specification says, without a library for it: metadata, manifests, files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

DELETED = 2


def metadata_file(table: Path) -> Path:
    """The newest metadata of a table of a Hadoop catalog."""
    return max((table / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))


def metadata_of(table: Path) -> dict[str, Any]:
    return dict(json.loads(metadata_file(table).read_text()))


def rows_of(table: Path) -> list[dict[str, Any]]:
    """All rows, by partition and offset."""
    found = metadata_of(table)
    current = [each for each in found["snapshots"] if each["snapshot-id"] == found["current-snapshot-id"]]
    rows: list[dict[str, Any]] = []
    for snapshot in current:
        for manifest in _entries(snapshot["manifest-list"]):
            for entry in _entries(manifest["manifest_path"]):
                if entry["status"] != DELETED:
                    rows += pq.ParquetFile(_path(entry["data_file"]["file_path"])).read().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def _entries(place: str) -> Iterator[Any]:
    with _path(place).open("rb") as file:
        yield from fastavro.reader(file)


def _path(place: str) -> Path:
    return Path(place.removeprefix("file:"))
