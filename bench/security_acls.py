"""Access control lists: what a check costs a request, and a changed rule a node.

Processor time of one thread. 10,000 rules of 300 principals, a third of them literal and the others prefixed; the
checks are those of clients with 24 topics each, as the boundary makes them for each batch and each fetch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.figure import Better, Figure, Run
from node.api.table import DATA_FETCH
from node.requests.context import RequestContext
from node.security.acl_authorizer import AclAuthorizer
from node.security.acl_decisions import AclDecisions
from node.security.audit_log import AuditLog
from node.security.security_settings import AuthorizerConfig
from replication.controller.image import EMPTY
from tidelog.clock import MachineClock
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

RULES = 10_000
PRINCIPALS = 300
TOPICS = 24
ROUNDS = 30
CONFIG = AuthorizerConfig(enabled=True, super_users=frozenset({"User:node-0"}))


def figures(run: Run) -> Iterator[Figure]:
    rules = list(_rules(500 if run.quick else RULES))
    asked = [(rule.principal, rule.resource_name) for rule in rules if rule.principal == rules[0].principal][:TOPICS]
    yield from _checks(run, rules, asked)
    yield from _changes(run, rules)


def _rules(count: int) -> Iterator[AclBinding]:
    for number in range(count):
        principal = f"User:client-{number % PRINCIPALS}"
        pattern = PatternType.PREFIXED if number % 3 else PatternType.LITERAL
        name = f"tenant-{number % 100}.topic-{number}"
        yield AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", AclOperation.READ, AclPermission.ALLOW)


def _checks(run: Run, rules: list[AclBinding], asked: list[tuple[str, str]]) -> Iterator[Figure]:
    decisions = AclDecisions(CONFIG)
    decisions.follow(frozenset(rules))

    def decide() -> None:
        for principal, topic in asked:
            decisions.decide(principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, topic)

    decide()
    repeated = _best(run, decide) / len(asked)
    yield Figure("check of a topic, decided before", repeated * 1e6, "us", target=1.0, better=Better.LESS)

    def begin_again() -> None:
        decisions.follow(frozenset())
        decisions.follow(all_rules)

    def decide_first() -> None:
        begin_again()
        for principal, topic in asked:
            decisions.decide(principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, topic)

    all_rules = frozenset(rules[:500])
    first = max(0.0, _best(run, decide_first) - _best(run, begin_again)) / len(asked)
    yield Figure("check of a topic, first", first * 1e6, "us", better=Better.LESS)

    authorizer = AclAuthorizer(CONFIG, AuditLog(lambda _line: None, clock=MachineClock(), node_id=0))
    authorizer.follow(replace(EMPTY, acls=frozenset(rules)))
    contexts = [RequestContext("client", "ipv4:10.0.0.1:4", name, host="10.0.0.1") for name, _ in asked]
    pairs = [(context, topic) for context, (_, topic) in zip(contexts, asked, strict=True)]

    def refuse() -> None:
        for context, topic in pairs:
            authorizer.topic_refusal(context, DATA_FETCH, topic, by_id=True)

    refuse()
    whole = _best(run, refuse) / len(pairs)
    yield Figure("check of a topic on the boundary", whole * 1e6, "us", target=1.0, better=Better.LESS)


def _changes(run: Run, rules: list[AclBinding]) -> Iterator[Figure]:
    decisions, one_less = AclDecisions(CONFIG), frozenset(rules[1:])
    every = one_less | {rules[0]}
    sets = itertools.cycle((every, one_less))
    decisions.follow(next(sets))
    yield Figure(
        f"a changed rule of {len(rules)}",
        _best(run, lambda: decisions.follow(next(sets))) * 1e3,
        "ms",
        better=Better.LESS,
    )


def _best(run: Run, work: Callable[[], object]) -> float:
    """The shortest processor time of one call of `work` (s)."""
    best = float("inf")
    for _ in range(2 if run.quick else ROUNDS):
        began, calls = time.process_time_ns(), 0
        while time.process_time_ns() - began < 5_000_000:
            work()
            calls += 1
        best = min(best, (time.process_time_ns() - began) / calls / 1e9)
    return best
