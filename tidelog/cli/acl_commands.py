"""`tidelog acl add|list|remove|test`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import click

from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import counted, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
    checked_host,
    checked_principal,
    operation_named,
)
from tidelog.standard_streams import say

app = CommandGroup()
Prefixed = Annotated[bool, Option("--prefixed", help="The name is a prefix: all names that begin with it.")]
Operations = Annotated[
    list[str] | None, Option("--operation", "-o", help="An operation, as read or alter-configs; may be repeated.")
]
Hosts = Annotated[list[str] | None, Option("--host", help="IP address of the caller; may be repeated.")]


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The resource of a rule: at most one of these."""

    topic: Annotated[str | None, Option("--topic", help="A topic; * for all.")] = None
    group: Annotated[str | None, Option("--group", help="A consumer group; * for all.")] = None
    transactional_id: Annotated[str | None, Option("--transactional-id", help="A transactional id; * for all.")] = None
    user: Annotated[str | None, Option("--user", help="A user; * for all.")] = None
    cluster: Annotated[bool, Option("--cluster", help="The cluster itself.")] = False

    def named(self) -> tuple[ResourceType, str] | None:
        """The resource; None if the options name none. Raises InvalidRequest for more than one."""
        names = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.USER: self.user,
            ResourceType.CLUSTER: CLUSTER_NAME if self.cluster else None,
        }
        given = [(kind, name) for kind, name in names.items() if name is not None]
        if len(given) > 1:
            raise InvalidRequest("name one resource: --topic, --group, --transactional-id, --user or --cluster")
        return given[0] if given else None


NO_AUTHORIZER: Final = "the node has no authorizer (authorizer.class.name): it refuses no request"


