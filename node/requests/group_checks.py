"""Checks of the fields of requests to coordinators. A name or number that no correct client sends is refused here,
before it costs a coordinator memory; coordinators rely on that.

Not here: refusals that depend on a coordinator's state or settings (replication/coordination/), permissions
(node/security/).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from node.runtime.limits import ENTRIES_MAX, ensure_few
from replication.coordination.classic_requests import JoinGroup, LeaveGroup
from replication.coordination.group_requests import ConsumerGroupHeartbeat, NamedPartition, OffsetToCommit
from replication.coordination.transaction_requests import InitTransactionalProducer
from replication.coordination.transactions import identities
from replication.coordination.transactions.identities import EPOCH_BUMPED_VERSION, EPOCH_MAX
from tidelog.errors import InvalidGroupId, InvalidRegularExpression, InvalidRequest, InvalidTopic, UnsupportedVersion
from tidelog.types import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_MEMBER_EPOCH,
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_NAME_RULE,
    is_topic_name,
)

ID_BYTES_MAX: Final = 1_024
"""Limit of group ids and transactional ids. Kafka's format allows 32 KiB."""

NAME_BYTES_MAX: Final = 255
"""Limit of member ids, instance ids, racks and assignors."""

REGEX_BYTES_MAX: Final = 4_096
"""Limit of a pattern for topics or transactional ids."""


def ensure_regex(pattern: str, what: str) -> None:
    """Raise InvalidRegularExpression if a pattern is too long. what: the names that it matches, in the plural."""
    if len(pattern.encode()) > REGEX_BYTES_MAX:
        raise InvalidRegularExpression(f"the pattern for {what} is longer than {REGEX_BYTES_MAX} bytes: shorten it")


def ensure_group_id(group_id: str) -> None:
    """Raise InvalidGroupId if no group can have this id."""
    if not group_id:
        raise InvalidGroupId("the group id is empty: name the group")
    if len(group_id.encode()) > ID_BYTES_MAX:
        raise InvalidGroupId(f"the group id has {len(group_id.encode())} bytes: at most {ID_BYTES_MAX} are allowed")


