"""Messages of Kafka about ACLs, quotas and users, and their values: each entry is answered by itself, as by Kafka."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from node.api.admin_requests import (
    AlterQuotasOneByOne,
    AlterUsersOneByOne,
    ChangedPart,
    ChangedParts,
    ClientQuota,
    DescribeAclsAnswer,
    DescribeAclsRequest,
    DescribeClientQuotasAnswer,
    DescribeClientQuotasRequest,
    DescribeScramCredentialsAnswer,
    DescribeScramCredentialsRequest,
    ScramCredentialInfo,
)
from node.listeners.kafka.exchange import KafkaApi
from node.listeners.kafka.kafka_acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, without_authorizer
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from node.listeners.kafka.kafka_users import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from replication.controller.access_control import CHANGED_MAX, FILTERS_MAX
from replication.controller.events import (
    AclsCreated,
    AclsDeleted,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    QuotaAlteration,
    QuotaChange,
)
from replication.controller.metadata_records import ScramCredentialRecord, ScramCredentialRemovalRecord
from replication.controller.scram_users import CHANGES_MAX
from tests.node.kafka_exchanges import answered, begun, exchanged, read, request
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    ResourceNotFound,
    SecurityDisabled,
    TidelogError,
    UnsupportedVersion,
)
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.security.scram import credential_of
from tidelog.types import Offset, QuotaEntity, QuotaValue, ScramMechanism

NONE, INVALID_REQUEST, UNSUPPORTED_MECHANISM, CLUSTER_AUTHORIZATION, SECURITY_DISABLED = 0, 42, 33, 31, 54
UNSUPPORTED_VERSION, NOT_FOUND, DUPLICATE = 35, 91, 92
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, ALLOW = 3, 3
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512

BINDING = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
)
OTHER = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "::1", AclOperation.ALL, AclPermission.DENY
)
OF_GROUPS = AclBinding(
    ResourceType.GROUP, "r", PatternType.PREFIXED, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
)


def refused(kafka: KafkaApi, version: int, message: Any, error: TidelogError) -> Any:
    """The answer to a request that is refused as a whole."""
    exchange, _ = begun(kafka, version, message)
    return answered(kafka, version, exchange.refuse(error))


# --- ACLs -------------------------------------------------------------------------------------------------------------


def creation(**changed: Any) -> Any:
    usual = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return request("CreateAcls").AclCreation(**{**usual, **changed})


def creating(*creations: Any) -> Any:
    return request("CreateAcls").CreateAclsRequest(tuple(creations))


def selecting(module: Any, kind: str, **changed: Any) -> Any:
    usual = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return getattr(module, kind)(**{**usual, **changed})


def describing(**changed: Any) -> Any:
    return selecting(request("DescribeAcls"), "DescribeAclsRequest", **changed)


def deletion(**changed: Any) -> Any:
    return selecting(request("DeleteAcls"), "DeleteAclsFilter", **changed)


def deleting(*filters: Any) -> Any:
    return request("DeleteAcls").DeleteAclsRequest(tuple(filters))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_described_by_resource(version: int) -> None:
    _, value = begun(DESCRIBE_ACLS, version, describing())
    assert value == DescribeAclsRequest(AclFilter())
    message = describing(
        resource_type_filter=TOPIC, resource_name_filter="o", pattern_type_filter=MATCH, operation=READ
    )
    _, value = begun(DESCRIBE_ACLS, version, message)
    assert value.filter == AclFilter(ResourceType.TOPIC, "o", PatternType.MATCH, operation=AclOperation.READ)
    shown = exchanged(DESCRIBE_ACLS, version, message, DescribeAclsAnswer((BINDING, OTHER, OF_GROUPS)))
    assert (shown.error_code, shown.error_message) == (NONE, None)
    assert [(each.resource_type, each.resource_name, each.pattern_type) for each in shown.resources] == [
        (TOPIC, "orders", LITERAL),
        (GROUP, "r", PREFIXED),
    ]
    assert [(each.principal, each.host, each.operation, each.permission_type) for each in shown.resources[0].acls] == [
        ("User:alice", "*", READ, ALLOW),
        ("User:bob", "::1", 2, 2),
    ]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("number", [0, 99, -1])
def test_a_filter_of_what_does_not_exist_is_refused(field: str, number: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{number} is not possible; valid numbers"):
        begun(DESCRIBE_ACLS, 3, describing(**{field: number}))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_rule_that_cannot_be_is_refused_by_itself(version: int) -> None:
    wrong = [
        creation(resource_type=6),
        creation(resource_pattern_type=MATCH),
        creation(principal="Group:all"),
        creation(host="example.org"),
        creation(operation=ANY),
        creation(resource_type=CLUSTER, resource_name="x"),
        creation(resource_name=""),
    ]
    message = creating(creation(), *wrong, creation(host="::ffff:1.2.3.4"))
    exchange, value = begun(CREATE_ACLS, version, message)
    assert isinstance(value, CreateAcls)
    assert [each.host for each in value.bindings] == ["*", "1.2.3.4"]
    results = answered(CREATE_ACLS, version, exchange.encode(AclsCreated(2, Offset(5)), 0)).results
    assert [each.error_code for each in results] == [NONE, *[INVALID_REQUEST] * len(wrong), NONE]
    assert [each.error_message for each in results if each.error_code == NONE] == [None, None]
    for error, code in ((InvalidRequest("full"), 42), (ClusterAuthorizationFailed("no"), CLUSTER_AUTHORIZATION)):
        results = answered(CREATE_ACLS, version, exchange.refuse(error)).results
        assert [each.error_code for each in results] == [code, *[INVALID_REQUEST] * len(wrong), code]
        assert results[0].error_message == error.message


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_filter_is_answered_with_what_it_has_removed(version: int) -> None:
    """A rule of two filters is in both answers, as in Kafka."""
    message = deleting(
        deletion(resource_type_filter=TOPIC), deletion(operation=0), deletion(principal_filter="User:alice")
    )
    exchange, value = begun(DELETE_ACLS, version, message)
    assert value == DeleteAcls((AclFilter(ResourceType.TOPIC), AclFilter(principal="User:alice")))
    answer = AclsDeleted((BINDING, OTHER, OF_GROUPS), Offset(5))
    results = answered(DELETE_ACLS, version, exchange.encode(answer, 0)).filter_results
    assert [each.error_code for each in results] == [NONE, INVALID_REQUEST, NONE]
    assert [[acl.principal for acl in each.matching_acls] for each in results] == [
        ["User:alice", "User:bob"],
        [],
        ["User:alice", "User:alice"],
    ]
    assert {acl.error_code for each in results for acl in each.matching_acls} == {NONE}
    results = answered(DELETE_ACLS, version, exchange.refuse(ClusterAuthorizationFailed("no"))).filter_results
    assert [each.error_code for each in results] == [CLUSTER_AUTHORIZATION, INVALID_REQUEST, CLUSTER_AUTHORIZATION]


def test_a_request_with_too_many_parts_is_refused_before_any_is_made_a_value() -> None:
    salted = request("AlterUserScramCredentials").ScramCredentialUpsertion("alice", 1, 4_096, b"s" * 16, b"p" * 32)
    users = request("AlterUserScramCredentials").AlterUserScramCredentialsRequest((), (salted,) * (CHANGES_MAX + 1))
    for kafka, version, message in (
        (CREATE_ACLS, 3, creating(*[creation()] * (CHANGED_MAX + 1))),
        (DELETE_ACLS, 3, deleting(*[deletion()] * (FILTERS_MAX + 1))),
        (ALTER_USER_SCRAM_CREDENTIALS, 0, users),
    ):
        with pytest.raises(InvalidRequest, match="at most"):
            begun(kafka, version, message)


def test_without_an_authorizer_rules_are_refused_and_nothing_else() -> None:
    rows = [without_authorizer(each) for each in KAFKA_APIS]
    changed = [row for row, usual in zip(rows, KAFKA_APIS, strict=True) if row is not usual]
    assert [each.key for each in changed] == [29, 30, 31]
    error = SecurityDisabled("no authorizer")
    for row, message in zip(changed, (describing(), creating(creation()), deleting(deletion())), strict=True):
        with pytest.raises(SecurityDisabled, match=r"set authorizer\.class\.name and super\.users"):
            begun(row, 3, message)
        assert refused(DESCRIBE_ACLS, 3, describing(), error).error_code == SECURITY_DISABLED
    [result] = refused(CREATE_ACLS, 3, creating(creation()), error).results
    [deleted] = refused(DELETE_ACLS, 3, deleting(deletion()), error).filter_results
    assert (result.error_code, deleted.error_code) == (SECURITY_DISABLED, SECURITY_DISABLED)


# --- quotas -----------------------------------------------------------------------------------------------------------

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
QUOTAS = {
    "alice": QuotaEntity("alice", None),
    "alice app": QuotaEntity("alice", "app"),
    "default": QuotaEntity("", None),
    "app": QuotaEntity(None, "app"),
    "default app": QuotaEntity("", "app"),
}


def of_quotas(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    module = request("DescribeClientQuotas")
    return module.DescribeClientQuotasRequest(tuple(module.ComponentData(*each) for each in components), strict)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "strict", "names"),
    [
        ([], False, list(QUOTAS)),
        ([], True, []),
        ([("user", EXACT, "alice")], False, ["alice", "alice app"]),
        ([("user", EXACT, "alice")], True, ["alice"]),
        ([("user", DEFAULT, None)], False, ["default", "default app"]),
        ([("user", SPECIFIED, None)], True, ["alice", "default"]),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "app")], True, ["alice app", "default app"]),
        ([("client-id", SPECIFIED, None)], False, ["alice app", "app", "default app"]),
        ([("ip", SPECIFIED, None)], False, []),
    ],
)
def test_quotas_are_described_by_kafkas_filters(
    version: int, components: list[tuple[str, int, str | None]], strict: bool, names: list[str]
) -> None:
    entries = tuple(
        ClientQuota(entity, (QuotaValue("producer_byte_rate", float(number)),))
        for number, entity in enumerate(QUOTAS.values())
    )
    message = of_quotas(*components, strict=strict)
    assert begun(DESCRIBE_CLIENT_QUOTAS, version, message)[1] == DescribeClientQuotasRequest(None, None)
    answer = exchanged(DESCRIBE_CLIENT_QUOTAS, version, message, DescribeClientQuotasAnswer(entries))
    assert (answer.error_code, answer.error_message) == (NONE, None)
    found = [list(QUOTAS)[int(each.values[0].value)] for each in answer.entries]
    assert found == names
    for each, name in zip(answer.entries, found, strict=True):
        entity = {part.entity_type: part.entity_name for part in each.entity}
        quota = QUOTAS[name]
        expected = {"user": quota.user, "client-id": quota.client_id}
        assert entity == {kind: name or None for kind, name in expected.items() if name is not None}


@pytest.mark.parametrize(
    ("components", "error", "next_step"),
    [
        ([("user", EXACT, None)], InvalidRequest, "give a name"),
        ([("user", DEFAULT, "alice")], InvalidRequest, "give a name with an exact match"),
        ([("user", 3, None)], InvalidRequest, "use 0"),
        ([("user", EXACT, "a"), ("user", SPECIFIED, None)], InvalidRequest, "name it once"),
        ([("ip", EXACT, "::1"), ("user", EXACT, "a")], InvalidRequest, "ask for each by itself"),
        ([("group", EXACT, "a")], UnsupportedVersion, "name the type user or client-id"),
        ([("", EXACT, "a")], UnsupportedVersion, "name the type"),
    ],
)
def test_a_filter_of_quotas_that_kafka_refuses_is_refused(
    components: list[tuple[str, int, str | None]], error: type[TidelogError], next_step: str
) -> None:
    with pytest.raises(error, match=next_step):
        begun(DESCRIBE_CLIENT_QUOTAS, 1, of_quotas(*components))
    answer = refused(DESCRIBE_CLIENT_QUOTAS, 1, of_quotas(), error("why"))
    assert (answer.error_message, answer.entries) == ("why", None)


@pytest.mark.parametrize("version", [0, 1])
def test_each_entity_is_changed_by_itself(version: int) -> None:
    module = request("AlterClientQuotas")

    def entry(*entity: tuple[str, str | None]) -> Any:
        ops = (
            module.OpData("producer_byte_rate", 10.0, remove=False),
            module.OpData("request_percentage", 0.0, remove=True),
        )
        return module.EntryData(tuple(module.EntityData(*each) for each in entity), ops)

    entries = (
        entry(("user", "alice")),
        entry(("ip", "::1")),
        entry(("client-id", None), ("user", "bob")),
        entry(("user", "a"), ("user", "b")),
        entry(("user", "")),
        entry(),
    )
    message = module.AlterClientQuotasRequest(entries, validate_only=True)
    exchange, value = begun(ALTER_CLIENT_QUOTAS, version, message)
    changes = (QuotaChange("producer_byte_rate", 10.0), QuotaChange("request_percentage", None))
    entities = (QuotaEntity("alice", None), QuotaEntity("bob", ""), QuotaEntity(None, None))
    assert value == AlterQuotasOneByOne(tuple(QuotaAlteration(each, changes) for each in entities), validate_only=True)
    outcome = ChangedParts(
        (ChangedPart(None), ChangedPart(InvalidRequest("too much")), ChangedPart(InvalidRequest("no")))
    )
    results = answered(ALTER_CLIENT_QUOTAS, version, exchange.encode(outcome, 0)).entries
    assert [each.error_code for each in results] == [NONE, *[INVALID_REQUEST] * 5]
    assert results[2].error_message == "too much"
    next_steps = ("set those of user or client-id", "name each type once", "or no name .null. for the default")
    for result, next_step in zip((results[1], results[3], results[4]), next_steps, strict=True):
        assert re.search(next_step, result.error_message)
    assert [[(part.entity_type, part.entity_name) for part in each.entity] for each in results] == [
        [(part.entity_type, part.entity_name) for part in each.entity] for each in entries
    ]
    results = answered(ALTER_CLIENT_QUOTAS, version, exchange.refuse(ClusterAuthorizationFailed("no"))).entries
    assert [each.error_code for each in results] == [31, 42, 31, 42, 42, 31]


# --- users ------------------------------------------------------------------------------------------------------------


def of_users(*names: str, is_null: bool = False) -> Any:
    module = request("DescribeUserScramCredentials")
    users = None if is_null else tuple(module.UserName(each) for each in names)
    return module.DescribeUserScramCredentialsRequest(users)


def test_users_are_described_with_their_mechanisms_and_an_error_each() -> None:
    infos = DescribeScramCredentialsAnswer(
        (
            ScramCredentialInfo("alice", SHA_256, 4_096),
            ScramCredentialInfo("alice", SHA_512, 8_192),
            ScramCredentialInfo("bob", SHA_256, 4_096),
        )
    )
    for everyone in (of_users(), of_users(is_null=True)):
        assert begun(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, everyone)[1] == DescribeScramCredentialsRequest(())
        results = exchanged(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, everyone, infos).results
        assert [
            (each.user, each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
            for each in results
        ] == [("alice", NONE, [(1, 4_096), (2, 8_192)]), ("bob", NONE, [(1, 4_096)])]
    message = of_users("bob", "nobody", "alice", "bob")
    results = exchanged(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, message, infos).results
    assert [(each.user, each.error_code, len(each.credential_infos)) for each in results] == [
        ("bob", DUPLICATE, 0),
        ("nobody", NOT_FOUND, 0),
        ("alice", NONE, 2),
    ]
    answer = refused(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, of_users(), ClusterAuthorizationFailed("no"))
    assert (answer.error_code, answer.error_message, answer.results) == (CLUSTER_AUTHORIZATION, "no", ())
    answer = refused(
        DESCRIBE_USER_SCRAM_CREDENTIALS, 0, of_users("bob", "alice", "bob"), ClusterAuthorizationFailed("no")
    )
    assert [(each.user, each.error_code) for each in answer.results] == [("bob", 31), ("alice", 31)]


def test_the_keys_of_a_user_are_made_of_the_salted_password() -> None:
    """The same as a client of Tidelog makes of the password itself."""
    module, salt = request("AlterUserScramCredentials"), b"salt of 16 bytes"
    for mechanism in ScramMechanism:
        digest = "sha256" if mechanism is SHA_256 else "sha512"
        salted = hashlib.pbkdf2_hmac(digest, b"tulip", salt, 4_096)
        upsertion = module.ScramCredentialUpsertion("alice", mechanism, 4_096, salt, salted)
        value = read(ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=(upsertion,))
        made = credential_of(mechanism, "tulip", salt, 4_096)
        record = ScramCredentialRecord("alice", mechanism, salt, made.stored_key, made.server_key, 4_096)
        assert value == AlterUsersOneByOne((AlterScramCredentials((record,)),))
        assert "salt of" not in repr(value)


def test_each_user_is_changed_by_itself() -> None:
    module = request("AlterUserScramCredentials")

    def upsertion(name: str, mechanism: int) -> Any:
        return module.ScramCredentialUpsertion(name, mechanism, 4_096, b"salt of 16 bytes", b"x" * 32)

    message = module.AlterUserScramCredentialsRequest(
        (module.ScramCredentialDeletion("gone", 1), module.ScramCredentialDeletion("alice", 2)),
        (upsertion("alice", 1), upsertion("bob", 3), upsertion("bob", 1), upsertion("carol", 2)),
    )
    exchange, value = begun(ALTER_USER_SCRAM_CREDENTIALS, 0, message)
    assert [
        ([each.name for each in user.upsertions], [(each.name, each.mechanism) for each in user.deletions])
        for user in value.users
    ] == [([], [("gone", SHA_256)]), (["alice"], [("alice", SHA_512)]), (["carol"], [])]
    assert value.users[0].deletions == (ScramCredentialRemovalRecord("gone", SHA_256),)
    outcome = ChangedParts((ChangedPart(ResourceNotFound("not there")), ChangedPart(None), ChangedPart(None)))
    results = answered(ALTER_USER_SCRAM_CREDENTIALS, 0, exchange.encode(outcome, 0)).results
    assert [(each.user, each.error_code) for each in results] == [
        ("gone", NOT_FOUND),
        ("alice", NONE),
        ("bob", UNSUPPORTED_MECHANISM),
        ("carol", NONE),
    ]
    results = answered(ALTER_USER_SCRAM_CREDENTIALS, 0, exchange.refuse(ClusterAuthorizationFailed("no"))).results
    assert {each.error_code for each in results} == {CLUSTER_AUTHORIZATION}
