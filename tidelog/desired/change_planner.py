"""The changes that give a cluster the state of files: a pure function of what is asked and what is there.

Invariants:
  1. After its changes, the plan for the same files is empty.
  2. Nothing is deleted, and no setting is reset, unless `PruneScope` contains it. Without a scope a plan only adds and
     changes.
  3. A plan never deletes topics whose names begin with an underscore, nor the user that executes it.
  4. The order is safe at every step: rules and limits come before the users that they restrict, and go after them;
     denials come before permissions, and go after them.

Not here: how a change is requested, and passwords (change_driver.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from tidelog.client.group_metadata import CommittedOffset
from tidelog.desired.desired_state import DesiredState, DesiredTopic, PasswordSource, ResourceKind
from tidelog.security.acls import AclBinding, ResourceType
from tidelog.types import QuotaEntity, ScramMechanism, TopicId, TopicPartition

DURABILITY: Final = "durability"
"""The setting that a topic keeps for ever: it is not reset."""


@dataclass(frozen=True, slots=True)
class PruneScope:
    """What may be deleted because no file has it. The default contains nothing."""

    kinds: frozenset[ResourceKind] = frozenset()
    prefixes: tuple[str, ...] = ()
    """Only what has a name that begins with one of these; empty: any name."""
    own_user: str = ""
    """The user that executes the plan, which is kept: without it, nothing could be changed back."""

    def contains(self, kind: ResourceKind, *names: str | None) -> bool:
        """Whether an object of this kind, with any of these names, may be deleted."""
        if kind not in self.kinds:
            return False
        if kind is ResourceKind.TOPICS and any(name is not None and name.startswith("_") for name in names):
            # Internal topics, and by custom those of registries and connectors, which no file describes.
            return False
        if kind is ResourceKind.USERS and self.own_user in names:
            return False
        return not self.prefixes or any(name is not None and name.startswith(self.prefixes) for name in names)


class ChangeAction(StrEnum):
    """What a change does with its object."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    NONE = "none"
    REFUSE = "refuse"
    """What the files ask is impossible; the details say why."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Create or change a topic. 0: the number stays."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """None: reset to the default."""


@dataclass(frozen=True, slots=True)
class TopicRemoval:
    """Delete this incarnation of a topic."""

    name: str
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class PasswordChange:
    """Give a user its password, for some mechanisms with these iterations; None: the usual number."""

    name: str
    password: PasswordSource
    mechanisms: Mapping[ScramMechanism, int | None]


@dataclass(frozen=True, slots=True)
class UserRemoval:
    """Remove a user."""

    name: str


@dataclass(frozen=True, slots=True)
class LimitChange:
    """Set limits of an entity; None removes one."""

    entity: QuotaEntity
    limits: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class OffsetsChange:
    """Commit offsets for a group."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


