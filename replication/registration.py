"""What a node's registration means for the replicas it holds (docs/metadata.md).

Kept true:
  1. A registration ends every leadership of the node's earlier life; it begins fenced, so it also leaves every in-sync
     set that another member carries on.
  2. Where the node is the last in-sync member, it keeps its place only by the very bytes it had: same data folder, by
     id and by the number of the last registration, and no damage named. A page-cache replica must also not have seen
     its machine reboot, unless it is the last one: then it may lead, and what may be lost is reported.
  3. A last member without those bytes stays named in the set, but never leads: nothing is elected from nothing.
  4. A replica that is in no set and whose folder is gone is given a folder that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replication.controller_events import RegisterNode
from replication.elections import choose_leader
from replication.image import ClusterImage, NodeRegistration, PartitionState
from replication.metadata import LOST_FOLDER, NodeRegistrationRecord, PartitionChangeRecord
from replication.placement import FolderChooser
from tidelog.errors import DuplicateNodeRegistration, InconsistentClusterId, InvalidRequest
from tidelog.types import NO_NODE, Durability, FolderId, PartitionKey


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
            f"{image.cluster_id}: check its addresses and its data folders"
        )
    ids = [folder.folder_id for folder in request.folders]
    if not ids or len(set(ids)) != len(ids):
        raise InvalidRequest(
            f"node {request.node_id} must name at least one data folder, and each once; it named {ids}"
        )
    if request.node_id < 0 or not request.listeners:
        raise InvalidRequest(f"node {request.node_id} must have a number from 0 and at least one listener")
    for node in image.nodes.values():
        if node.node_id == request.node_id or node.fenced:
            continue
        for folder in node.folders:
            if folder.folder_id in ids:
                raise InvalidRequest(
                    f"data folder {folder.folder_id} of node {request.node_id} is in use by node {node.node_id}: one "
                    "is a copy of the other; give the copy a new folder id"
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
        request.node_id, request.incarnation, request.listeners, request.rack, request.boot_id, request.folders
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
        self._chooser = FolderChooser(image)
        self._damaged: Mapping[PartitionKey, str] = {damage.key: damage.reason for damage in request.damaged}
        known = {} if previous is None else previous.known_folders()
        self._named = {folder.folder_id for folder in request.folders}
        self._older = {
            folder.folder_id
            for folder in request.folders
            if folder.folder_id in known and folder.last_registration < known[folder.folder_id]
        }
        self._rebooted = previous is not None and previous.boot_id != request.boot_id
        self.reports: list[str] = []

    def change(self, state: PartitionState) -> PartitionChangeRecord | None:
        """What the registration changes in one partition."""
        if self._me not in state.replicas:
            return None
        staying = tuple(node for node in state.isr if node != self._me)
        if self._me in state.isr and not staying:
            return self._change_of_last_member(state)
        leads = state.leader == self._me
        leaves = self._me in state.isr
        folders = self._folders(state, self._folder_at_hand(state))
        if not (leaves or folders):
            return None
        return PartitionChangeRecord(
            state.topic_id,
            state.partition,
            leader=choose_leader(self._image, state, staying) if leads else None,
            isr=staying if leaves else None,
            folders=folders,
        )

    def _change_of_last_member(self, state: PartitionState) -> PartitionChangeRecord | None:
        """The set cannot do without this node: it stays, and leads again only where it still has the bytes."""
        folder = state.folder_of(self._me)
        damage = self._damaged.get(state.key)
        lost = damage is not None or folder in self._older
        self._report(state, folder, damage)
        folders = self._folders(state, LOST_FOLDER if lost else folder)
        if state.leader != self._me and not folders:
            return None
        leader = NO_NODE if state.leader == self._me else None
        return PartitionChangeRecord(state.topic_id, state.partition, leader=leader, folders=folders)

    def _report(self, state: PartitionState, folder: FolderId, damage: str | None) -> None:
        name = f"{self._image.topics[state.topic_id].name}-{state.partition}"
        who = f"node {self._me}, the last in-sync replica of {name},"
        if damage is not None:
            self.reports.append(f"{who} found its log damaged ({damage}): nobody leads {name}")
        elif folder in self._older:
            self.reports.append(f"{who} came with an older copy of data folder {folder}: nobody leads {name}")
        elif folder not in self._named:
            self.reports.append(f"{who} came without data folder {folder}: nobody leads {name} until it is given back")
        elif self._rebooted and self._durability[state.topic_id] is Durability.PAGE_CACHE:
            self.reports.append(
                f"{who} lost what its machine had not written when it rebooted; it may lead what is left"
            )

    def _folder_at_hand(self, state: PartitionState) -> FolderId:
        """The folder for a replica that need not have the bytes: its present one if it is there, else a chosen one."""
        folder = state.folder_of(self._me)
        return folder if folder in self._named else self._chooser.choose(self._image.nodes[self._me])

    def _folders(self, state: PartitionState, mine: FolderId) -> tuple[FolderId, ...] | None:
        """All replicas' folders with this node's set to `mine`; None where it is so already."""
        if state.folder_of(self._me) == mine:
            return None
        return tuple(
            mine if node == self._me else folder for node, folder in zip(state.replicas, state.folders, strict=True)
        )
