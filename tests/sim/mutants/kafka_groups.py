"""Listeners of Kafka's protocol that convert requests of members and producers wrongly, and coordinators that do not
check what comes from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from node.listeners.kafka import kafka_consumer_groups as _consumer_groups
from node.listeners.kafka import kafka_group_offsets, kafka_transactions
from node.listeners.kafka import kafka_groups as _groups
from node.listeners.kafka import kafka_server as _server
from node.requests import group_handlers
from replication.coordination.groups import offset_requests
from tests.sim import kafka_group_stories as stories
from tests.sim.lease_stories import coordinator_without_a_lease_is_asked_again
from tests.sim.mutants.mutant import Mutant, Patch

kafka_consumer_groups: Any = _consumer_groups
kafka_groups: Any = _groups
kafka_server: Any = _server
"""With the names that these modules import."""


def _read_differently(patch: Patch, key: int, change: Callable[[Any], Any]) -> None:
    """change: what becomes of the message of a request, before its value is made of it."""

    def changed(row: Any) -> Any:
        if row.key != key:
            return row
        return replace(row, read=lambda message, version: row.read(change(message), version))

    patch.setattr(kafka_server, "KAFKA_APIS", tuple(map(changed, kafka_server.KAFKA_APIS)))


# --- members of classic groups ----------------------------------------------------------------------------------------


def heartbeats_are_of_the_first_member(patch: Patch) -> None:
    """A heartbeat counts for the first of all members, and not for that which sends it."""
    members: set[str] = set()

    def of_the_first(message: Any) -> Any:
        members.add(message.member_id)
        return message.replace(member_id=min(members))

    _read_differently(patch, kafka_groups.HEARTBEAT.key, of_the_first)


def errors_of_heartbeats_are_lost(patch: Patch) -> None:
    """A member is told that all is well when the group waits for it to join again."""
    response = kafka_groups.HeartbeatResponse
    patch.setattr(kafka_groups, "HeartbeatResponse", lambda _code: response(0))


def errors_of_joins_are_lost(patch: Patch) -> None:
    """A JoinGroup that is refused is answered as if it were accepted."""
    response = kafka_groups.JoinGroupResponse
    patch.setattr(kafka_groups, "JoinGroupResponse", lambda _code, *rest: response(0, *rest))


def errors_of_syncs_are_lost(patch: Patch) -> None:
    """A member whose SyncGroup is refused is told that it has no partitions."""
    response = kafka_groups.SyncGroupResponse
    patch.setattr(kafka_groups, "SyncGroupResponse", lambda _code, *rest: response(0, *rest))


def assignments_are_of_another_member(patch: Patch) -> None:
    """A member gets the assignment that was sent last."""
    last: list[bytes] = [b""]
    response = kafka_groups.SyncGroupResponse

    def mixed(code: int, assignment: bytes, *rest: Any) -> Any:
        sent, last[0] = last[0] or assignment, assignment
        return response(code, sent, *rest)

    patch.setattr(kafka_groups, "SyncGroupResponse", mixed)


def leaving_members_are_not_named(patch: Patch) -> None:
    """A LeaveGroup removes nobody, and is answered as if it did."""
    response = kafka_groups.LeaveGroupResponse

    def left(message: Any, _answer: Any, _version: int) -> Any:
        members = tuple(
            kafka_groups.MemberResponse(each.member_id, each.group_instance_id, 0) for each in message.members
        )
        return response(0, members=members)

    def changed(row: Any) -> Any:
        if row.key != kafka_groups.LEAVE_GROUP.key:
            return row
        return replace(row, read=lambda message, version: row.read(message.replace(members=()), version), write=left)

    patch.setattr(kafka_server, "KAFKA_APIS", tuple(map(changed, kafka_server.KAFKA_APIS)))


def instance_ids_are_lost(patch: Patch) -> None:
    """A static member joins as a dynamic one (KIP-345)."""
    _read_differently(patch, kafka_groups.JOIN_GROUP.key, lambda message: message.replace(group_instance_id=None))


def instance_ids_of_members_are_not_compared(patch: Patch) -> None:
    """The process before a static member that has restarted is told that its id is unknown, and joins again as if it
    were the newer one: it is not fenced (KIP-345)."""
    for row in (kafka_groups.HEARTBEAT, kafka_groups.SYNC_GROUP):
        _read_differently(patch, row.key, lambda message: message.replace(group_instance_id=None))
    _read_differently(patch, kafka_group_offsets.OFFSET_COMMIT.key, lambda each: each.replace(group_instance_id=None))


# --- offsets ----------------------------------------------------------------------------------------------------------


def generations_of_commits_are_not_compared(patch: Patch) -> None:
    """A member commits offsets in whichever generation."""
    check = offset_requests._check_classic

    def lenient(group: Any, asked: Any, *args: Any, **options: Any) -> Any:
        return check(group, replace(asked, member_epoch=group.generation), *args, **options)

    patch.setattr(offset_requests, "_check_classic", lenient)


def errors_of_commits_are_lost(patch: Patch) -> None:
    """A commit that is refused is answered as if it were done."""
    committed = kafka_group_offsets._committed
    patch.setattr(kafka_group_offsets, "_committed", lambda message, codes: committed(message, [0 for _ in codes]))


def offsets_are_of_another_partition(patch: Patch) -> None:
    """The committed offset of a partition is told as that of the next one."""
    fields, last = kafka_group_offsets._fields, [-1]

    def mixed(found: Any) -> dict[str, Any]:
        told = fields(found)
        told["committed_offset"], last[0] = last[0], told["committed_offset"]
        return told

    patch.setattr(kafka_group_offsets, "_fields", mixed)


def coordinators_without_a_lease_send_their_clients_away(patch: Patch) -> None:
    """A client that asks for committed offsets is told to look the coordinator up whenever it may not answer."""
    waits = kafka_group_offsets._fetch_code
    patch.setattr(kafka_group_offsets, "_fetch_code", lambda error: 16 if waits(error) == 14 else waits(error))


def disconnected_coordinators_keep_their_clients(patch: Patch) -> None:
    """A client that asks for committed offsets is told to wait however long the node has had no lease."""
    patch.setattr(group_handlers, "DISCONNECTED_MS", 1 << 40)


# --- members of consumer groups ---------------------------------------------------------------------------------------


def unchanged_assignments_are_told_as_empty(patch: Patch) -> None:
    """A heartbeat without a new assignment takes all partitions away (KIP-848)."""
    response = kafka_consumer_groups.ConsumerGroupHeartbeatResponse

    def emptied(*fields: Any) -> Any:
        *others, assignment = fields
        return response(*others, kafka_consumer_groups.Assignment(()) if assignment is None else assignment)

    patch.setattr(kafka_consumer_groups, "ConsumerGroupHeartbeatResponse", emptied)


def owned_partitions_are_not_passed_on(patch: Patch) -> None:
    """The coordinator never learns that a member has given partitions up (KIP-848)."""
    key = kafka_consumer_groups.CONSUMER_GROUP_HEARTBEAT.key
    _read_differently(patch, key, lambda each: each.replace(topic_partitions=None) if each.member_epoch > 0 else each)


def members_that_leave_stay(patch: Patch) -> None:
    """The epoch with which a member leaves is taken for a further heartbeat (KIP-848)."""
    epochs: dict[str, int] = {}
    key = kafka_consumer_groups.CONSUMER_GROUP_HEARTBEAT.key

    def staying(message: Any) -> Any:
        epochs.setdefault(message.member_id, 1)
        if message.member_epoch > 0:
            epochs[message.member_id] = message.member_epoch
        return message.replace(member_epoch=epochs[message.member_id]) if message.member_epoch == -1 else message

    _read_differently(patch, key, staying)


# --- transactions -----------------------------------------------------------------------------------------------------


def members_of_transactions_are_not_named(patch: Patch) -> None:
    """The offsets of a transaction are committed without a check of its member (KIP-447)."""
    key = kafka_transactions.TXN_OFFSET_COMMIT.key
    _read_differently(patch, key, lambda message: message.replace(member_id="", generation_id=-1))


def aborts_are_commits(patch: Patch) -> None:
    """Every transaction that ends is committed."""
    _read_differently(patch, kafka_transactions.END_TXN.key, lambda message: message.replace(committed=True))


def errors_of_transactional_offsets_are_lost(patch: Patch) -> None:
    """Offsets that are refused are answered as if they were part of the transaction."""
    patch.setattr(kafka_transactions, "_commit_code", lambda _error, _version: 0)


MUTANTS: Final = (
    Mutant(
        heartbeats_are_of_the_first_member,
        "classic groups",
        stories.killed_classic_kafka_member_is_replaced,
        "not within 5 s",
    ),
    Mutant(
        errors_of_heartbeats_are_lost,
        "errors",
        stories.classic_kafka_members_share_partitions,
        "the others join again, and it has its share",
    ),
    Mutant(
        errors_of_joins_are_lost,
        "errors",
        stories.classic_kafka_members_share_partitions,
        "is answered with generation -1",
    ),
    Mutant(
        errors_of_syncs_are_lost,
        "errors",
        stories.commit_of_an_earlier_generation,
        "a SyncGroup of an earlier generation counts",
    ),
    Mutant(
        assignments_are_of_another_member,
        "classic groups",
        stories.classic_kafka_members_share_partitions,
        "its committed log does not say so",
    ),
    Mutant(
        leaving_members_are_not_named,
        "classic groups",
        stories.classic_kafka_members_share_partitions,
        "not within 2 s .* with no member",
    ),
    Mutant(instance_ids_are_lost, "KIP-345", stories.static_classic_kafka_member_restarts, "with no member"),
    Mutant(
        instance_ids_of_members_are_not_compared,
        "KIP-345",
        stories.static_classic_kafka_member_restarts,
        "the process before it is fenced",
    ),
    Mutant(
        generations_of_commits_are_not_compared,
        "classic groups",
        stories.commit_of_an_earlier_generation,
        r"which is fenced: generation \d+ of",
    ),
    Mutant(
        errors_of_commits_are_lost,
        "errors",
        stories.commit_of_an_earlier_generation,
        "a commit of an earlier generation counts",
    ),
    Mutant(
        offsets_are_of_another_partition,
        "offsets",
        stories.kafka_member_shares_a_group,
        "as the committed offset of",
    ),
    Mutant(
        coordinators_without_a_lease_send_their_clients_away,
        "coordinators",
        coordinator_without_a_lease_is_asked_again,
        "a coordinator without a lease answers with .*16",
    ),
    Mutant(
        disconnected_coordinators_keep_their_clients,
        "coordinators",
        coordinator_without_a_lease_is_asked_again,
        "clients of a disconnected coordinator are sent away",
    ),
    Mutant(
        unchanged_assignments_are_told_as_empty,
        "KIP-848",
        stories.kafka_member_shares_a_group,
        "not within|heartbeats change nothing",
    ),
    Mutant(
        owned_partitions_are_not_passed_on,
        "KIP-848",
        stories.kafka_member_shares_a_group,
        "it has given up its half",
    ),
    Mutant(
        members_that_leave_stay,
        "KIP-848",
        stories.kafka_member_shares_a_group,
        "it has left, and the other one has all partitions",
    ),
    Mutant(
        members_of_transactions_are_not_named,
        "KIP-447",
        stories.late_worker_is_fenced,
        "which is fenced|owns the partition",
    ),
    Mutant(
        aborts_are_commits,
        "transactions",
        stories.late_worker_is_fenced,
        "was told that .* is aborted",
    ),
    Mutant(
        errors_of_transactional_offsets_are_lost,
        "errors",
        stories.late_worker_is_fenced,
        "has two committed results",
    ),
)