Request: TypeAlias = (
    TopicChange | TopicRemoval | PasswordChange | UserRemoval | AclBinding | LimitChange | OffsetsChange
)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One object and what happens with it."""

    kind: ResourceKind
    name: str
    action: ChangeAction
    details: tuple[str, ...] = ()
    """What is new, as text."""
    request: Request | None = None
    """None if there is nothing to do."""


def plan_changes(
    desired: DesiredState, present: DesiredState, prune: PruneScope, *, set_passwords: bool = False
) -> list[PlannedChange]:
    """The outcome for each object of the files, and for each that is to be deleted, in the order of execution.

    present: of the cluster, at least of the kinds that are desired. set_passwords: set the password of each user that
    names one; else only of users, and mechanisms, that do not exist: a cluster does not tell passwords.
    """
    changes = [
        *_acls(desired, present),
        *_quotas(desired, present, prune),
        *_topics(desired, present, prune),
        *_users(desired, present, set_passwords=set_passwords),
        *_group_offsets(desired, present),
    ]
    return [*changes, *_removals(desired, present, prune)]


def _topics(desired: DesiredState, present: DesiredState, prune: PruneScope) -> Iterator[PlannedChange]:
    for name, topic in sorted(desired.topics.items()):
        found = present.topics.get(name)
        if found is None:
            counts = [(topic.partitions, "partitions"), (topic.replication_factor, "replicas")]
            details = [f"{what}: {count}" for count, what in counts if count is not None]
            details += [f"{key}: {value}" for key, value in sorted(topic.configs.items())]
            request = TopicChange(name, topic.partitions or 0, topic.replication_factor or 0, topic.configs)
            yield PlannedChange(ResourceKind.TOPICS, name, ChangeAction.CREATE, tuple(details), request)
        elif topic.partitions is not None and found.partitions is not None and topic.partitions < found.partitions:
            # Keys would be in other partitions than before, and the records of the last ones would be lost.
            why = f"it has {found.partitions} partitions and cannot have {topic.partitions}: partitions only grow"
            yield PlannedChange(ResourceKind.TOPICS, name, ChangeAction.REFUSE, (why,))
        else:
            yield _changed_topic(name, topic, found, prune)


def _changed_topic(name: str, topic: DesiredTopic, found: DesiredTopic, prune: PruneScope) -> PlannedChange:
    configs: dict[str, str | None] = {
        key: value for key, value in topic.configs.items() if found.configs.get(key) != value
    }
    if prune.contains(ResourceKind.TOPICS, name):
        # Retention could fall back to its default, which deletes records: as a deletion, it has to be asked for.
        configs |= {key: None for key in found.configs if key not in topic.configs and key != DURABILITY}
    partitions = topic.partitions if topic.partitions not in (None, found.partitions) else None
    factor = topic.replication_factor if topic.replication_factor not in (None, found.replication_factor) else None
    details = []
    if partitions is not None:
        details.append(f"partitions: {found.partitions} -> {partitions}")
    if factor is not None:
        details.append(f"replicas: {found.replication_factor or 'unequal'} -> {factor}")
    details += [
        f"{key}: {found.configs.get(key, '(default)')} -> {'(default)' if value is None else value}"
        for key, value in sorted(configs.items())
    ]
    if not details:
        return PlannedChange(ResourceKind.TOPICS, name, ChangeAction.NONE)
    request = TopicChange(name, partitions or 0, factor or 0, configs)
    return PlannedChange(ResourceKind.TOPICS, name, ChangeAction.CHANGE, tuple(details), request)


def _users(desired: DesiredState, present: DesiredState, *, set_passwords: bool) -> Iterator[PlannedChange]:
    for name, user in sorted(desired.users.items()):
        found = present.users.get(name)
        known = {} if found is None else found.mechanisms
        lacking = {
            # Iterations that no file names stay: the usual number may be lower, and the key weaker.
            each: known.get(each) if rounds is None else rounds
            for each, rounds in user.mechanisms.items()
            if each not in known or rounds not in (None, known[each]) or (set_passwords and user.password)
        }
        action = ChangeAction.CREATE if found is None else ChangeAction.CHANGE
        details = tuple(
            _mechanism(each, known.get(each), rounds, is_new=each not in known) for each, rounds in lacking.items()
        )
        if not lacking:
            yield PlannedChange(ResourceKind.USERS, name, ChangeAction.NONE)
        elif user.password is None:
            why = "no password is known: give the user password-env or password-file, or use `tidelog user add`"
            yield PlannedChange(ResourceKind.USERS, name, ChangeAction.REFUSE, (*details, why))
        else:
            request = PasswordChange(name, user.password, lacking)
            yield PlannedChange(ResourceKind.USERS, name, action, details, request)


def _mechanism(mechanism: ScramMechanism, known: int | None, rounds: int | None, *, is_new: bool) -> str:
    if is_new:
        return f"{mechanism.mechanism_name}: new password"
    if rounds not in (None, known):
        return f"{mechanism.mechanism_name}: iterations {known} -> {rounds}"
    return f"{mechanism.mechanism_name}: password set again"


def _acls(desired: DesiredState, present: DesiredState) -> Iterator[PlannedChange]:
    # Denials first: until they were there, or if they were refused, the permissions would allow too much.
    for binding in sorted(desired.acls, key=lambda each: (each.permission, each)):
        if binding in present.acls:
            yield PlannedChange(ResourceKind.ACLS, str(binding), ChangeAction.NONE)
        else:
            yield PlannedChange(ResourceKind.ACLS, str(binding), ChangeAction.CREATE, request=binding)


def _quotas(desired: DesiredState, present: DesiredState, prune: PruneScope) -> Iterator[PlannedChange]:
    for entity, limits in sorted(desired.quotas.items(), key=lambda item: str(item[0])):
        found = present.quotas.get(entity, {})
        changes: dict[str, float | None] = {key: limit for key, limit in limits.items() if found.get(key) != limit}
        if prune.contains(ResourceKind.QUOTAS, entity.user, entity.client_id):
            changes |= {key: None for key in found if key not in limits}
        if not changes:
            yield PlannedChange(ResourceKind.QUOTAS, str(entity), ChangeAction.NONE)
            continue
        action = ChangeAction.CHANGE if found else ChangeAction.CREATE
        details = tuple(f"{key}: {_limit(found.get(key))} -> {_limit(limit)}" for key, limit in changes.items())
        yield PlannedChange(ResourceKind.QUOTAS, str(entity), action, details, LimitChange(entity, changes))


def _limit(limit: float | None) -> str:
    return "(none)" if limit is None else f"{limit:.15g}"


def _group_offsets(desired: DesiredState, present: DesiredState) -> Iterator[PlannedChange]:
    for group, offsets in sorted(desired.group_offsets.items()):
        found = present.group_offsets.get(group, {})
        # A group that has gone on since would read its records again, or skip some.
        missing = {key: each for key, each in offsets.items() if key not in found}
        if not missing:
            yield PlannedChange(ResourceKind.GROUP_OFFSETS, group, ChangeAction.NONE)
            continue
        details = tuple(f"{key}: {each.offset}" for key, each in sorted(missing.items()))
        request = OffsetsChange(group, missing)
        action = ChangeAction.CHANGE if found else ChangeAction.CREATE
        yield PlannedChange(ResourceKind.GROUP_OFFSETS, group, action, details, request)


def _removals(desired: DesiredState, present: DesiredState, prune: PruneScope) -> Iterator[PlannedChange]:
    def removal(kind: ResourceKind, name: str, request: Request) -> PlannedChange:
        return PlannedChange(kind, name, ChangeAction.DELETE, request=request)

    for name in sorted(present.users.keys() - desired.users.keys()):
        if prune.contains(ResourceKind.USERS, name):
            yield removal(ResourceKind.USERS, name, UserRemoval(name))
    for name in sorted(present.topics.keys() - desired.topics.keys()):
        if prune.contains(ResourceKind.TOPICS, name):
            yield removal(ResourceKind.TOPICS, name, TopicRemoval(name, present.topics[name].topic_id))
    for entity in sorted(present.quotas.keys() - desired.quotas.keys(), key=str):
        if prune.contains(ResourceKind.QUOTAS, entity.user, entity.client_id):
            limits = dict.fromkeys(present.quotas[entity])
            yield removal(ResourceKind.QUOTAS, str(entity), LimitChange(entity, limits))
    # The last of all: they may be what lets the caller change the rest. Those of the caller itself after the others,
    # or these would be refused to it.
    own = f"User:{prune.own_user}"
    for binding in sorted(
        present.acls - desired.acls, key=lambda each: (each.principal == own, -each.permission, each)
    ):
        # The name of the cluster is no name of its owner: the prefix `kafka` would select it.
        named = None if binding.resource_type is ResourceType.CLUSTER else binding.resource_name
        if prune.contains(ResourceKind.ACLS, named):
            yield removal(ResourceKind.ACLS, str(binding), binding)
