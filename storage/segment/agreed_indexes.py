"""Transaction indexes known to agree with their segments: the file `transaction-index-agreement` of a log.

    0                                          version
    1                                          segments that follow
    137 1048001 2 2882343476 120               base offset; bytes of the .log; entries of the .txnindex, their CRC-32C;
                                               first offset of the oldest transaction open at its end, -1: none
    crc 3735928559                             CRC-32C of the lines above

Invariants: an entry is valid as long as both files have the recorded sizes and checksum. A truncated or corrupt file is
ignored as a whole. The file is derived data: replaced atomically, not synced. Entries that a truncation or recovery
invalidates are removed durably before anything is appended, because the segment could grow to the same size again.
Not here: the comparison (aborted_transactions.py). Kafka does not know this file and ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from storage.files.file_system import Files, read_file, remove_files, write_file
from tidelog.records.v2.checksum import crc32c
from tidelog.types import Offset

AGREEMENT_FILE: Final = "transaction-index-agreement"
_VERSION: Final = "0"


class Agreement(NamedTuple):
    """Sizes and checksum of a segment and its index when they agreed. open_since: -1 for none."""

    log_bytes: int
    index_entries: int
    index_checksum: int
    open_since: Offset


def write_agreements(
    files: Files, directory: str, agreements: Mapping[Offset, Agreement], *, sync: bool = False
) -> None:
    """Replace the contents of the file. Raises OSError."""
    lines = [_VERSION, str(len(agreements))]
    lines += [" ".join(map(str, (base, *agreement))) for base, agreement in sorted(agreements.items())]
    text = "".join(f"{line}\n" for line in lines).encode()
    write_file(files, f"{directory}/{AGREEMENT_FILE}", text + b"crc %d\n" % crc32c(text), sync=sync)


def read_agreements(files: Files, directory: str) -> dict[Offset, Agreement]:
    """Agreements by base offset, empty if the file is missing or invalid. Raises OSError."""
    return parse_agreements(read_file(files, f"{directory}/{AGREEMENT_FILE}") or b"") or {}


def parse_agreements(data: bytes) -> dict[Offset, Agreement] | None:
    """Agreements by base offset; None if the file is truncated, corrupt or of another version."""
    text, found, checksum = data.rpartition(b"crc ")
    if not found or checksum != b"%d\n" % crc32c(text):
        return None
    version, count, *lines = text.decode("ascii").splitlines()
    if version != _VERSION or int(count) != len(lines):
        return None
    rows = [[int(number) for number in line.split(" ")] for line in lines]
    return {Offset(base): Agreement(log, index, crc, Offset(since)) for base, log, index, crc, since in rows}


def remove_agreements(files: Files, directory: str) -> bool:
    """Remove the file; the caller syncs the directory. Returns True if the file existed. Raises OSError."""
    return remove_files(files, [f"{directory}/{AGREEMENT_FILE}"])
