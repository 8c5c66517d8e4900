"""Effects of a node's registration on the replicas of the node (docs/metadata.md).

Invariants:
  1. A registration ends every leadership of the node's earlier process. The new process starts fenced, so it leaves
     every in-sync set that has another member.
  2. A replica stays eligible, or the last in-sync member, only with its complete log: the same log directory, by id and
     by the number of the last registration, and no reported damage; with `page-cache` durability the node must also
     report the directory as intact, which means that no unsynced write is lost. Otherwise the replica leaves both sets.
  3. If both sets become empty by that, the last known leader may lead again with the same directory, and the possible
     loss is reported. With a new, older or damaged directory it may not: an empty log is never elected.
  4. A process registers only after it has seen the last registration of its node. A late copy of an earlier request has
     no effect.
  5. A replica whose log need not be kept (`PartitionState.counted_on`) and whose directory is gone is assigned to an
     existing directory.
  6. A process that names offsets beyond the end of the metadata log is rejected.
  7. What a registration adds to the metadata log is bounded: names and lists of any length are rejected.
  8. A process replaces one with a running session only if that process has certainly ended.

Not here: elections (elections.py), sessions (sessions.py), whether the replaced process answers (node/controller/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from replication.controller.elections import name_of, reformed
from replication.controller.events import RegisterNode
from replication.controller.image import ClusterImage, NodeRegistration, PartitionState, changed
from replication.controller.metadata_records import LOST_DIRECTORY, NodeRegistrationRecord, PartitionChangeRecord
from replication.controller.placement import DirectoryChooser
from tidelog.errors import DuplicateNodeRegistration, InconsistentClusterId, InvalidRequest, StaleNodeEpoch
from tidelog.types import DirectoryId, Durability, NodeId, PartitionKey
from tidelog.values import dataclass

NAME_LENGTH_MAX: Final = 255
"""Characters of a rack, a listener's name or a host (the limit of DNS), and bytes of a boot id."""

LISTENERS_MAX: Final = 64
DIRECTORIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Judged:
    """Consequences of a registration: partition changes, and messages for operators."""

    changes: tuple[PartitionChangeRecord, ...]
    reports: tuple[str, ...]


def refuse_impossible(image: ClusterImage, request: RegisterNode) -> None:
    """Raise an error for a request that is invalid by itself, whichever nodes are alive."""
    if request.cluster_id != image.cluster_id:
        raise InconsistentClusterId(
            f"node {request.node_id} belongs to cluster {request.cluster_id or '(none)'}, this is cluster "
            f"{image.cluster_id}: check its configured addresses and its log directories"
        )
    numbers = [directory.last_registration for directory in request.directories]
    refuse_future(image, request.node_id, request.metadata_offset, *numbers)
    ids = [directory.directory_id for directory in request.directories]
    if not ids or len(set(ids)) != len(ids):
        raise InvalidRequest(
            f"node {request.node_id} must name at least one log directory, and each only once; it named {ids}"
        )
    if request.node_id < 0 or not request.listeners:
        raise InvalidRequest(f"node {request.node_id} must have an id of at least 0 and at least one listener")
    _refuse_large(request)
    for node in image.nodes.values():
        if node.node_id == request.node_id or node.fenced:
            continue
        for directory in node.directories:
            if directory.directory_id in ids:
                raise InvalidRequest(
                    f"log directory {directory.directory_id} of node {request.node_id} is in use by node "
                    f"{node.node_id}: one is a copy of the other; give the copy a new directory id"
                )


def _refuse_large(request: RegisterNode) -> None:
    """Raise InvalidRequest for a registration whose record would be larger than that of any node."""
    if len(request.listeners) > LISTENERS_MAX or len(request.directories) > DIRECTORIES_MAX:
        raise InvalidRequest(
            f"node {request.node_id} names {len(request.listeners)} listeners and {len(request.directories)} log "
            f"directories: at most {LISTENERS_MAX} and {DIRECTORIES_MAX} are allowed"
        )
    hosts = [endpoint.host for endpoint in request.listeners.values()]
    longest = max(len(text) for text in (request.rack, request.boot_id, *request.listeners, *hosts))
    if longest > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"node {request.node_id} names a rack, listener, host or boot id of {longest} characters: at most "
            f"{NAME_LENGTH_MAX} are allowed"
        )
    for name, endpoint in request.listeners.items():
        if not 0 < endpoint.port <= 65_535:
            raise InvalidRequest(
                f"node {request.node_id} names port {endpoint.port} for listener {name!r}: valid are 1 to 65535"
            )


def refuse_future(image: ClusterImage, node_id: NodeId, *offsets: int) -> None:
    """Raise InvalidRequest if a node names a metadata offset above the end of the log. The active controller has all
    committed records."""
    if max(offsets) > image.offset:
        raise InvalidRequest(
            f"node {node_id} names offset {max(offsets)} of the metadata log, which ends at {image.offset}: the node "
            "is faulty, or belonged to another cluster"
        )


