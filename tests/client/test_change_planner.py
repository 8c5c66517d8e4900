"""Plans of `tidelog apply`, as a pure function: what they change, what they leave, and that a second plan is empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.group_metadata import CommittedOffset
from tidelog.desired.change_planner import (
    ChangeAction,
    LimitChange,
    OffsetsChange,
    PasswordChange,
    PlannedChange,
    PruneScope,
    TopicChange,
    TopicRemoval,
    UserRemoval,
    plan_changes,
)
from tidelog.desired.desired_state import DesiredState, DesiredTopic, DesiredUser, PasswordSource, ResourceKind
from tidelog.desired.state_document import parse_state, state_document
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import Offset, PartitionIndex, QuotaEntity, QuotaType, ScramMechanism, TopicId, TopicPartition

ALL = PruneScope(frozenset(ResourceKind))
NOTHING = PruneScope()

names = st.sampled_from(["orders", "payments", "_schemas", "a.b", "x"])
configs = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy", "segment.bytes"]), names, max_size=3)
topics = st.builds(DesiredTopic, st.integers(1, 4), st.integers(1, 3), configs)
rounds = st.dictionaries(st.sampled_from(ScramMechanism), st.integers(4096, 4099), min_size=1)
users = st.builds(DesiredUser, rounds, st.just(PasswordSource("PASSWORD")))
bindings = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([AclOperation.READ, AclOperation.ALL, AclOperation.DESCRIBE]),
    st.sampled_from(AclPermission),
)
entities = (
    st.tuples(st.none() | st.just("") | names, st.none() | st.just("") | names)
    .filter(any)
    .map(lambda pair: QuotaEntity(*pair))
)
limits = st.dictionaries(st.sampled_from([each.value for each in QuotaType]), st.floats(1, 100), min_size=1)
partitions = st.builds(TopicPartition, names, st.integers(0, 2).map(PartitionIndex))
offsets = st.dictionaries(partitions, st.integers(0, 9).map(lambda offset: CommittedOffset(Offset(offset))), min_size=1)
states = st.builds(
    DesiredState,
    st.just(frozenset(ResourceKind)),
    st.dictionaries(names, topics),
    st.dictionaries(names, users),
    st.frozensets(bindings),
    st.dictionaries(entities, limits),
    st.dictionaries(names, offsets),
)


def after(state: DesiredState, changes: Iterable[PlannedChange]) -> DesiredState:
    """A cluster with this state once the changes were made: a slow twin of what nodes do."""
    topics, users, acls = dict(state.topics), dict(state.users), set(state.acls)
    quotas = {entity: dict(each) for entity, each in state.quotas.items()}
    groups = {group: dict(each) for group, each in state.group_offsets.items()}
    for change in changes:
        match change.request:
            case TopicChange(name, count, factor, configs):
                old = topics.get(name, DesiredTopic(1, 1))
                kept = {key: value for key, value in {**old.configs, **configs}.items() if value is not None}
                topics[name] = DesiredTopic(count or old.partitions, factor or old.replication_factor, kept)
            case TopicRemoval(name):
                del topics[name]
            case PasswordChange(name, _, mechanisms):
                old_user = users.get(name, DesiredUser({}))
                users[name] = DesiredUser({**old_user.mechanisms, **mechanisms})
            case UserRemoval(name):
                del users[name]
            case AclBinding() as binding:
                (acls.add if change.action is ChangeAction.CREATE else acls.remove)(binding)
            case LimitChange(entity, changed):
                found = {**quotas.get(entity, {}), **changed}
                quotas[entity] = {key: limit for key, limit in found.items() if limit is not None}
                if not quotas[entity]:
                    del quotas[entity]
            case OffsetsChange(group, committed):
                groups.setdefault(group, {}).update(committed)
    return replace(state, topics=topics, users=users, acls=frozenset(acls), quotas=quotas, group_offsets=groups)


def todo(changes: Iterable[PlannedChange]) -> dict[ChangeAction, list[str]]:
    found: dict[ChangeAction, list[str]] = {}
    for each in changes:
        if each.action is not ChangeAction.NONE:
            found.setdefault(each.action, []).append(each.name)
    return found


@settings(max_examples=50, deadline=None)
@given(states, states, st.booleans())
def test_a_second_plan_is_empty(desired: DesiredState, present: DesiredState, prunes: bool) -> None:
    scope = ALL if prunes else NOTHING
    changes = plan_changes(desired, present, scope)
    changed = after(present, changes)
    left = todo(plan_changes(desired, changed, scope))
    assert left.keys() <= {ChangeAction.REFUSE}, left
    refused = left.get(ChangeAction.REFUSE, [])
    for name, topic in desired.topics.items():
        found = changed.topics[name]
        assert found.partitions == topic.partitions or name in refused, "fewer partitions are refused"
        assert name in refused or topic.configs.items() <= found.configs.items()
    assert desired.acls <= changed.acls
    if prunes:
        assert desired.acls == changed.acls and desired.quotas == changed.quotas
        assert {name for name in changed.topics if not name.startswith("_")} <= desired.topics.keys()


@settings(max_examples=50, deadline=None)
@given(states, states)
def test_without_prune_nothing_is_deleted_or_reset(desired: DesiredState, present: DesiredState) -> None:
    changed = after(present, plan_changes(desired, present, NOTHING))
    for name, topic in present.topics.items():
        assert topic.configs.keys() <= changed.topics[name].configs.keys()
    assert present.users.keys() <= changed.users.keys()
    assert present.acls <= changed.acls
    assert present.quotas.keys() <= changed.quotas.keys()
    for group, committed in present.group_offsets.items():
        assert committed.items() <= changed.group_offsets[group].items(), "no group is set back"


@settings(max_examples=50, deadline=None)
@given(states)
def test_a_document_describes_the_state_but_for_passwords(state: DesiredState) -> None:
    read = parse_state(state_document(state), "file")
    without = {name: replace(user, password=None) for name, user in state.users.items()}
    assert read == replace(state, users=without)
    assert not todo(plan_changes(read, state, ALL))


EMPTY = DesiredState(frozenset(ResourceKind))
HAS = replace(
    EMPTY,
    topics={name: DesiredTopic(1, 1, topic_id=TopicId(UUID(int=7))) for name in ("shop.a", "other", "_schemas")},
    users={"shop.writer": DesiredUser(), "admin": DesiredUser()},
    quotas={QuotaEntity("shop.writer", None): {"producer_byte_rate": 1.0}, QuotaEntity("", None): {"x": 1.0}},
)


@pytest.mark.parametrize(
    ("scope", "deleted"),
    [
        (NOTHING, []),
        (PruneScope(frozenset({ResourceKind.TOPICS})), ["other", "shop.a"]),
        (PruneScope(frozenset({ResourceKind.USERS}), own_user="admin"), ["shop.writer"]),
        (PruneScope(frozenset(ResourceKind), ("shop.",)), ["shop.writer", "shop.a", "user 'shop.writer'"]),
        (PruneScope(frozenset(ResourceKind), ("_",)), []),
    ],
)
def test_the_scope_bounds_what_is_deleted(scope: PruneScope, deleted: list[str]) -> None:
    assert todo(plan_changes(EMPTY, HAS, scope)).get(ChangeAction.DELETE, []) == deleted


def test_rules_come_before_the_users_that_they_restrict_and_go_after_them() -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "a", PatternType.LITERAL, "User:u", "*", AclOperation.READ, AclPermission.DENY
    )
    state = replace(
        EMPTY,
        acls=frozenset({rule}),
        users={"u": DesiredUser(password=PasswordSource("P"))},
        topics={"a": DesiredTopic()},
        quotas={QuotaEntity("u", None): {"producer_byte_rate": 1.0}},
    )
    made = [each.kind for each in plan_changes(state, EMPTY, NOTHING)]
    assert made == [ResourceKind.ACLS, ResourceKind.QUOTAS, ResourceKind.TOPICS, ResourceKind.USERS]
    removed = [each.kind for each in plan_changes(EMPTY, state, ALL)]
    assert removed == [ResourceKind.USERS, ResourceKind.TOPICS, ResourceKind.QUOTAS, ResourceKind.ACLS]


def test_no_step_allows_more_than_before_or_after_and_the_own_rules_go_last() -> None:
    def rule(permission: AclPermission, principal: str) -> AclBinding:
        return AclBinding(ResourceType.TOPIC, "a", PatternType.LITERAL, principal, "*", AclOperation.READ, permission)

    denied, allowed = rule(AclPermission.DENY, "User:z"), rule(AclPermission.ALLOW, "User:*")
    own = rule(AclPermission.ALLOW, "User:a")
    state = replace(EMPTY, acls=frozenset({denied, allowed, own}))
    assert [each.request for each in plan_changes(state, EMPTY, NOTHING)] == [denied, allowed, own]
    scope = PruneScope(frozenset(ResourceKind), own_user="a")
    assert [each.request for each in plan_changes(EMPTY, state, scope)] == [allowed, denied, own]


def test_a_prefix_never_selects_the_rules_of_the_cluster() -> None:
    rule = AclBinding(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        "User:u",
        "*",
        AclOperation.ALTER,
        AclPermission.ALLOW,
    )
    state = replace(EMPTY, acls=frozenset({rule}))
    assert not todo(plan_changes(EMPTY, state, PruneScope(frozenset(ResourceKind), ("kafka",))))
    assert todo(plan_changes(EMPTY, state, ALL)) == {ChangeAction.DELETE: [str(rule)]}


def test_a_password_that_is_set_again_keeps_its_iterations() -> None:
    has = replace(EMPTY, users={"u": DesiredUser({ScramMechanism.SCRAM_SHA_512: 20_000})})
    wanted = replace(EMPTY, users={"u": DesiredUser(password=PasswordSource("P"))})
    (change,) = plan_changes(wanted, has, NOTHING, set_passwords=True)
    assert change.request == PasswordChange(
        "u", PasswordSource("P"), {ScramMechanism.SCRAM_SHA_256: None, ScramMechanism.SCRAM_SHA_512: 20_000}
    )


def test_the_topic_that_is_deleted_is_the_one_that_was_seen() -> None:
    (removal,) = (each.request for each in plan_changes(EMPTY, HAS, ALL) if each.name == "other")
    assert removal == TopicRemoval("other", TopicId(UUID(int=7))), "not another one that has its name by then"


def test_durability_is_never_reset() -> None:
    present = replace(EMPTY, topics={"a": DesiredTopic(1, 1, {"durability": "page-cache"})})
    assert not todo(plan_changes(replace(EMPTY, topics={"a": DesiredTopic()}), present, ALL))
