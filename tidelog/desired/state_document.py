"""The document that describes topics, users, ACLs and quotas: the one form of files for `tidelog apply` and snapshots.

Invariant: `parse_state(state_document(state))` is the state, but for passwords, which no document contains.
Not here: files, and TOML or JSON as text (cli/state_files.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.users import mechanisms_of
from tidelog.desired.desired_state import (
    ALL_MECHANISMS,
    DesiredState,
    DesiredTopic,
    DesiredUser,
    PasswordSource,
    ResourceKind,
)
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
    operation_named,
)
from tidelog.types import Offset, PartitionIndex, QuotaEntity, QuotaType, ScramMechanism, TopicId, TopicPartition

SNAPSHOT: Final = "snapshot"
"""The section of a snapshot that says what it is of; it describes nothing."""
MISSING_TOPICS: Final = "missing-topics"
"""Key of that section: how many topics the cluster had that the snapshot lacks."""

_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}
_QUOTA_KEYS: Final = tuple(quota.value for quota in QuotaType)


@dataclass(frozen=True, slots=True)
class _DocumentTable:
    """A table of a document, with its place in it for errors."""

    place: str
    values: Mapping[str, Any]

    def wrong(self, what: str) -> InvalidConfig:
        return InvalidConfig(f"{self.place}: {what}")

    def only(self, *keys: str) -> None:
        """Raise InvalidConfig if there is any other key: a misspelled one would be ignored."""
        unknown = [key for key in self.values if key not in keys]
        if unknown:
            raise self.wrong(f"unknown key {unknown[0]!r}; use {', '.join(keys)}")

    def number(self, key: str, least: int = 1) -> int | None:
        value = self.values.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise self.wrong(f"{key} = {value!r}: use a whole number of {least} or more")
        return value

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.wrong(f"{key} = {value!r}: use a text")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} = {value!r}: use true or false")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(f"{key} = {value!r}: use a list of texts")
        return value

    def tables(self, key: str) -> dict[str, _DocumentTable]:
        """The tables of a table, by name."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(f"{key} is no table: write [{key}.NAME]")
        return {name: _table(f"{self.place}: {key}.{name}", each) for name, each in value.items()}

    def entries(self, key: str) -> list[_DocumentTable]:
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(f"{key} is no list: write [[{key}]]")
        return [_table(f"{self.place}: {key} {number}", each) for number, each in enumerate(value, 1)]


def parse_state(document: object, source: str) -> DesiredState:
    """The state that a document describes. source: what errors call it. Raises InvalidConfig."""
    root = _table(source, document)
    root.only(*ResourceKind, SNAPSHOT)
    acls = [binding for each in root.entries(ResourceKind.ACLS) for binding in _bindings(each)]
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    for each in root.entries(ResourceKind.QUOTAS):
        entity, limits = _quota(each)
        if entity in quotas:
            raise each.wrong(f"quotas of {entity} are there already: put all of them into one")
        quotas[entity] = limits
    missing = _table(f"{source}: {SNAPSHOT}", root.values.get(SNAPSHOT, {})).number(MISSING_TOPICS, 0)
    return DesiredState(
        kinds=frozenset(kind for kind in ResourceKind if kind in root.values),
        topics={name: _topic(each) for name, each in root.tables(ResourceKind.TOPICS).items()},
        users={name: _user(each) for name, each in root.tables(ResourceKind.USERS).items()},
        acls=frozenset(acls),
        quotas=quotas,
        group_offsets=_group_offsets(root),
        missing_topics={source: missing} if missing else {},
    )


def joined(states: Mapping[str, DesiredState]) -> DesiredState:
    """The state of several documents, by their names. Raises InvalidConfig if two describe the same object: which of
    them counts would depend on their order."""
    topics: dict[str, DesiredTopic] = {}
    users: dict[str, DesiredUser] = {}
    quotas: dict[QuotaEntity, Mapping[str, float]] = {}
    group_offsets: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
    owners: dict[tuple[str, object], str] = {}
    for source, state in states.items():
        sections: tuple[tuple[str, dict[Any, Any], Mapping[Any, Any]], ...] = (
            ("topic", topics, state.topics),
            ("user", users, state.users),
            ("quotas of", quotas, state.quotas),
            ("offsets of group", group_offsets, state.group_offsets),
        )
        for what, all_of_them, of_this in sections:
            for name, each in of_this.items():
                other = owners.setdefault((what, name), source)
                if other != source:
                    raise InvalidConfig(f"{source}: {what} {name} is in {other} too: keep one of them")
                all_of_them[name] = each
    return DesiredState(
        frozenset().union(*(state.kinds for state in states.values())),
        topics,
        users,
        frozenset().union(*(state.acls for state in states.values())),
        quotas,
        group_offsets,
        {source: missing for state in states.values() for source, missing in state.missing_topics.items()},
    )


