"""Which ACL decides: Kafka's rules, told one by one, and compared with a slow twin."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.listeners.grpc.connections import host_of
from node.security import acl_decisions
from node.security.acl_decisions import AclDecisions
from node.security.security_settings import AuthorizerConfig
from tidelog.errors import InvalidRequest
from tidelog.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclDecision,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
    shown,
)

TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
HOST = "10.0.0.1"


def allow(
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    prefixed: bool = False,
    host: str = "*",
    kind: ResourceType = TOPIC,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def deny(principal: str, operation: AclOperation, name: str, *, prefixed: bool = False, host: str = "*") -> AclBinding:
    return allow(principal, operation, name, prefixed=prefixed, host=host, permission=AclPermission.DENY)


def decisions(*bindings: AclBinding, supers: Iterable[str] = (), everyone: bool = False) -> AclDecisions:
    made = AclDecisions(AuthorizerConfig(enabled=True, super_users=frozenset(supers), allow_everyone=everyone))
    made.follow(frozenset(bindings))
    return made


def ask(by: AclDecisions, principal: str, operation: AclOperation, name: str, host: str = HOST) -> AclDecision:
    return by.decide(principal, host, operation, TOPIC, name)


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    rule = allow("User:alice", READ, "orders")
    by = decisions(rule)
    assert ask(by, "User:alice", READ, "orders").rule == rule
    assert not ask(by, "User:bob", READ, "orders").allowed
    assert not ask(by, "User:alice", WRITE, "orders").allowed
    assert not ask(by, "User:alice", READ, "orders2").allowed
    assert not ask(by, "User:Alice", READ, "orders").allowed, "names are compared exactly"
    assert ask(by, "User:bob", READ, "none").reason == "no ACL refers to the resource: denied by default"


def test_a_denial_is_stronger_than_any_permission() -> None:
    denial = deny("User:*", READ, "orders-secret")
    by = decisions(
        allow("User:alice", ALL, "*"), allow("User:alice", READ, "orders", prefixed=True), denial, supers=["User:root"]
    )
    assert ask(by, "User:alice", READ, "orders").allowed
    assert ask(by, "User:alice", READ, "orders-secret") == AclDecision(
        allowed=False, rule=denial, reason="denied by the ACL: deny User:* to READ topic orders-secret from any host"
    )
    assert ask(by, "User:root", READ, "orders-secret").reason == "User:root is a super user (super.users)"


def test_a_prefix_covers_the_names_that_begin_with_it_and_the_wildcard_all() -> None:
    by = decisions(allow("User:a", READ, "tenant.", prefixed=True), allow("User:b", READ, "*"))
    assert [ask(by, "User:a", READ, name).allowed for name in ("tenant.", "tenant.x", "tenant", "x")] == [
        True,
        True,
        False,
        False,
    ]
    assert ask(by, "User:b", READ, "anything").allowed


def test_a_rule_for_a_host_holds_there_only() -> None:
    by = decisions(allow("User:a", READ, "orders", host=HOST), deny("User:b", READ, "orders", host=HOST))
    assert ask(by, "User:a", READ, "orders").allowed
    assert not ask(by, "User:a", READ, "orders", host="10.0.0.2").allowed
    assert not ask(by, "User:a", READ, "orders", host="").allowed


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_permission_implies_describe_and_a_denial_implies_nothing(operation: AclOperation) -> None:
    assert ask(decisions(allow("User:a", operation, "t")), "User:a", DESCRIBE, "t").allowed
    by = decisions(allow("User:a", DESCRIBE, "t"), deny("User:a", operation, "t"))
    assert ask(by, "User:a", DESCRIBE, "t").allowed
    assert not ask(by, "User:a", operation, "t").allowed


def test_alter_configs_implies_describe_configs_only() -> None:
    by = decisions(allow("User:a", AclOperation.ALTER_CONFIGS, "t"))
    assert ask(by, "User:a", AclOperation.DESCRIBE_CONFIGS, "t").allowed
    assert not ask(by, "User:a", DESCRIBE, "t").allowed


def test_everyone_may_use_what_no_rule_mentions_if_so_configured() -> None:
    by = decisions(allow("User:a", READ, "orders"), everyone=True)
    assert ask(by, "User:b", READ, "free").allowed
    assert not ask(by, "User:b", READ, "orders").allowed
    assert not ask(by, "User:a", WRITE, "orders").allowed


def test_a_decision_changes_with_the_rules() -> None:
    by = decisions(allow("User:a", READ, "orders"))
    assert ask(by, "User:a", READ, "orders").allowed
    assert by.allows_any("User:a", HOST, READ, TOPIC)
    by.follow(frozenset())
    assert not ask(by, "User:a", READ, "orders").allowed
    assert not by.allows_any("User:a", HOST, READ, TOPIC)


def test_the_cache_is_bounded_and_long_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_decisions, "CACHED_MAX", 10)
    by = decisions(allow("User:a", READ, "t", prefixed=True))
    for number in range(100):
        assert ask(by, "User:a", READ, f"t{number}").allowed
        by.allows_any(f"User:{number}", HOST, READ, TOPIC)
        assert len(by._cache) <= 10
        assert len(by._any_cache) <= 10
    before = len(by._cache)
    assert ask(by, "User:a", READ, "t" * 1_000_000).allowed
    assert len(by._cache) == before


def test_any_topic_is_one_that_no_denial_takes_away() -> None:
    """Source: Kafka's authorizeByResourceType."""

    def any_write(*bindings: AclBinding) -> bool:
        return decisions(*bindings).allows_any("User:a", HOST, WRITE, TOPIC)

    permitted = allow("User:a", WRITE, "tenant.x")
    assert any_write(permitted)
    assert not any_write(permitted, deny("User:*", WRITE, "*"))
    assert not any_write(permitted, deny("User:a", ALL, "tenant.", prefixed=True))
    assert not any_write(permitted, deny("User:a", WRITE, "tenant.x"))
    assert any_write(permitted, deny("User:b", WRITE, "*"), deny("User:a", READ, "*"))
    assert any_write(allow("User:a", WRITE, "tenant.x", prefixed=True), deny("User:a", WRITE, "tenant.x"))
    assert not any_write(allow("User:a", READ, "*"))
    assert decisions(supers=["User:a"]).allows_any("User:a", HOST, WRITE, TOPIC)


