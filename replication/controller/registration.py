"""What a node's registration means for the replicas it holds (docs/metadata.md).

Kept true:
  1. A registration ends every leadership of the node's earlier life; it begins fenced, so it also leaves every in-sync
     set that another member carries on.
  2. It stays eligible, or the last in-sync member, only by the very bytes it had: same log directory, by id and by the
     number of the last registration, and no damage named; with `page-cache`, the node says too that the directory is
     intact: nothing that only a page cache had is gone. Without them it leaves both sets.
  3. Where both sets become empty by that, the last known leader may lead again with that same directory, and what may
     be lost is reported; with a new or older directory, or damaged, it never does: nothing is elected from nothing.
  4. A process registers only once it has seen the last registration of its node: a late copy of an earlier one counts
     for nothing.
  5. A replica that nobody counts on and whose directory is gone is given a directory that is there.
  6. A process that names metadata of the future is refused.
  7. A process takes the place of one that was heard of a moment ago only where that one has ended for sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from replication.controller.elections import name_of, reformed
from replication.controller.events import RegisterNode
from replication.controller.image import ClusterImage, NodeRegistration, PartitionState, changed
from replication.controller.metadata import LOST_DIRECTORY, NodeRegistrationRecord, PartitionChangeRecord
from replication.controller.placement import DirectoryChooser
from tidelog.errors import DuplicateNodeRegistration, InconsistentClusterId, InvalidRequest, StaleNodeEpoch
from tidelog.types import DirectoryId, Durability, NodeId, PartitionKey


@dataclass(frozen=True, slots=True)
class Judged:
    """A registration's consequences: changes of partitions, and what an operator should read."""

    changes: tuple[PartitionChangeRecord, ...]
    reports: tuple[str, ...]


def refuse_impossible(image: ClusterImage, request: RegisterNode) -> None:
    """Raise what is wrong with the request itself, whoever else is alive."""
    if request.cluster_id != image.cluster_id:
        raise InconsistentClusterId(
            f"node {request.node_id} belongs to cluster {request.cluster_id or '(none)'}, this is cluster "
            f"{image.cluster_id}: check its addresses and its log directories"
        )
    numbers = [directory.last_registration for directory in request.directories]
    refuse_future(image, request.node_id, request.metadata_offset, *numbers)
    ids = [directory.directory_id for directory in request.directories]
    if not ids or len(set(ids)) != len(ids):
        raise InvalidRequest(
            f"node {request.node_id} must name at least one log directory, and each once; it named {ids}"
        )
    if request.node_id < 0 or not request.listeners:
        raise InvalidRequest(f"node {request.node_id} must have a number from 0 and at least one listener")
    for node in image.nodes.values():
        if node.node_id == request.node_id or node.fenced:
            continue
        for directory in node.directories:
            if directory.directory_id in ids:
                raise InvalidRequest(
                    f"log directory {directory.directory_id} of node {request.node_id} is in use by node "
                    f"{node.node_id}: one "
                    "is a copy of the other; give the copy a new directory id"
                )


def refuse_future(image: ClusterImage, node_id: NodeId, *offsets: int) -> None:
    """Raise InvalidRequest where a node claims to have seen metadata that no controller has decided: the active one has
    all that is committed."""
    if max(offsets) > image.offset:
        raise InvalidRequest(
            f"node {node_id} names offset {max(offsets)} of the metadata log, which ends at {image.offset}: it is "
            "faulty, or was in another cluster"
        )


def refuse_late(request: RegisterNode, previous: NodeRegistration) -> None:
    """Raise StaleNodeEpoch where the process has not seen its node's last registration: it may be one from before that,
    whose words were long on their way. By what it says of its directories they would be older copies of themselves."""
    if request.metadata_offset <= previous.node_epoch:
        raise StaleNodeEpoch(
            f"node {request.node_id} was registered with number {previous.node_epoch}, this process has applied the "
            f"metadata log up to {request.metadata_offset}: it registers once it has seen that registration"
        )


def has_ended(node: NodeRegistration, request: RegisterNode) -> bool:
    """Is the process that registered before gone, whatever its session says? The one that asks runs on the same boot of
    the same machine and has the lock of every directory of that one: the directory itself, by the number written there.

    A lock holds among the processes of one machine, wherever the directory lies. Of a copy on another machine it says
    nothing, so the boot has to be the same one.
    """
    written = {directory.directory_id: directory.last_registration for directory in request.directories}
    return request.boot_id == node.boot_id and all(
        written.get(directory.directory_id) == node.node_epoch for directory in node.directories
    )


def duplicate(node: NodeRegistration, remaining_ms: int) -> DuplicateNodeRegistration:
    """Why a second process of a live node is refused."""
    return DuplicateNodeRegistration(
        f"node {node.node_id} is registered and alive as incarnation {node.incarnation}: if that process is gone, its "
        f"session ends in {remaining_ms} ms; if it is not, give one of the two another node id"
    )


