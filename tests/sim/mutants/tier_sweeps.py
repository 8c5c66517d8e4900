"""Planted bugs in the remote tier: sweeps of the store, and deletions that another leader finds under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from node.tiering.orphan_sweep import OrphanSweep
from node.tiering.remote_log_client import RemoteLogClient
from replication.coordination.encoded_segment import segment_head, segment_id_of
from replication.coordination.remote_log_records import segment_record
from replication.coordination.remote_log_requests import OrphansFound, RemoteObject, RemoteSegmentsPage
from replication.coordination.tiering import remote_log_machine
from replication.coordination.tiering.remote_log_machine import RemoteLogMachine
from tests.sim import tier_sweep_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch
from tests.sim.stories import TOPIC
from tidelog.tiering.remote_segment import RemoteSegmentState
from tidelog.types import PartitionKey

FINISHED: Final = RemoteSegmentState.COPY_SEGMENT_FINISHED


def late_uploads_are_kept(patch: Patch) -> None:
    """A coordinator calls nothing an orphan unless the log starts behind it."""
    patch.setattr(
        remote_log_machine,
        "_is_spare",
        lambda known, offset: known.log_start is not None and offset < known.log_start.start_offset,
    )


def sweeps_know_only_finished_segments(patch: Patch) -> None:
    """A coordinator calls the object of a copy under way an orphan."""

    def orphans(self: Any, request: Any) -> OrphansFound:
        copying = [each for each in request.objects if is_spare_copy(self._partitions.get(each.key), each)]
        answer = find(self, request)
        return OrphansFound((*answer.objects, *copying), answer.doubtful)

    def is_spare_copy(known: Any, asked: RemoteObject) -> bool:
        return (
            known is not None
            and known.copying == asked.segment_id
            and remote_log_machine._is_spare(known, asked.start_offset)
        )

    find = RemoteLogMachine._orphans
    patch.setattr(RemoteLogMachine, "_orphans", orphans)


def sweeps_ask_before_they_list(patch: Patch) -> None:
    """A sweep asks the coordinators for all segments, and lists the objects then."""
    pages: dict[PartitionKey, list[RemoteSegmentsPage]] = {}

    async def ask_and_sweep(self: Any) -> Any:
        pages.clear()
        for topic in self._image().topics.values():
            for state in topic.partitions if topic.name == TOPIC else ():
                pages[state.key] = [page async for page in self._client.pages(state.key, None)]
        return await sweep(self)

    async def orphans(_self: Any, objects: Iterable[RemoteObject]) -> OrphansFound:
        return OrphansFound(tuple(each for each in objects if _is_orphan(each, pages.get(each.key, ()))), ())

    sweep = OrphanSweep.sweep
    patch.setattr(OrphanSweep, "sweep", ask_and_sweep)
    patch.setattr(RemoteLogClient, "orphans", orphans)


def _is_orphan(asked: RemoteObject, pages: Iterable[RemoteSegmentsPage]) -> bool:
    segments = [segment for page in pages for segment in page.segments]
    if any(segment_id_of(each) == asked.segment_id for each in segments):
        return False
    starts = [page.log_start.start_offset for page in pages if page.log_start is not None]
    copied = [each for each in map(segment_head, segments) if each.state is FINISHED]
    return any(asked.start_offset < each for each in starts) or any(
        each.start_offset <= asked.start_offset < each.end_offset for each in copied
    )


def a_new_leader_takes_deletions_back(patch: Patch) -> None:
    """A leader that registers has the deletions of the one before it ended: their segments count again."""

    def begin(self: Any, leader: Any, now: Any) -> Any:
        decision, known = began(self, leader, now), self._partitions.get(leader.key)
        if known is None or not decision.records:
            return decision
        back = [segment_record(replace(known.segments.get(each), state=FINISHED)) for each in known.deleting]
        return replace(decision, records=(*decision.records, *back))

    began = RemoteLogMachine._begin
    patch.setattr(RemoteLogMachine, "_begin", begin)


SWEEPS: Final = "tier, sweeps"
COORDINATORS: Final = "tier, coordinators"
TAKEN_BACK: Final = "is COPY_SEGMENT_FINISHED, and was DELETE_SEGMENT_STARTED"

MUTANTS: Final = (
    Mutant(
        late_uploads_are_kept,
        SWEEPS,
        stories.orphan_of_a_dead_leader_is_swept,
        "the object without a segment is removed",
    ),
    Mutant(
        sweeps_know_only_finished_segments,
        SWEEPS,
        stories.sweep_leaves_what_is_under_way,
        "is removed, and its segment is COPY_SEGMENT_STARTED",
    ),
    Mutant(
        sweeps_ask_before_they_list,
        SWEEPS,
        stories.sweep_leaves_what_a_new_leader_has_copied,
        "is removed, and its segment is COPY_SEGMENT_FINISHED",
    ),
    Mutant(
        a_new_leader_takes_deletions_back,
        COORDINATORS,
        stories.leader_dies_while_its_segments_are_deleted,
        TAKEN_BACK,
    ),
    Mutant(
        a_new_leader_takes_deletions_back,
        COORDINATORS,
        stories.leader_dies_while_expired_segments_are_deleted,
        TAKEN_BACK,
    ),
)
