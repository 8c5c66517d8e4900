"""Completion or rollback of an interrupted cleaning or deletion, by the files in a log's directory.

    .cleaned    a segment that a cleaning was writing: nothing depends on it; it is removed
    .swap       a complete, durable cleaned segment: the segments that it replaces are removed, and it takes their place
    .deleted    a segment that already left the log: it is removed

Of a cleaned segment's files, the `.log` becomes `.swap` last and takes its final name first. So a `.log.swap` shows
that all its files exist. An index `.swap` without it is removed, and rebuilt if it is missing. A `.swap` at or after a
`.cleaned` is part of a segment split by an older Kafka, whose source still exists: it is removed as well.
Invariants: if this step is interrupted too, the next start completes it. No offset that a reader could have seen is
lost, and none appears twice.
Source: Kafka's LogLoader; KAFKA-6264 for the splitting.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import Final

from storage.files.file_system import Files, remove_files
from storage.segment.batch_walk import BrokenChain, walk_file
from storage.segment.segment import ALL_SUFFIXES, LOG_SUFFIX, segment_path
from storage.segment.segments import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

_NAME: Final = re.compile(r"(?P<base>\d{20})(?P<kind>\.[a-z]+)(?P<state>\.[a-z]+)?")


def finish_interrupted(files: Files, directory: str) -> list[str]:
    """Complete or roll back interrupted work, before the directory's segments are listed. Returns sentences that
    describe it. Raises OSError."""
    names = files.list(directory)
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)) for name in names):
        return []
    found = [match for match in map(_NAME.fullmatch, names) if match is not None]
    deleted = [match[0] for match in found if match["state"] == DELETED_SUFFIX]
    cleaned = [match for match in found if match["state"] == CLEANED_SUFFIX]
    first_cleaned = min((int(match["base"]) for match in cleaned), default=None)
    swaps = sorted(
        int(match["base"]) for match in found if match["state"] == SWAP_SUFFIX and match["kind"] == LOG_SUFFIX
    )
    complete = [base for base in swaps if first_cleaned is None or base < first_cleaned]
    incomplete = [match[0] for match in found if match["state"] == SWAP_SUFFIX and int(match["base"]) not in complete]
    notes = []
    if incomplete:
        remove_files(files, (f"{directory}/{name}" for name in incomplete))
        files.sync_directory(directory)
    if complete:
        notes.append(_swap_in(files, directory, complete))
    if cleaned:
        remove_files(files, (f"{directory}/{match[0]}" for match in cleaned))
        notes.append(f"{directory}: a cleaning was interrupted: its {len(cleaned)} unfinished files were removed")
    remove_files(files, (f"{directory}/{name}" for name in deleted))
    return notes


def _swap_in(files: Files, directory: str, bases: list[int]) -> str:
    """Replace segments by the cleaned segments made of them."""
    end = max(_next_offset(files, segment_path(directory, base, LOG_SUFFIX) + SWAP_SUFFIX, base) for base in bases)
    replaced = range(bases[0], max(end, bases[-1] + 1))
    old = []
    for name in files.list(directory):
        match = _NAME.fullmatch(name)
        if (
            match is not None
            and match["state"] is None
            and match["kind"] in ALL_SUFFIXES
            and int(match["base"]) in replaced
        ):
            old.append(name)
    old.sort(key=lambda name: name.endswith(LOG_SUFFIX))
    remove_files(files, (f"{directory}/{name}" for name in old))
    files.sync_directory(directory)
    for base in bases:
        for kind in ALL_SUFFIXES:
            path = segment_path(directory, base, kind)
            if files.size(path + SWAP_SUFFIX) is not None:
                files.rename(path + SWAP_SUFFIX, path)
    files.sync_directory(directory)
    return (
        f"{directory}: an interrupted cleaning was completed: offsets {replaced.start}..{replaced.stop - 1} "
        f"were replaced"
    )


def _next_offset(files: Files, path: str, base: int) -> int:
    """The offset after the last readable batch of a segment."""
    end = base
    with closing(files.open(path, read_only=True)) as file, suppress(BrokenChain):
        for header in walk_file(file, 0, file.size(), base):
            end = header.last_offset + 1
    return end