def refuse_late(request: RegisterNode, previous: NodeRegistration) -> None:
    """Raise StaleNodeEpoch if the process has not seen its node's last registration. The request may be older than that
    registration and delayed; its directories would be taken for older copies of themselves."""
    if request.metadata_offset <= previous.node_epoch:
        raise StaleNodeEpoch(
            f"node {request.node_id} is registered with node epoch {previous.node_epoch}, this process has applied the "
            f"metadata log up to offset {request.metadata_offset}: it may register once it has seen that registration"
        )


def has_ended(node: NodeRegistration, request: RegisterNode) -> bool:
    """Whether the previously registered process has certainly ended, even if its session is running. True if the new
    process runs on the same boot of the same machine and has the lock of every directory of the old process: the same
    directory, by the number written there.

    A lock excludes other processes on one machine only. A copy of the directory on another machine is not locked, so
    the boot id must be equal.
    """
    written = {directory.directory_id: directory.last_registration for directory in request.directories}
    return request.boot_id == node.boot_id and all(
        written.get(directory.directory_id) == node.node_epoch for directory in node.directories
    )


def duplicate(node: NodeRegistration, remaining_ms: int) -> DuplicateNodeRegistration:
    """The error for a second process of a live node."""
    return DuplicateNodeRegistration(
        f"node {node.node_id} is registered and alive as incarnation {node.incarnation}: if that process has ended, "
        f"its session ends in {remaining_ms} ms; otherwise give one of the two processes another node id"
    )


def record_of(request: RegisterNode) -> NodeRegistrationRecord:
    """The metadata record of a registration."""
    return NodeRegistrationRecord(
        request.node_id, request.incarnation, request.listeners, request.rack, request.boot_id, request.directories
    )


def judge(image: ClusterImage, request: RegisterNode, previous: NodeRegistration | None) -> Judged:
    """The effects of a registration on partitions.

    image: with the registration already applied. previous: the node's entry before it, None for a new node.
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
        self._intact = request.intact_directories
        self.reports: list[str] = []

    def change(self, state: PartitionState) -> PartitionChangeRecord | None:
        """The change of one partition; None if the registration does not affect it."""
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
        """Whether this replica lacks records that it had when it last reported."""
        directory = state.directory_of(self._me)
        if state.key in self._damaged or directory in self._older or directory not in self._named:
            return True
        return self._page_cache_is_lost(state)

    def _page_cache_is_lost(self, state: PartitionState) -> bool:
        """Whether the replica depends on a page cache that is lost."""
        intact = state.directory_of(self._me) in self._intact
        return not intact and self._durability[state.topic_id] is Durability.PAGE_CACHE

    def _directory_left(self, state: PartitionState) -> DirectoryId:
        """The directory with which a last known leader may lead again; LOST if it never may."""
        directory = state.directory_of(self._me)
        return LOST_DIRECTORY if state.key in self._damaged or directory in self._older else directory

    def _report_loss(self, state: PartitionState) -> None:
        name, directory, damage = (
            name_of(self._image, state),
            state.directory_of(self._me),
            self._damaged.get(state.key),
        )
        who = f"node {self._me}, the last in-sync replica of {name},"
        leaderless = f"{name} has no leader; run `tidelog partition why-unavailable {name}` for the next steps"
        if damage is not None:
            self.reports.append(f"{who} found its log damaged ({damage}): {leaderless}")
        elif directory in self._older:
            self.reports.append(f"{who} registered with an older copy of log directory {directory}: {leaderless}")
        elif directory == LOST_DIRECTORY:
            self.reports.append(f"{who} is known to have lost records, as reported earlier: {leaderless}")
        elif directory not in self._named:
            self.reports.append(
                f"{who} registered without log directory {directory}: {name} has no leader until it is restored"
            )
        elif self._page_cache_is_lost(state):
            self.reports.append(f"{who} lost unsynced records when its machine rebooted; it may lead with the rest")

    def _directory_at_hand(self, state: PartitionState) -> DirectoryId:
        """The directory for a replica that does not need its old log: its present one if it exists, else a chosen
        one."""
        directory = state.directory_of(self._me)
        return directory if directory in self._named else self._chooser.choose(self._image.nodes[self._me])

    def _directories(self, state: PartitionState, mine: DirectoryId) -> tuple[DirectoryId, ...] | None:
        """The directories of all replicas with this node's set to `mine`; None if that changes nothing."""
        if state.directory_of(self._me) == mine:
            return None
        return tuple(
            mine if node == self._me else directory
            for node, directory in zip(state.replicas, state.directories, strict=True)
        )