names = st.text("ab*", min_size=1, max_size=3)
hosts = st.sampled_from(["*", HOST, "10.0.0.2"])
principals = st.sampled_from(["User:a", "User:b", "User:*"])
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principals,
    hosts,
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from(AclPermission),
)


def by_reading_all(rules: Iterable[AclBinding], principal: str, operation: AclOperation, name: str) -> bool:
    """The slow twin: every rule is compared with the question."""
    implied_by = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(operation, set())
    found = [
        rule
        for rule in rules
        if rule.resource_type is TOPIC
        and rule.principal in (principal, "User:*")
        and rule.host in (HOST, "*")
        and rule.applies_to(name)
    ]
    denied = any(rule.permission is AclPermission.DENY and rule.operation in (operation, ALL) for rule in found)
    allowed = any(
        rule.permission is AclPermission.ALLOW and rule.operation in {operation, ALL, *implied_by} for rule in found
    )
    return allowed and not denied


@given(
    st.frozensets(bindings, max_size=12),
    st.sampled_from(["User:a", "User:b", "User:c"]),
    st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    names,
)
def test_the_index_decides_as_reading_all_rules_does(
    rules: frozenset[AclBinding], principal: str, operation: AclOperation, name: str
) -> None:
    by = decisions(*rules)
    first = ask(by, principal, operation, name)
    assert first.allowed == by_reading_all(rules, principal, operation, name)
    assert ask(by, principal, operation, name) is first, "from the cache"
    assert first.rule is None or first.rule in rules


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        (allow("alice", READ, "t"), "write User:NAME"),
        (allow("User:", READ, "t"), "write User:NAME"),
        (allow("User:a\nb", READ, "t"), "write User:NAME"),
        (allow("User:" + "a" * 2_000, READ, "t"), "at most 1024 bytes"),
        (allow("User:a", READ, ""), "1 to 512 bytes of printable"),
        (allow("User:a", READ, "a\x1b[2J"), "1 to 512 bytes of printable"),
        (allow("User:a", READ, "\u20ac" * 200), "1 to 512 bytes of printable"),
        (allow("User:a", READ, "*", prefixed=True), "use LITERAL for all names"),
        (allow("User:a", READ, "t", host="example.org"), "write one IP address"),
        (allow("User:a", AclOperation.CLUSTER_ACTION, "t"), "does not exist for a TOPIC"),
        (allow("User:a", AclOperation.ALTER, "*", kind=ResourceType.CLUSTER), f"is {CLUSTER_NAME}"),
        (AclBinding(TOPIC, "t", PatternType.MATCH, "User:a", "*", READ, AclPermission.ALLOW), "MATCH is for filters"),
    ],
)
def test_a_rule_that_no_request_can_meet_is_refused(binding: AclBinding, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        checked_binding(binding)


def test_a_host_gets_its_usual_form() -> None:
    assert checked_binding(allow("User:a", READ, "t", host="0:0::1")).host == "::1"
    denied = checked_binding(deny("User:a", READ, "t", host="::ffff:10.0.0.1")).host
    assert denied == host_of("ipv6:%5B::ffff:10.0.0.1%5D:40000") == "10.0.0.1", "or the denial would never hold"


def test_filters_select_by_every_value_and_match_by_the_pattern() -> None:
    literal, prefixed, wild = (
        allow("User:a", READ, "orders"),
        allow("User:a", READ, "ord", prefixed=True),
        allow("User:b", WRITE, "*"),
    )
    rules = (literal, prefixed, wild)

    def selected(asked: AclFilter) -> list[AclBinding]:
        return [rule for rule in rules if asked.selects(rule)]

    assert selected(AclFilter()) == [*rules]
    assert selected(AclFilter(TOPIC, "orders", PatternType.MATCH)) == [*rules]
    assert selected(AclFilter(TOPIC, "ordinary", PatternType.MATCH)) == [prefixed, wild]
    assert selected(AclFilter(TOPIC, "orders", PatternType.LITERAL)) == [literal]
    assert selected(AclFilter(resource_name="ord")) == [prefixed]
    assert selected(AclFilter(principal="User:b")) == [wild]
    assert selected(AclFilter(operation=READ, pattern_type=PatternType.PREFIXED)) == [prefixed]
    assert selected(AclFilter(ResourceType.GROUP)) == []


def test_names_are_shown_on_one_line() -> None:
    assert shown("User:CN=alice,O=example") == "User:CN=alice,O=example"
    assert shown('a" to\nforge\x1b[0m é') == '"a\\" to\\nforge\\x1b[0m \\xe9"'