def state_document(state: DesiredState) -> dict[str, Any]:
    """The document that describes a state: for each of its kinds a section, sorted."""
    made: dict[ResourceKind, Any] = {
        ResourceKind.TOPICS: {name: _topic_document(each) for name, each in sorted(state.topics.items())},
        ResourceKind.USERS: {name: _user_document(each) for name, each in sorted(state.users.items())},
        ResourceKind.ACLS: [_acl_document(each) for each in sorted(state.acls)],
        ResourceKind.QUOTAS: [
            {**_entity_document(entity), **dict(sorted(limits.items()))}
            for entity, limits in sorted(state.quotas.items(), key=lambda item: str(item[0]))
        ],
        ResourceKind.GROUP_OFFSETS: {
            group: [_offset_document(key, each) for key, each in sorted(offsets.items())]
            for group, offsets in sorted(state.group_offsets.items())
        },
    }
    return {str(kind): section for kind, section in made.items() if kind in state.kinds}


def _table(place: str, value: object) -> _DocumentTable:
    if not isinstance(value, Mapping):
        # Without the value: of a user, it may be a password.
        raise InvalidConfig(f"{place} is no table")
    return _DocumentTable(place, value)


def _topic(table: _DocumentTable) -> DesiredTopic:
    table.only("partitions", "replication-factor", "configs", "id")
    configs = table.values.get("configs", {})
    if not isinstance(configs, Mapping):
        raise table.wrong(f"configs = {configs!r}: use a table of settings")
    given = table.text("id")
    try:
        topic_id = None if given is None else TopicId(UUID(given))
    except ValueError:
        raise table.wrong(f"id = {given!r} is not the id of a topic: leave it out") from None
    return DesiredTopic(
        table.number("partitions"),
        table.number("replication-factor"),
        _settings(table, configs),
        topic_id,
    )


