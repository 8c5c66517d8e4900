"""Which ACL binding decides on an operation of a principal: Kafka's rules, over one set of bindings.

Invariants:
  1. Super users may do everything. For all others a matching denial decides before any permission.
  2. Without a matching binding the operation is denied; with `allow_everyone` it is allowed if no binding at all refers
     to the resource.
  3. A decision from the cache equals the one that the present bindings give: `follow` empties the cache when the
     bindings change.
  4. Each cache has at most `CACHED_MAX` entries, whatever names callers send.

Permission to READ, WRITE, DELETE or ALTER implies DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. A denial implies
nothing: who may not READ may still DESCRIBE.
Cost: a cached decision takes some 0.5 us; the first one two dictionary lookups and one for each length of a prefix.
Not here: what a request needs (node/api/table.py), which bindings exist (replication/controller/access_control.py).
Source: Kafka's StandardAuthorizerData; KIP-290.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

from node.security.security_settings import AuthorizerConfig
from tidelog.security.acls import (
    ANYONE,
    WILDCARD,
    AclBinding,
    AclDecision,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    shown,
)

CACHED_MAX: Final = 20_000
CACHED_LENGTH_MAX: Final = 249
"""Decisions kept: some hundred clients with some dozen topics each. A topic name has at most 249 ASCII characters;
20,000 decisions take at most 10 MiB."""

_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}
"""Operations of which a permission implies another one."""


class AclDecisions:
    """Decisions by the bindings of the newest image."""

    def __init__(self, config: AuthorizerConfig) -> None:
        self._config = config
        self._bindings: frozenset[AclBinding] = frozenset()
        self._index = _AclIndex()
        self._cache: dict[tuple[str, str, AclOperation, ResourceType, str], AclDecision] = {}
        self._any_cache: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}
        self._by_rule: dict[AclBinding, AclDecision] = {}

    def follow(self, bindings: frozenset[AclBinding]) -> None:
        """Decide by these bindings from now on."""
        if bindings is self._bindings:
            return
        self._index.change(self._bindings - bindings, bindings - self._bindings)
        self._bindings = bindings
        self._cache.clear()
        self._any_cache.clear()
        self._by_rule.clear()

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclDecision:
        """Whether the principal, connected from that host, may do the operation with the resource."""
        key = (principal, host, operation, resource_type, name)
        found = self._cache.get(key)
        if found is not None:
            return found
        decision = self._decision(principal, host, operation, resource_type, name)
        if len(name) <= CACHED_LENGTH_MAX and name.isascii():
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[key] = decision
        return decision

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the principal may do the operation with any resource of the type. Source: Kafka's
        `authorizeByResourceType` (KIP-679)."""
        key = (principal, host, operation, resource_type)
        found = self._any_cache.get(key)
        if found is None:
            found = self._find_any(principal, host, operation, resource_type)
            if len(self._any_cache) >= CACHED_MAX:
                self._any_cache.clear()
            self._any_cache[key] = found
        return found

    def _find_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        if principal in self._config.super_users:
            return True
        matching = [
            binding
            for binding in self._index.of_type(resource_type)
            if _concerns(binding, principal, host) and _covers(binding, operation)
        ]
        denials = _Denied(each for each in matching if each.permission is AclPermission.DENY)
        if denials.everything:
            return False
        if self._config.allow_everyone:
            return True
        return any(each.permission is AclPermission.ALLOW and not denials.contain(each) for each in matching)

    def _decision(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclDecision:
        if principal in self._config.super_users:
            return AclDecision(allowed=True, rule=None, reason=f"{shown(principal)} is a super user (super.users)")
        allowing, refers = None, False
        for binding in self._index.of_resource(resource_type, name):
            refers = True
            if not (_concerns(binding, principal, host) and _covers(binding, operation)):
                continue
            if binding.permission is AclPermission.DENY:
                return self._decision_by(binding)
            allowing = allowing or binding
        if allowing is not None:
            return self._decision_by(allowing)
        if refers:
            return _NO_RULE_ALLOWS
        return _EVERYONE if self._config.allow_everyone else _NO_RULE

    def _decision_by(self, rule: AclBinding) -> AclDecision:
        found = self._by_rule.get(rule)
        if found is None:
            allowed = rule.permission is AclPermission.ALLOW
            reason = f"{'allowed' if allowed else 'denied'} by the ACL: {rule}"
            found = self._by_rule[rule] = AclDecision(allowed, rule, reason)
        return found


_NO_RULE: Final = AclDecision(allowed=False, rule=None, reason="no ACL refers to the resource: denied by default")
_NO_RULE_ALLOWS: Final = AclDecision(
    allowed=False, rule=None, reason="no ACL of the resource allows it: denied by default"
)
_EVERYONE: Final = AclDecision(
    allowed=True, rule=None, reason="no ACL refers to the resource (allow.everyone.if.no.acl.found)"
)


class _AclIndex:
    """Bindings by the resources that they name, each list sorted: the same binding decides on every node."""

    def __init__(self) -> None:
        self._literal: dict[tuple[ResourceType, str], list[AclBinding]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[AclBinding]] = {}
        self._lengths: dict[ResourceType, list[int]] = {}

    def change(self, gone: Iterable[AclBinding], new: Iterable[AclBinding]) -> None:
        """Remove bindings and add others. One changed binding of 10,000 takes 1 ms, all of them 30 ms."""
        for binding in gone:
            patterns, key = self._patterns_of(binding), (binding.resource_type, binding.resource_name)
            patterns[key].remove(binding)
            if not patterns[key]:
                del patterns[key]
        for binding in new:
            key = (binding.resource_type, binding.resource_name)
            insort(self._patterns_of(binding).setdefault(key, []), binding)
        lengths: dict[ResourceType, set[int]] = {}
        for resource_type, name in self._prefixed:
            lengths.setdefault(resource_type, set()).add(len(name))
        self._lengths = {resource_type: sorted(found) for resource_type, found in lengths.items()}

    def _patterns_of(self, binding: AclBinding) -> dict[tuple[ResourceType, str], list[AclBinding]]:
        return self._prefixed if binding.pattern_type is PatternType.PREFIXED else self._literal

    def of_resource(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        """The bindings whose patterns contain the resource."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def of_type(self, resource_type: ResourceType) -> Iterator[AclBinding]:
        """All bindings of resources of this type."""
        for patterns in (self._literal, self._prefixed):
            for (found, _), bindings in patterns.items():
                if found is resource_type:
                    yield from bindings


def _concerns(binding: AclBinding, principal: str, host: str) -> bool:
    return binding.principal in (principal, ANYONE) and binding.host in (host, WILDCARD)


def _covers(binding: AclBinding, operation: AclOperation) -> bool:
    """True if a binding for one operation decides on another one."""
    if binding.operation in (operation, AclOperation.ALL):
        return True
    return binding.permission is AclPermission.ALLOW and binding.operation in _IMPLYING.get(operation, ())


class _Denied:
    """The resources of denials. everything: all resources of the type."""

    def __init__(self, denials: Iterable[AclBinding]) -> None:
        self._literal: set[str] = set()
        self._prefixes: set[str] = set()
        for denial in denials:
            (self._prefixes if denial.pattern_type is PatternType.PREFIXED else self._literal).add(denial.resource_name)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self.everything = WILDCARD in self._literal

    def contain(self, allowed: AclBinding) -> bool:
        """True if every resource of the binding is one of these."""
        name = allowed.resource_name
        if allowed.pattern_type is PatternType.LITERAL and name in self._literal:
            return True
        return any(length <= len(name) and name[:length] in self._prefixes for length in self._lengths)
