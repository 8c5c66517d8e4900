"""What a stop in the middle of a cleaning or a deletion has left in a log's directory: finished, or undone.

    .cleaned    a segment that cleaning was writing: nothing depends on it, it goes
    .swap       a cleaned segment, whole and durable, on its way into the log: what it replaces goes, it takes its name
    .deleted    a segment that is out of the log already: it goes

A cleaned segment's `.log` becomes `.swap` last and takes its final name first, so a `.log.swap` says that everything of
it is there; an index's `.swap` without one is dropped, and rebuilt where it is missed. A `.swap` at or behind a
`.cleaned` is half of an older Kafka's splitting of a segment, whose source is still there: it goes as well.
Kept true: a stop in the middle of this changes nothing but how much is left to do; no offset that a reader could have
seen is lost, none is there twice.
Source: Kafka's LogLoader; KAFKA-6264 for the splitting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from storage.files.file_system import Files
from storage.segment.batch_walk import BrokenChain, walk_file
from storage.segment.segment import LOG_SUFFIX, SUFFIXES
from storage.segment.segments import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX

_KINDS: Final = (*SUFFIXES, TRANSACTION_INDEX_SUFFIX)
_NAME: Final = re.compile(r"(?P<base>\d{20})(?P<kind>\.[a-z]+)(?P<state>\.[a-z]+)?")


def finish_interrupted(files: Files, directory: str) -> list[str]:
    """Finish or undo what was interrupted, before the directory's segments are looked for. Returns what was done, in
    sentences. Raises OSError."""
    names = files.list(directory)
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)) for name in names):
        return []
    found = [match for match in map(_NAME.fullmatch, names) if match is not None]
    dead = [match[0] for match in found if match["state"] == DELETED_SUFFIX]
    cleaned = [match for match in found if match["state"] == CLEANED_SUFFIX]
    first_cleaned = min((int(match["base"]) for match in cleaned), default=None)
    swaps = sorted(
        int(match["base"]) for match in found if match["state"] == SWAP_SUFFIX and match["kind"] == LOG_SUFFIX
    )
    whole = [base for base in swaps if first_cleaned is None or base < first_cleaned]
    halves = [match[0] for match in found if match["state"] == SWAP_SUFFIX and int(match["base"]) not in whole]
    notes = []
    if halves:
        _remove(files, directory, halves)
        files.sync_directory(directory)
    if whole:
        notes.append(_swap_in(files, directory, whole))
    if cleaned:
        _remove(files, directory, (match[0] for match in cleaned))
        notes.append(f"{directory}: a cleaning was interrupted; {len(cleaned)} files that it was writing are removed")
    _remove(files, directory, dead)
    return notes


def _swap_in(files: Files, directory: str, bases: list[int]) -> str:
    """Let cleaned segments take the place of those that they were made of."""
    end = max(_next_offset(files, f"{directory}/{_name(base, LOG_SUFFIX)}{SWAP_SUFFIX}", base) for base in bases)
    replaced = range(bases[0], max(end, bases[-1] + 1))
    old = []
    for name in files.list(directory):
        match = _NAME.fullmatch(name)
        if match is not None and match["state"] is None and match["kind"] in _KINDS and int(match["base"]) in replaced:
            old.append(name)
    _remove(files, directory, sorted(old, key=lambda name: name.endswith(LOG_SUFFIX)))
    files.sync_directory(directory)
    for base in bases:
        for kind in _KINDS:
            path = f"{directory}/{_name(base, kind)}"
            if files.size(path + SWAP_SUFFIX) is not None:
                files.rename(path + SWAP_SUFFIX, path)
    files.sync_directory(directory)
    return (
        f"{directory}: an interrupted cleaning is finished: offsets {replaced.start} to {replaced.stop - 1} "
        f"are replaced"
    )


def _next_offset(files: Files, path: str, base: int) -> int:
    """Behind the last batch of a segment; as far as it can be read."""
    file = files.open(path, read_only=True)
    end = base
    try:
        for header in walk_file(file, 0, file.size(), base):
            end = header.last_offset + 1
    except BrokenChain:
        pass
    finally:
        file.close()
    return end


def _name(base: int, kind: str) -> str:
    return f"{base:020d}{kind}"


def _remove(files: Files, directory: str, names: Iterable[str]) -> None:
    for name in names:
        files.remove(f"{directory}/{name}")
