"""Looks at what a cluster has, and executes planned changes: an outcome for each.

Invariants:
  1. One failure stops no other creation or change.
  2. After a failure nothing is deleted: what is missing may be what should have taken its place.

Every change can be repeated, so that the same command continues after a crash or a lost connection.
Not here: the plan (change_planner.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tidelog.balancing.cluster_balance import change_replication_factor
from tidelog.client.admin import NODE_DEFAULT, Admin, NewTopic, Place, TopicDescription
from tidelog.client.group_metadata import CommittedOffset
from tidelog.cluster_descriptions import ConfigSource
from tidelog.desired.change_planner import (
    ChangeAction,
    LimitChange,
    OffsetsChange,
    PasswordChange,
    PlannedChange,
    TopicChange,
    TopicRemoval,
    UserRemoval,
)
from tidelog.desired.desired_state import DesiredState, DesiredTopic, DesiredUser, PasswordSource, ResourceKind
from tidelog.errors import InvalidConfig, InvalidRequest, TidelogError, UnknownTopicOrPartition
from tidelog.security.acls import AclBinding, AclFilter
from tidelog.security.scram import ITERATIONS
from tidelog.types import INTERNAL_TOPICS, ScramMechanism

AT_ONCE: Final = 100
"""Topics, or rules, of one request: far below what a node accepts."""

ReadPassword = Callable[[PasswordSource], str]
"""Reads a password. Raises InvalidConfig."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """A planned change and what became of it."""

    change: PlannedChange
    error: TidelogError | None = None
    """Why it was not done."""

    @property
    def is_refused(self) -> bool:
        """True if the cluster does not have what the files ask."""
        return self.error is not None or self.change.action is ChangeAction.REFUSE


async def look_at_state(
    admin: Admin,
    kinds: Iterable[ResourceKind],
    topics_of: Collection[str] | None = None,
    groups: Iterable[str] = (),
    *,
    on_deleted: Callable[[str], object] = lambda _topic: None,
) -> DesiredState:
    """What the cluster has of these kinds, without internal topics. topics_of: topics whose settings count; None: all.
    groups: those whose offsets count. on_deleted: called with each topic that is left out because it was deleted
    meanwhile. Nothing is asked about other kinds, nor about the settings of other topics: the
    caller may lack the permission."""
    wanted = frozenset(kinds)
    topics = await _topics(admin, topics_of, on_deleted) if ResourceKind.TOPICS in wanted else {}
    users = await _users(admin) if ResourceKind.USERS in wanted else {}
    acls = frozenset(await admin.describe_acls()) if ResourceKind.ACLS in wanted else frozenset[AclBinding]()
    quotas = await admin.describe_client_quotas() if ResourceKind.QUOTAS in wanted else {}
    offsets = {}
    for group in groups:
        found = await admin.list_group_offsets(group)
        offsets[group] = {key: each for key, each in found.items() if each is not None}
    return DesiredState(wanted, topics, users, acls, quotas, offsets)


async def _topics(
    admin: Admin, topics_of: Collection[str] | None, on_deleted: Callable[[str], object]
) -> dict[str, DesiredTopic]:
    listed = [topic for topic in await admin.list_topics() if topic.name not in INTERNAL_TOPICS]
    names = [topic.name for topic in listed if topics_of is None or topic.name in topics_of]
    configs: dict[str, dict[str, str]] = {}
    deleted: set[str] = set()
    for start in range(0, len(names), AT_ONCE):
        for name, settings in (await admin.describe_topic_settings(names[start : start + AT_ONCE])).items():
            if isinstance(settings.error, UnknownTopicOrPartition):
                deleted.add(name)
                on_deleted(name)
                continue
            if settings.error is not None:
                raise settings.error
            configs[name] = {
                each.key: each.value
                for each in settings.configs
                if each.source is ConfigSource.TOPIC and each.value is not None
            }
    return {
        topic.name: DesiredTopic(len(topic.partitions), _factor(topic), configs.get(topic.name, {}), topic.topic_id)
        for topic in listed
        if topic.name not in deleted
    }


def _factor(topic: TopicDescription) -> int | None:
    """The number of replicas once the reassignments in progress are complete; None if the partitions differ."""
    factors = {len(each.replicas) - len(each.removing) for each in topic.partitions}
    return factors.pop() if len(factors) == 1 else None


async def _users(admin: Admin) -> dict[str, DesiredUser]:
    mechanisms: dict[str, dict[ScramMechanism, int | None]] = {}
    by_name = {each.mechanism_name: each for each in ScramMechanism}
    for user in await admin.list_users():
        mechanisms.setdefault(user.name, {})[by_name[user.mechanism]] = user.iterations
    return {name: DesiredUser(each) for name, each in mechanisms.items()}


async def execute_changes(
    admin: Admin, changes: Sequence[PlannedChange], read_password: ReadPassword, *, validate_only: bool = False
) -> AsyncIterator[ChangeOutcome]:
    """Execute changes in their order; yield the outcome of each as soon as it is known. validate_only: let the cluster
    check those that it can check, and change nothing."""
    failed = False
    # Neighbours of one kind, so that many new topics, or rules, are one request.
    for (kind, action), group in groupby(changes, key=lambda change: (change.kind, change.action)):
        members = list(group)
        if action in (ChangeAction.NONE, ChangeAction.REFUSE):
            failed = failed or action is ChangeAction.REFUSE
            for change in members:
                yield ChangeOutcome(change)
            continue
        several = kind is ResourceKind.ACLS or (kind, action) == (ResourceKind.TOPICS, ChangeAction.CREATE)
        size = AT_ONCE if several else 1
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            errors: list[TidelogError | None]
            try:
                if failed and action is ChangeAction.DELETE:
                    raise InvalidRequest("not deleted, because something before it was refused: resolve that first")
                errors = await _executed(admin, batch, read_password, validate_only=validate_only)
            except TidelogError as error:
                errors = [error] * len(batch)
            failed = failed or any(errors)
            for change, failure in zip(batch, errors, strict=True):
                yield ChangeOutcome(change, failure)


async def _executed(
    admin: Admin, batch: Sequence[PlannedChange], read_password: ReadPassword, *, validate_only: bool
) -> list[TidelogError | None]:
    """Execute changes of one kind and action. Returns the error of each. Raises the error that all have."""
    first, action = batch[0].request, batch[0].action
    match first:
        case TopicChange() if action is ChangeAction.CREATE:
            return await _create_topics(admin, batch, validate_only=validate_only)
        case TopicChange():
            await change_topic(admin, first, validate_only=validate_only)
        case AclBinding():
            await _change_acls(admin, batch, validate_only=validate_only)
        case LimitChange():
            await admin.alter_client_quotas({first.entity: first.limits}, validate_only=validate_only)
        case _ if validate_only:
            pass  # there is no such check for the rest
        case TopicRemoval():
            await admin.delete_topic(first.name, topic_id=first.topic_id)
        case UserRemoval():
            await admin.remove_user(first.name)
        case PasswordChange():
            await _set_password(admin, first, read_password)
        case OffsetsChange():
            await admin.alter_group_offsets(first.group, dict[Place, int | CommittedOffset](first.offsets.items()))
        case _:
            raise AssertionError(f"no request changes {batch[0].name}")
    return [None] * len(batch)


async def _create_topics(
    admin: Admin, batch: Sequence[PlannedChange], *, validate_only: bool
) -> list[TidelogError | None]:
    new = []
    for change in batch:
        topic = change.request
        assert isinstance(topic, TopicChange)
        configs = {key: value for key, value in topic.configs.items() if value is not None}
        counts = (topic.partitions or NODE_DEFAULT, topic.replication_factor or NODE_DEFAULT)
        new.append(NewTopic(topic.name, *counts, configs))
    created = await admin.create_topics(new, validate_only=validate_only)
    return [found if isinstance(found := created[each.name], TidelogError) else None for each in new]


async def change_topic(admin: Admin, topic: TopicChange, *, validate_only: bool) -> None:
    """Change settings of a topic, and its numbers of partitions and replicas unless they are 0. Raises the first error;
    the parts before it were changed."""
    if topic.configs:
        await admin.alter_topic(topic.name, topic.configs, validate_only=validate_only)
    if topic.partitions:
        await admin.create_partitions(topic.name, topic.partitions, validate_only=validate_only)
    if topic.replication_factor:
        begun = await change_replication_factor(
            admin, topic.name, topic.replication_factor, validate_only=validate_only
        )
        for result in begun:
            if result.error is not None:
                raise result.error


async def _change_acls(admin: Admin, batch: Sequence[PlannedChange], *, validate_only: bool) -> None:
    bindings = [each.request for each in batch if isinstance(each.request, AclBinding)]
    if batch[0].action is ChangeAction.CREATE:
        await admin.create_acls(bindings, validate_only=validate_only)
        return
    filters = [
        AclFilter(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission,
        )
        for each in bindings
    ]
    await admin.delete_acls(filters, validate_only=validate_only)


async def _set_password(admin: Admin, change: PasswordChange, read_password: ReadPassword) -> None:
    try:
        password = read_password(change.password)
    except InvalidConfig as error:
        raise InvalidConfig(f"user {change.name!r}: {error.message}") from error
    by_rounds: dict[int, list[str]] = {}
    for mechanism, iterations in change.mechanisms.items():
        by_rounds.setdefault(iterations or ITERATIONS, []).append(mechanism.mechanism_name)
    for rounds, mechanisms in by_rounds.items():
        await admin.set_password(change.name, password, mechanisms=mechanisms, iterations=rounds)
