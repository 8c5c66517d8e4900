"""The dump of a path: the files of a partition directory or a log directory, each checked against the others.

Invariants: nothing is opened for writing, nothing is locked. A file that disappears meanwhile, as on a running node, is
skipped.
Not here: reading and checking (log_file.py, log_chain.py, segment_files.py, small_files.py), the output (command.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from storage.checkpoints.checkpoint_file import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_DIRECTORY,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    encode_topic_id,
    read_epochs,
    read_offsets,
    read_partition_metadata,
)
from storage.checkpoints.directory_identity import META_PROPERTIES
from storage.checkpoints.durable_offsets import DURABLE_MARKS, parse_marks
from storage.dump.dump_events import DumpFinding, Events, LogSummed, Severity, damage, note
from storage.dump.log_chain import LogChain, LogFacts
from storage.dump.segment_files import dump_index_alone, dump_segment
from storage.dump.small_files import ASIDE, dump_small, kind_of
from storage.files.file_system import Files, read_file
from storage.producers.snapshot_files import snapshot_offset
from storage.segment.segment import LOG_SUFFIX, SEGMENT_FILE
from tidelog.errors import CorruptLog
from tidelog.types import EpochStart, Offset, PartitionIndex, PartitionKey, TopicPartition

FINDINGS_MAX: Final = 20
"""Findings shown for each file. The others are only counted."""

_OUT_OF_USE: Final = re.compile(r".+-\d+\.[0-9a-f]+-(?P<why>stray|delete|future)")
_READ_ONE: Final = "to read one, give its path"
_INTERRUPTED: Final = ("left by an interrupted operation", "nothing: the next start completes it or rolls it back")
_ASIDE_REASONS: Final = {".deleted": ("wait to be deleted", _READ_ONE), ".stray": ("were set aside", _READ_ONE)}


class NotFound(Exception):
    """The path in the message does not exist."""


def dump(files: Files, path: str, *, records: bool) -> Events:
    """All events of a file, a partition directory or a log directory. records: also an event for each record.

    Raises NotFound, OSError.
    """
    path = path.rstrip("/") or "/"
    if files.is_directory(path):
        names = files.list(path)
        segments = (name for name in names if SEGMENT_FILE.fullmatch(name) and name.endswith(LOG_SUFFIX))
        if (PARTITION_METADATA in names or any(segments)) and META_PROPERTIES not in names:
            yield from dump_log_directory(files, path, records=records)
        else:
            yield from _log_directory(files, path, names, records=records)
    elif files.size(path) is None:
        raise NotFound(f"no such file or directory: {path}")
    else:
        yield from _file(files, path, records=records)


def _log_directory(files: Files, path: str, names: Sequence[str], *, records: bool) -> Events:
    directories = [name for name in names if files.is_directory(f"{path}/{name}")]
    for name in names:
        program_log = name.endswith(LOG_SUFFIX)  # `tidelog up` writes node.log beside the log directory's files
        if name not in directories and name != ".lock" and not program_log and not name.endswith(ASIDE):
            yield from _unless_gone(_file(files, f"{path}/{name}", records=records))
    yield from _out_of_use(files, path, names)
    for name in directories:
        out_of_use = _OUT_OF_USE.fullmatch(name)
        if out_of_use is not None:
            cause = "set aside" if out_of_use["why"] == "stray" else f"in its name: {out_of_use['why']}"
            yield note(f"{path}/{name}", f"the directory is out of use ({cause})", "to read it, give its path")
        elif PARTITION_DIRECTORY.fullmatch(name):
            yield from _unless_gone(dump_log_directory(files, f"{path}/{name}", records=records))
    yield from _missing(files, path, directories)


def _unless_gone(events: Events) -> Events:
    """The events of a file or directory, until it disappears: a running node deletes and replaces files."""
    try:
        yield from events
    except FileNotFoundError:
        return


def _missing(files: Files, path: str, directories: Sequence[str]) -> Events:
    """Logs with durable records and without a directory."""
    present = {
        (read_partition_metadata(files, f"{path}/{name}"), int(match["partition"]))
        for name in directories
        if (match := PARTITION_DIRECTORY.fullmatch(name))
    }
    for key, durable_offset in filter(None, parse_marks(read_file(files, f"{path}/{DURABLE_MARKS}") or b"")):
        if (key.topic_id, key.partition) not in present:
            yield damage(
                path,
                f"partition {key.partition} of the topic with id {encode_topic_id(key.topic_id)} has no directory, but "
                f"everything below offset {durable_offset} of it was reported as durable",
                "look for it among the directories that were set aside, and on other disks; otherwise it is fetched "
                "again from another replica",
                first=0,
                last=durable_offset - 1,
            )


def known_of(files: Files, directory: str) -> LogFacts:
    """What the log directory around a partition directory records about its log."""
    outer, _, name = directory.rpartition("/")
    match = PARTITION_DIRECTORY.fullmatch(name)
    outer = outer or "."
    if match is None:
        return LogFacts()
    tp = TopicPartition(match["topic"], PartitionIndex(int(match["partition"])))
    recovery_points = _offsets_of(files, f"{outer}/{RECOVERY_POINT_CHECKPOINT}")
    durable_below: list[int] = [] if recovery_points is None else [recovery_points.get(tp, Offset(0))]
    topic_id = read_partition_metadata(files, directory)
    marks = read_file(files, f"{outer}/{DURABLE_MARKS}")
    if topic_id is not None and marks is not None:
        durable_offset = dict(mark for mark in parse_marks(marks) if mark is not None)
        durable_below.append(durable_offset.get(PartitionKey(topic_id, tp.partition), Offset(0)))
    return LogFacts(
        durable_below=max(durable_below) if durable_below else None,
        log_start=(_offsets_of(files, f"{outer}/{LOG_START_CHECKPOINT}") or {}).get(tp),
        cleaned_to=(_offsets_of(files, f"{outer}/{CLEANER_CHECKPOINT}") or {}).get(tp),
        in_log_directory=files.size(f"{outer}/{META_PROPERTIES}") is not None,
    )


def _offsets_of(files: Files, path: str) -> dict[TopicPartition, Offset] | None:
    if files.size(path) is None:
        return None
    try:
        return read_offsets(files, path)
    except CorruptLog:
        return None


def dump_log_directory(files: Files, directory: str, *, records: bool) -> Events:
    """A partition directory: its small files, then its segments, checked against each other."""
    known = known_of(files, directory)  # before the log: on a running node the log only grows meanwhile
    names = files.list(directory)
    segments = sorted(name for name in names if SEGMENT_FILE.fullmatch(name) and name.endswith(LOG_SUFFIX))
    epochs_path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    chain = LogChain(known, _epochs_of(files, epochs_path), epochs_path)
    tally = _Tally()
    for name in names:
        if not SEGMENT_FILE.fullmatch(name) and not name.endswith(ASIDE) and snapshot_offset(name) is None:
            yield from tally.count(_unless_gone(_file(files, f"{directory}/{name}", records=records)))
    yield from tally.count(_out_of_use(files, directory, names))
    for name in segments:
        yield from tally.count(_segment(files, f"{directory}/{name}", names, chain, records=records))
    for name in names:
        match = SEGMENT_FILE.fullmatch(name)
        if match and f"{match['base']}{LOG_SUFFIX}" not in segments:
            yield from tally.count(
                iter((note(f"{directory}/{name}", "it has no .log file beside it", "nothing: it is not used"),))
            )
    yield from tally.count(_snapshots(files, directory, names, chain.next_offset if segments else None))
    yield from tally.count(chain.end(directory) if segments else iter(()))
    first = int(segments[0][:20]) if segments else None
    start = first if known.log_start is None or first is None else max(first, known.log_start)
    yield _sum(files, directory, [f"{directory}/{name}" for name in segments], start, chain, tally)


def _out_of_use(files: Files, directory: str, names: Sequence[str]) -> Events:
    """Files with one of the suffixes in ASIDE, as one finding per suffix."""
    for suffix in ASIDE:
        found = [name for name in names if name.endswith(suffix)]
        if found:
            size = sum(files.size(f"{directory}/{name}") or 0 for name in found)
            some = ", ".join(found[:3]) + (f" … {found[-1]}" if len(found) > 3 else "")
            what, step = _ASIDE_REASONS.get(suffix, _INTERRUPTED)
            yield note(directory, f"{len(found)} {suffix} file(s), {size} bytes, {what}: {some}", step)


def _segment(files: Files, path: str, names: Sequence[str], chain: LogChain, *, records: bool) -> Events:
    try:
        yield from dump_segment(files, path, names, chain, records=records)
    except FileNotFoundError:
        chain.segment_removed()


def _snapshots(files: Files, directory: str, names: Sequence[str], log_end: int | None) -> Events:
    for name in names:
        offset = snapshot_offset(name)
        if offset is None:
            continue
        yield from _unless_gone(dump_small(files, f"{directory}/{name}"))
        if log_end is not None and offset > log_end:
            yield note(
                f"{directory}/{name}",
                f"it has the producers at offset {offset}, but the log ends at {log_end}",
                "nothing: it is ignored, and removed when the log is next opened",
                first=log_end,
            )


def _sum(
    files: Files, path: str, segments: Sequence[str], start: int | None, chain: LogChain, tally: _Tally
) -> LogSummed:
    return LogSummed(
        path=path,
        segments=len(segments),
        log_start_offset=start,
        log_end_offset=chain.next_offset,
        batches=chain.batches,
        records=chain.records,
        size=sum(files.size(each) or 0 for each in segments),
        damage=tally.damage,
        notes=tally.notes,
    )


def _epochs_of(files: Files, path: str) -> tuple[EpochStart, ...] | None:
    try:
        return read_epochs(files, path)
    except CorruptLog:
        return None


class _Tally:
    """Numbers of findings of one log."""

    def __init__(self) -> None:
        self.damage = 0
        self.notes = 0

    def count(self, events: Events) -> Events:
        """The same events. Counts their findings, and passes only the first `FINDINGS_MAX` of them on."""
        findings = 0
        last: DumpFinding | None = None
        for event in events:
            if isinstance(event, DumpFinding):
                findings += 1
                last = event
                if event.severity is Severity.DAMAGE:
                    self.damage += 1
                else:
                    self.notes += 1
                if findings > FINDINGS_MAX:
                    continue
            yield event
        if last is not None and findings > FINDINGS_MAX:
            yield note(
                last.path, f"{findings - FINDINGS_MAX} more findings here are not shown", "repair the first ones first"
            )


def _file(files: Files, path: str, *, records: bool) -> Events:
    kind = kind_of(path.rpartition("/")[2])
    if kind == "log":
        tally = _Tally()
        chain = _chain_around(files, path)
        yield from tally.count(dump_segment(files, path, None, chain, records=records))
        yield _sum(files, path, [path], None, chain, tally)
    elif kind in ("index", "timeindex", "txnindex"):
        yield from _Tally().count(dump_index_alone(files, path))
    else:
        yield from dump_small(files, path)


def _chain_around(files: Files, path: str) -> LogChain:
    """For a single .log file: what its directory records. Everything before a later segment counts as durable."""
    directory, _, name = path.rpartition("/")
    directory = directory or "."
    epochs_path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    if not SEGMENT_FILE.fullmatch(name):
        return LogChain(LogFacts(), None, epochs_path)
    known = known_of(files, directory)
    later = [other for other in files.list(directory) if SEGMENT_FILE.fullmatch(other) and other > name]
    later = [other for other in later if other.endswith(LOG_SUFFIX)]
    if later:
        known = replace(known, durable_below=int(later[0][:20]))
    return LogChain(known, _epochs_of(files, epochs_path), epochs_path)