def ensure_transactional_id(transactional_id: str) -> None:
    """Raise InvalidRequest if no producer can have this transactional id."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty: name it")
    ensure_short(transactional_id, "transactional id", ID_BYTES_MAX)


def ensure_short(name: str | None, what: str, bytes_max: int = NAME_BYTES_MAX) -> None:
    """Raise InvalidRequest if a name is too long."""
    if name is not None and len(name.encode()) > bytes_max:
        raise InvalidRequest(f"the {what} has {len(name.encode())} bytes: at most {bytes_max} are allowed")


def ensure_heartbeat(request: ConsumerGroupHeartbeat) -> None:
    """Raise InvalidGroupId, InvalidRequest, InvalidTopic or InvalidRegularExpression for a heartbeat with fields that
    no correct member sends."""
    ensure_group_id(request.group_id)
    if not request.member_id:
        raise InvalidRequest("the member id is empty: a member chooses a random one when it starts")
    _ensure_names(request.member_id, request.instance_id)
    _ensure_name(request.rack_id, "rack")
    ensure_short(request.server_assignor, "assignor")
    if request.rebalance_timeout_ms < -1:
        raise InvalidRequest(f"the rebalance timeout is {request.rebalance_timeout_ms} ms: use 0 or more")
    if request.member_epoch == JOIN_EPOCH:
        _ensure_joins(request)
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"member epoch {request.member_epoch} is invalid; use 0 to join, -1 or -2 to leave")
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        # Only the instance id identifies the member when it comes back: without one, partitions would stay reserved for
        # a member that can never join.
        raise InvalidRequest(
            f"member {request.member_id!r} leaves group {request.group_id!r} with epoch -2, but names no instance "
            "id: only static members may; send -1"
        )
    if request.subscribed_topic_regex is not None:
        ensure_regex(request.subscribed_topic_regex, "topics")
    _ensure_subscription(request.subscribed_topic_names or ())
    owned = request.topic_partitions or ()
    ensure_few(owned, "topics")
    count = sum(len(topic.partitions) for topic in owned)
    if count > ENTRIES_MAX:
        raise InvalidRequest(f"the member has {count} partitions: at most {ENTRIES_MAX} are allowed")
    if any(partition < 0 for topic in owned for partition in topic.partitions):
        raise InvalidRequest("the member has a partition with a negative index: they are numbered from 0")


def _ensure_joins(request: ConsumerGroupHeartbeat) -> None:
    """Raise InvalidRequest if a member that joins omits a field. Later, an omitted field means "unchanged"; for a new
    member no earlier value is recorded."""
    reason = None
    if request.rebalance_timeout_ms <= 0:
        reason = "needs a rebalance timeout"
    elif request.topic_partitions:
        reason = "must not have partitions: give them up first"
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        reason = "needs topics: names or a pattern; none is an empty list"
    if reason is not None:
        raise InvalidRequest(f"member {request.member_id!r} that joins group {request.group_id!r} {reason}")


def _ensure_subscription(names: Iterable[str]) -> None:
    known: set[str] = set()
    for name in names:
        if not is_topic_name(name):
            raise InvalidTopic(f"invalid topic name {name[: TOPIC_NAME_LENGTH_MAX + 1]!r}: {TOPIC_NAME_RULE}")
        known.add(name)
    ensure_few(known, "topics")


def ensure_committer(group_id: str, member_id: str, member_epoch: int, instance_id: str | None) -> None:
    """Raise InvalidGroupId or InvalidRequest for an impossible committer."""
    ensure_group_id(group_id)
    _ensure_names(member_id, instance_id)
    if member_epoch < NO_MEMBER_EPOCH:
        raise InvalidRequest(f"the member epoch is {member_epoch}: use that of the last heartbeat, or -1 for no member")


METADATA_BYTES_MAX: Final = 1 << 20
"""What a member of a classic group says in all its protocols together. The coordinator keeps it in memory, for new
members before anything of it is recorded."""


def ensure_join(request: JoinGroup) -> None:
    """Raise InvalidGroupId or InvalidRequest for an impossible member of a classic group."""
    ensure_member(request.group_id, request.member_id, request.instance_id)
    ensure_short(request.protocol_type, "protocol type")
    ensure_few(request.protocols, "protocols")
    for protocol in request.protocols:
        ensure_short(protocol.name, "protocol")
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    if size > METADATA_BYTES_MAX:
        raise InvalidRequest(
            f"the member has {size} bytes of metadata in its protocols: at most {METADATA_BYTES_MAX} are allowed"
        )


def ensure_member(group_id: str, member_id: str, instance_id: str | None) -> None:
    """Raise InvalidGroupId or InvalidRequest for an impossible member."""
    ensure_group_id(group_id)
    _ensure_names(member_id, instance_id)


def member_id_of(name: str, unique: UUID) -> str:
    """The id of a new member. name: the client id or instance id, by which people recognize the member in logs."""
    return f"{name.encode()[: NAME_BYTES_MAX - 37].decode(errors='ignore')}-{unique}"


def ensure_leaving(request: LeaveGroup) -> None:
    """Raise InvalidGroupId or InvalidRequest for impossible members."""
    ensure_group_id(request.group_id)
    ensure_few(request.members, "members")
    for member in request.members:
        _ensure_names(member.member_id, member.instance_id)


def ensure_producer(transactional_id: str, producer_id: int, producer_epoch: int) -> None:
    """Raise InvalidRequest for an impossible producer."""
    ensure_transactional_id(transactional_id)
    ensure_possible(producer_id, producer_epoch)


def ensure_possible(producer_id: int, producer_epoch: int) -> None:
    """Raise InvalidRequest for a producer id and epoch that no producer has."""
    if producer_id < 0 or not 0 <= producer_epoch <= EPOCH_MAX:
        raise InvalidRequest(
            f"no producer has id {producer_id} and epoch {producer_epoch}: ids begin with 0, epochs are 0..{EPOCH_MAX}"
        )


def ensure_transaction_version(version: int) -> None:
    """Raise UnsupportedVersion if this node does not know the protocol of transactions (1: KIP-98, 2: KIP-890)."""
    if not 1 <= version <= EPOCH_BUMPED_VERSION:
        raise UnsupportedVersion(f"transaction version {version} is unknown: use 1 or 2")


def ensure_continues(request: InitTransactionalProducer) -> None:
    """Raise InvalidRequest for a producer id and epoch that neither a new nor a continuing producer sends."""
    expected = identities.expected_of(request.producer_id, request.producer_epoch)
    if expected is not None and (expected.producer_id < 0 or not identities.is_usable(expected)):
        raise InvalidRequest(
            f"producer id {request.producer_id} and epoch {request.producer_epoch} are those of no producer: send both "
            "of a producer that continues, or -1 for both"
        )


def _ensure_names(member_id: str, instance_id: str | None) -> None:
    ensure_short(member_id, "member id")
    _ensure_name(instance_id, "instance id")


def _ensure_name(name: str | None, what: str) -> None:
    """Raise InvalidRequest for a name that is given and empty, or too long."""
    ensure_short(name, what)
    if name == "":
        raise InvalidRequest(f"the {what} is empty: name it, or omit it")


def ensure_distinct(partitions: Iterable[NamedPartition | OffsetToCommit]) -> None:
    """Raise InvalidRequest if a partition is named twice."""
    seen: set[tuple[str, int]] = set()
    for each in partitions:
        place = each.topic, each.partition
        if place in seen:
            raise InvalidRequest(f"partition {each.topic[:TOPIC_NAME_LENGTH_MAX]}-{each.partition} is named twice")
        seen.add(place)