def record_of(request: RegisterNode) -> NodeRegistrationRecord:
    """The record that a registration leaves in the log."""
    return NodeRegistrationRecord(
        request.node_id, request.incarnation, request.listeners, request.rack, request.boot_id, request.directories
    )


def judge(image: ClusterImage, request: RegisterNode, previous: NodeRegistration | None) -> Judged:
    """What the registration does to partitions.

    image: with the registration applied already. previous: the node's entry before it, None the first time.
    """
    judge = _Judge(image, request, previous)
    changes = tuple(change for state in image.partitions() if (change := judge.change(state)) is not None)
    return Judged(changes, tuple(judge.reports))


class _Judge:
    def __init__(self, image: ClusterImage, request: RegisterNode, previous: NodeRegistration | None) -> None:
        self._image, self._me = image, request.node_id
        self._durability = {topic.topic_id: topic.durability for topic in image.topics.values()}
        self._chooser = DirectoryChooser(image)
        self._damaged: Mapping[PartitionKey, str] = {damage.key: damage.reason for damage in request.damaged}
        known = {} if previous is None else previous.known_directories()
        self._named = {directory.directory_id for directory in request.directories}
        self._older = {
            directory.directory_id
            for directory in request.directories
            if directory.directory_id in known and directory.last_registration < known[directory.directory_id]
        }
        self._intact = request.intact
        self.reports: list[str] = []

    def change(self, state: PartitionState) -> PartitionChangeRecord | None:
        """What the registration changes in one partition."""
        if self._me not in state.replicas:
            return None
        counted = self._me in state.counted_on
        lost = counted and self._has_lost(state)
        staying = tuple(node for node in state.isr if node != self._me)
        if self._me in state.isr and not staying and not lost:
            staying = state.isr
        change = reformed(self._image, state, staying, lost=(self._me,) if lost else ())
        after = state if change is None else changed(state, change)
        if self._me in after.counted_on:
            mine = (
                self._directory_left(after)
                if lost or self._me in after.last_known_elr
                else after.directory_of(self._me)
            )
        else:
            mine = self._directory_at_hand(after)
        if counted and self._me in after.counted_on and not after.isr and not after.elr:
            self._report_loss(state)
        if (directories := self._directories(after, mine)) is not None:
            change = replace(change or PartitionChangeRecord(state.topic_id, state.partition), directories=directories)
        return change

    def _has_lost(self, state: PartitionState) -> bool:
        """Has this node not got all that it had in this replica when it was last heard of?"""
        directory = state.directory_of(self._me)
        if state.key in self._damaged or directory in self._older or directory not in self._named:
            return True
        return self._page_cache_is_gone(state)

    def _page_cache_is_gone(self, state: PartitionState) -> bool:
        """Did the replica count on a page cache that is gone?"""
        intact = state.directory_of(self._me) in self._intact
        return not intact and self._durability[state.topic_id] is Durability.PAGE_CACHE

    def _directory_left(self, state: PartitionState) -> DirectoryId:
        """The directory by which a replica that led last may lead again, should nobody else: LOST where it never
        may."""
        directory = state.directory_of(self._me)
        return LOST_DIRECTORY if state.key in self._damaged or directory in self._older else directory

    def _report_loss(self, state: PartitionState) -> None:
        name, directory, damage = (
            name_of(self._image, state),
            state.directory_of(self._me),
            self._damaged.get(state.key),
        )
        who = f"node {self._me}, the last in-sync replica of {name},"
        nobody = f"nobody leads {name}; `tidelog partition why-unavailable {name}` says what to do"
        if damage is not None:
            self.reports.append(f"{who} found its log damaged ({damage}): {nobody}")
        elif directory in self._older:
            self.reports.append(f"{who} came with an older copy of log directory {directory}: {nobody}")
        elif directory == LOST_DIRECTORY:
            self.reports.append(f"{who} has come with less than it had, by what it said before: {nobody}")
        elif directory not in self._named:
            self.reports.append(
                f"{who} came without log directory {directory}: nobody leads {name} until it is given back"
            )
        elif self._page_cache_is_gone(state):
            self.reports.append(
                f"{who} lost what its machine had not written when it rebooted; it may lead what is left"
            )

    def _directory_at_hand(self, state: PartitionState) -> DirectoryId:
        """The directory for a replica that need not have the bytes: its present one if it is there, else a chosen
        one."""
        directory = state.directory_of(self._me)
        return directory if directory in self._named else self._chooser.choose(self._image.nodes[self._me])

    def _directories(self, state: PartitionState, mine: DirectoryId) -> tuple[DirectoryId, ...] | None:
        """All replicas' directories with this node's set to `mine`; None where it is so already."""
        if state.directory_of(self._me) == mine:
            return None
        return tuple(
            mine if node == self._me else directory
            for node, directory in zip(state.replicas, state.directories, strict=True)
        )