def _settings(table: _DocumentTable, configs: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in _flat(configs):
        if key in found:
            raise table.wrong(f"setting {key} is there twice, in both ways to write its name: keep one of them")
        found[key] = _setting(table, key, value)
    return found


def _flat(configs: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The settings by their dotted names: TOML reads `retention.ms = 1` as a table in a table."""
    for key, value in configs.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _setting(table: _DocumentTable, key: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(each, str) for each in value):
            return ",".join(value)
    raise table.wrong(f"setting {key} = {value!r}: use a text, a number, true, false or a list of texts")


def _topic_document(topic: DesiredTopic) -> dict[str, Any]:
    fields = {
        "id": None if topic.topic_id is None else str(topic.topic_id),
        "partitions": topic.partitions,
        "replication-factor": topic.replication_factor,
        "configs": dict(sorted(topic.configs.items())) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _user(table: _DocumentTable) -> DesiredUser:
    if "password" in table.values:
        raise table.wrong(
            "a file has no password, because files are kept, copied and shown: name an environment variable "
            "(password-env) or another file (password-file)"
        )
    table.only("password-env", "password-file", "mechanisms", "iterations")
    variable, file = table.values.get("password-env"), table.text("password-file")
    if variable is not None and (not isinstance(variable, str) or not variable):
        # The value is not shown: by mistake, some write the password itself there.
        raise table.wrong('password-env is not the name of an environment variable: use a text, as "ALICE_PASSWORD"')
    if variable is not None and file is not None:
        raise table.wrong("use one of password-env and password-file")
    iterations = table.values.get("iterations")
    try:
        mechanisms = mechanisms_of(table.texts("mechanisms")) if "mechanisms" in table.values else ALL_MECHANISMS
    except TidelogError as error:
        raise table.wrong(error.message) from None
    if not mechanisms:
        raise table.wrong("mechanisms is empty: leave it out for both")
    rounds: dict[ScramMechanism, int | None]
    if isinstance(iterations, Mapping):
        of_each = _DocumentTable(f"{table.place}.iterations", iterations)
        of_each.only(*(each.mechanism_name for each in mechanisms))
        rounds = {each: of_each.number(each.mechanism_name) for each in mechanisms}
    else:
        rounds = dict.fromkeys(mechanisms, table.number("iterations"))
    source = None if variable is None and file is None else PasswordSource(variable or "", file or "")
    return DesiredUser(rounds, source)


def _user_document(user: DesiredUser) -> dict[str, Any]:
    names = {each.mechanism_name: rounds for each, rounds in sorted(user.mechanisms.items())}
    rounds = {name: each for name, each in names.items() if each is not None}
    return {"mechanisms": list(names), **({"iterations": rounds} if rounds else {})}


def _bindings(table: _DocumentTable) -> Iterable[AclBinding]:
    """An entry of a file is one rule for each of its operations and hosts."""
    table.only("allow", "deny", "operations", *_RESOURCES, "cluster", "prefixed", "hosts")
    allow, deny = table.text("allow"), table.text("deny")
    principal = allow or deny
    if principal is None or (allow and deny):
        raise table.wrong('name one principal, with allow or deny: allow = "User:alice"')
    resources = [(kind, name) for key, kind in _RESOURCES.items() if (name := table.text(key)) is not None]
    resources += [(ResourceType.CLUSTER, CLUSTER_NAME)] * table.flag("cluster")
    if len(resources) != 1:
        raise table.wrong(f"name one resource, with one of {', '.join(_RESOURCES)}, or cluster = true")
    operations = table.texts("operations")
    if not operations:
        raise table.wrong('name operations: operations = ["read", "describe"]')
    hosts = table.texts("hosts") if "hosts" in table.values else [WILDCARD]
    if not hosts:
        # Of a generated list that has become empty: read as any host, the rule would open to everyone.
        raise table.wrong("hosts is empty: leave it out for any host")
    pattern = PatternType.PREFIXED if table.flag("prefixed") else PatternType.LITERAL
    permission = AclPermission.ALLOW if allow else AclPermission.DENY
    try:
        return [
            checked_binding(AclBinding(*resources[0], pattern, principal, host, operation_named(word), permission))
            for word in operations
            for host in hosts
        ]
    except TidelogError as error:
        raise table.wrong(error.message) from None


def _acl_document(binding: AclBinding) -> dict[str, Any]:
    names = {kind: key for key, kind in _RESOURCES.items()}
    resource: dict[str, Any]
    if binding.resource_type is ResourceType.CLUSTER:
        resource = {"cluster": True}
    else:
        resource = {names[binding.resource_type]: binding.resource_name}
    return {
        "allow" if binding.permission is AclPermission.ALLOW else "deny": binding.principal,
        "operations": [binding.operation.name.lower().replace("_", "-")],
        **resource,
        **({"prefixed": True} if binding.pattern_type is PatternType.PREFIXED else {}),
        **({"hosts": [binding.host]} if binding.host != WILDCARD else {}),
    }


def _quota(table: _DocumentTable) -> tuple[QuotaEntity, dict[str, float]]:
    table.only("user", "client-id", "default-user", "default-client-id", *_QUOTA_KEYS)
    user, client_id = table.text("user"), table.text("client-id")
    default_user, default_client = table.flag("default-user"), table.flag("default-client-id")
    if (default_user and user is not None) or (default_client and client_id is not None):
        raise table.wrong("name a user or client-id, or use default-user or default-client-id for it, not both")
    entity = QuotaEntity("" if default_user else user, "" if default_client else client_id)
    if entity == QuotaEntity(None, None):
        raise table.wrong("name whose quotas: user, client-id, default-user = true or default-client-id = true")
    limits = {key: _limit(table, key) for key in _QUOTA_KEYS if key in table.values}
    if not limits:
        raise table.wrong(f"name a limit: {', '.join(_QUOTA_KEYS)}")
    return entity, limits


def _limit(table: _DocumentTable, key: str) -> float:
    limit = table.values[key]
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise table.wrong(f"{key} = {limit!r}: use a number")
    try:
        return float(limit)
    except OverflowError:
        raise table.wrong(f"{key} is too large a number") from None


def _entity_document(entity: QuotaEntity) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name is not None:
            fields |= {key: name} if name else {f"default-{key}": True}
    return fields


def _group_offsets(root: _DocumentTable) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    section = root.values.get(ResourceKind.GROUP_OFFSETS, {})
    if not isinstance(section, Mapping):
        raise root.wrong(f"{ResourceKind.GROUP_OFFSETS} is no table of groups")
    for group in section:
        offsets = groups[group] = {}
        for each in _DocumentTable(f"{root.place}: {ResourceKind.GROUP_OFFSETS}", section).entries(group):
            each.only("topic", "partition", "offset", "metadata")
            topic, partition, offset = each.text("topic"), each.number("partition", 0), each.number("offset", 0)
            if topic is None or partition is None or offset is None:
                raise each.wrong("needs topic, partition and offset")
            committed = CommittedOffset(Offset(offset), metadata=each.text("metadata") or "")
            key = TopicPartition(topic, PartitionIndex(partition))
            if key in offsets:
                raise each.wrong(f"the offset of {key} is there already: keep one of them")
            offsets[key] = committed
    return groups


def _offset_document(key: TopicPartition, committed: CommittedOffset) -> dict[str, Any]:
    # Without its leader epoch: in another cluster that epoch has other records, and a consumer would find a truncation.
    metadata = {"metadata": committed.metadata} if committed.metadata else {}
    return {"topic": key.topic, "partition": key.partition, "offset": committed.offset, **metadata}