@cluster_command(app)
def add(
    call: CommandCall,
    on: ResourceOptions,
    allow: Annotated[list[str] | None, Option("--allow", help="Principal to allow: User:NAME.")] = None,
    deny: Annotated[list[str] | None, Option("--deny", help="Principal to deny: User:NAME.")] = None,
    operation: Operations = None,
    prefixed: Prefixed = False,
    host: Hosts = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Add ACLs: one for each principal, operation and host. A denial is stronger than any permission."""
    resource = on.named()
    if resource is None or not operation or not (allow or deny):
        parts = {
            "a principal (--allow or --deny)": allow or deny,
            "an operation (--operation)": operation,
            "a resource (--topic, --group, --transactional-id, --user or --cluster)": resource,
        }
        missing = " and ".join(what for what, given in parts.items() if not given)
        raise InvalidRequest(
            f"missing: {missing}. For example: tidelog acl add --allow User:alice -o read --topic orders"
        )
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    principals = [(AclPermission.ALLOW, each) for each in allow or ()]
    principals += [(AclPermission.DENY, each) for each in deny or ()]
    bindings = [
        checked_binding(AclBinding(*resource, pattern, principal, where, operation_named(word), permission))
        for permission, principal in principals
        for word in operation
        for where in host or [WILDCARD]
    ]

    async def create(admin: Admin) -> tuple[int, bool]:
        return await admin.create_acls(bindings, validate_only=validate_only), call.as_json or await _has_effect(admin)

    created, has_effect = call.query(create)
    document = {"created": 0 if validate_only else created, "bindings": [_plain(each) for each in bindings]}
    known = len(bindings) - created
    text = f"{counted(created, 'ACL')} {'can be added' if validate_only else 'added'}"
    call.report(document, text + (f", {known} existed already" if known else ""))
    if not has_effect:
        say(NO_AUTHORIZER)


@cluster_command(app, "list")
def list_(
    call: CommandCall,
    on: ResourceOptions,
    principal: Annotated[str | None, Option("--principal", help="Only of this principal.")] = None,
    prefixed: Prefixed = False,
) -> None:
    """List ACLs. With a resource: those that refer to it, by its name, a prefix of it, or *."""
    resource = on.named()
    pattern = None if resource is None and not prefixed else PatternType.PREFIXED if prefixed else PatternType.MATCH
    kind, name = resource or (None, None)
    selecting = AclFilter(kind, name, pattern, principal)

    async def describe(admin: Admin) -> tuple[list[AclBinding], bool]:
        return await admin.describe_acls(selecting), call.as_json or await _has_effect(admin)

    found, has_effect = call.query(describe)
    if call.as_json:
        print_json([_plain(each) for each in found])
        return
    _print("ACLs", found)
    if not has_effect:
        say(NO_AUTHORIZER)


@cluster_command(app)
def remove(
    call: CommandCall,
    on: ResourceOptions,
    principal: Annotated[list[str] | None, Option("--principal", help="Of this principal: User:NAME.")] = None,
    operation: Operations = None,
    prefixed: Prefixed = False,
    host: Hosts = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Remove the ACLs that have all the given values. A resource name is compared as it was given to `add`."""
    resource = on.named()
    if resource is None and not principal:
        raise InvalidRequest("name a --principal or a resource, so that not all ACLs are removed")
    pattern = PatternType.PREFIXED if prefixed else None if resource is None else PatternType.LITERAL
    kind, name = resource or (None, None)
    operations: list[AclOperation | None] = [operation_named(word) for word in operation or ()]
    filters = [
        AclFilter(kind, name, pattern, who, where, each)
        for who in _or_any(principal)
        for each in operations or [None]
        for where in _or_any(host)
    ]
    gone = call.query(lambda admin: admin.delete_acls(filters, validate_only=validate_only))
    if call.as_json:
        print_json({"removed": not validate_only, "bindings": [_plain(each) for each in gone]})
        return
    if gone:
        _print("would be removed" if validate_only else "removed", gone)
    else:
        say("no ACL has these values: none was removed")


@cluster_command(app, "test")
def explain(
    call: CommandCall,
    principal: Annotated[str, Argument(help="User:NAME.")],
    operation: Annotated[str, Argument(help="An operation, as read.")],
    on: ResourceOptions,
    host: Annotated[str, Option("--host", help="IP address of the caller.")] = "127.0.0.1",
) -> None:
    """Show whether a principal may do something, and which rule decides. Exit code 1: it may not."""
    resource = on.named()
    if resource is None:
        raise InvalidRequest("name a resource, for example --topic orders or --cluster")
    asked, who, where = operation_named(operation), checked_principal(principal), checked_host(host)
    decision = call.query(lambda admin: admin.test_acl(who, asked, *resource, host=where))
    if call.as_json:
        rule = None if decision.rule is None else _plain(decision.rule)
        print_json({**dataclasses.asdict(decision), "rule": rule})
    else:
        if not decision.enforced:
            say(f"allowed now: {NO_AUTHORIZER}. With one:")
        say(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
    if not decision.allowed:
        raise click.exceptions.Exit(1)


async def _has_effect(admin: Admin) -> bool:
    """Whether the node enforces ACLs. Also true if it does not answer: the command itself has succeeded by then."""
    try:
        decision = await admin.test_acl("User:ANONYMOUS", AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    except TidelogError:
        return True
    return decision.enforced


def _or_any(given: list[str] | None) -> list[str | None]:
    return [*given] if given else [None]


def _plain(binding: AclBinding) -> dict[str, Any]:
    """Convert to JSON fields, with enumerations by name."""
    values = dataclasses.asdict(binding)
    return {name: value if isinstance(value, str) else value.name for name, value in values.items()}


def _print(title: str, bindings: Iterable[AclBinding]) -> None:
    rows = [
        (
            each.permission.name.lower(),
            each.principal,
            each.operation.name.lower(),
            each.resource_type.name.lower(),
            each.resource_name,
            each.pattern_type.name.lower(),
            each.host,
        )
        for each in bindings
    ]
    print_table(title, ("permission", "principal", "operation", "resource", "name", "pattern", "host"), rows)
