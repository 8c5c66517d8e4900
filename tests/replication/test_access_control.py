"""ACLs in the metadata log: requests of operators, elections of controllers, snapshots and restarts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from replication.controller import access_control, features
from replication.controller.access_control import FILTERS_MAX
from replication.controller.events import AclsCreated, AclsDeleted, CreateAcls, DeleteAcls, UpdateFeatures
from replication.controller.image import EMPTY, ClusterImage, apply
from replication.controller.image_records import records_of
from replication.controller.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tests.replication.controlled import Controlled
from tidelog.errors import CorruptLog, InvalidRequest, UnsupportedVersion
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import Offset

READ = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
)
WRITE = replace(READ, operation=AclOperation.WRITE)
OF_BOB = replace(READ, principal="User:bob")


def started(level: int = features.LATEST) -> Controlled:
    world = Controlled(level=level)
    world.start(1)
    return world


def create(world: Controlled, *bindings: AclBinding, validate_only: bool = False) -> object:
    return world.ask(CreateAcls(bindings, validate_only))


def delete(world: Controlled, *filters: AclFilter, validate_only: bool = False) -> object:
    return world.ask(DeleteAcls(filters, validate_only))


def from_snapshot(image: ClusterImage) -> ClusterImage:
    """The image that a node makes of a snapshot of this one."""
    return apply(EMPTY, [(Offset(offset), record) for offset, record in enumerate(records_of(image))])


def numbered(count: int, first: int = 0) -> Iterable[AclBinding]:
    return (replace(READ, resource_name=f"topic-{number}") for number in range(first, first + count))


def test_rules_are_created_once_and_removed_by_what_they_say() -> None:
    world = started()
    assert create(world, READ, WRITE, READ) == AclsCreated(2, world.end)
    assert create(world, OF_BOB, READ) == AclsCreated(1, world.end)
    assert world.image.acls == {READ, WRITE, OF_BOB}
    assert delete(world, AclFilter(principal="User:alice")) == AclsDeleted((READ, WRITE), world.end)
    assert world.image.acls == {OF_BOB}
    assert delete(world, AclFilter(principal="User:alice")) == AclsDeleted((), world.end)


def test_a_request_that_changes_nothing_writes_nothing() -> None:
    world = started()
    create(world, READ)
    end = world.end
    assert create(world, READ) == AclsCreated(0, end)
    assert create(world, WRITE, validate_only=True) == AclsCreated(1, end)
    assert delete(world, AclFilter(), validate_only=True) == AclsDeleted((READ,), end)
    assert (world.end, world.image.acls) == (end, frozenset({READ}))


def test_a_request_with_one_bad_rule_creates_none() -> None:
    world = started()
    answer = create(world, READ, replace(READ, principal="alice"))
    assert isinstance(answer, InvalidRequest)
    assert "write User:NAME" in answer.message
    assert world.image.acls == frozenset()


def test_the_next_controller_has_the_rules_of_the_log() -> None:
    world = started()
    create(world, READ, WRITE)
    delete(world, AclFilter(operation=AclOperation.WRITE))
    world.activate(node=2)
    assert world.image.acls == {READ}
    assert create(world, READ, OF_BOB) == AclsCreated(1, world.end)
    world.activate(node=99)
    assert world.image.acls == {READ, OF_BOB}


def test_a_rule_is_answered_only_once_it_is_committed() -> None:
    world = started()
    world.hold_commits = True
    first = world.requests + 1
    assert create(world, READ) is None
    assert delete(world, AclFilter()) is None, "it sees the rule that is being created"
    world.commit()
    created, deleted = world.replies[first], world.replies[first + 1]
    assert isinstance(created, AclsCreated)
    assert isinstance(deleted, AclsDeleted)
    assert deleted.bindings == (READ,)
    assert created.metadata_offset < deleted.metadata_offset
    assert world.replayed().acls == frozenset()


def test_a_snapshot_has_the_same_rules() -> None:
    world = started()
    create(world, READ, WRITE, OF_BOB)
    delete(world, AclFilter(principal="User:bob"))
    restored = from_snapshot(world.image)
    assert restored.acls == {READ, WRITE}
    assert list(records_of(restored)) == list(records_of(world.image))


def test_an_image_without_a_change_of_rules_has_the_same_set() -> None:
    """Authorizers keep what they cached."""
    world = started()
    create(world, READ)
    before = world.image.acls
    world.start(2)
    assert world.image.acls is before


def test_there_are_at_most_so_many_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_control, "ACLS_MAX", 10)
    world = started()
    assert create(world, *numbered(9)) == AclsCreated(9, world.end)
    refused = create(world, *numbered(2, first=9))
    assert isinstance(refused, InvalidRequest)
    assert "has 9 ACLs and may have 10, 2 more are too many" in refused.message
    assert create(world, *numbered(10)) == AclsCreated(1, world.end), "nine of them exist"


def test_one_request_changes_at_most_so_many_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_control, "CHANGED_MAX", 10)
    world = started()
    assert isinstance(create(world, *numbered(11)), InvalidRequest)
    create(world, *numbered(10))
    create(world, READ)
    refused = delete(world, AclFilter())
    assert isinstance(refused, InvalidRequest)
    assert "the filters select 11 ACLs" in refused.message
    assert len(world.image.acls) == 11
    assert isinstance(delete(world, AclFilter(resource_name="orders")), AclsDeleted)
    assert isinstance(delete(world, AclFilter()), AclsDeleted)
    assert world.image.acls == frozenset()


@pytest.mark.parametrize("count", [0, FILTERS_MAX + 1])
def test_a_request_without_rules_or_with_too_many_filters_is_refused(count: int) -> None:
    world = started()
    create(world, READ)
    assert isinstance(delete(world, *[AclFilter()] * count), InvalidRequest)
    assert isinstance(create(world), InvalidRequest)
    assert world.image.acls == {READ}


def test_rules_wait_for_the_feature_level() -> None:
    """A node of an earlier version could not read the records."""
    world = started(features.ACLS - 1)
    for answer in (create(world, READ), delete(world, AclFilter())):
        assert isinstance(answer, UnsupportedVersion)
    world.ask(UpdateFeatures(features.ACLS))
    assert create(world, READ) == AclsCreated(1, world.end)


def test_a_rule_twice_or_a_removal_of_none_contradicts_the_log() -> None:
    world = started()
    with pytest.raises(CorruptLog, match="the ACL does not exist: allow User:alice to READ topic orders"):
        apply(world.image, [(world.end, RemoveAccessControlEntryRecord(READ))])
    image = apply(world.image, [(world.end, AccessControlEntryRecord(READ))])
    with pytest.raises(CorruptLog, match="the ACL exists already"):
        apply(image, [(Offset(world.end + 1), AccessControlEntryRecord(READ))])
