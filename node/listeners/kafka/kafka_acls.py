"""DescribeAcls, CreateAcls and DeleteAcls of Kafka's protocol.

Each rule and each filter that the protocol can express and Tidelog cannot is answered by itself; the others are one
request to the controller, which makes all of the change or, for a limit of the cluster, nothing.
Without an authorizer all three are refused with SECURITY_DISABLED, as in Kafka: rules would protect nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from itertools import chain, groupby, islice, repeat
from typing import Any, Final, TypeVar

from node.api.admin_requests import DescribeAclsAnswer, DescribeAclsRequest
from node.api.table import ADMIN_CREATE_ACLS, ADMIN_DELETE_ACLS, ADMIN_DESCRIBE_ACLS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from node.runtime.limits import ensure_few
from replication.controller.access_control import CHANGED_MAX, FILTERS_MAX
from replication.controller.events import AclsCreated, AclsDeleted, CreateAcls, DeleteAcls
from tidelog.errors import InvalidRequest, SecurityDisabled, TidelogError
from tidelog.protocol.kafka.messages import create_acls_request as to_create
from tidelog.protocol.kafka.messages import delete_acls_request as to_delete
from tidelog.protocol.kafka.messages import describe_acls_request as asked
from tidelog.protocol.kafka.messages.create_acls_response import (
    CREATE_ACLS_RESPONSE,
    AclCreationResult,
    CreateAclsResponse,
)
from tidelog.protocol.kafka.messages.delete_acls_response import (
    DELETE_ACLS_RESPONSE,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from tidelog.protocol.kafka.messages.describe_acls_response import (
    DESCRIBE_ACLS_RESPONSE,
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tidelog.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
)

Number = TypeVar("Number", bound=IntEnum)

_ANY: Final = 1
"""In a filter, in place of the number of a type, an operation or a permission."""


def _number(kind: type[Number], number: int, what: str) -> Number:
    """The value with this number. Raises InvalidRequest."""
    try:
        return kind(number)
    except ValueError:
        valid = ", ".join(f"{each.value} ({each.name})" for each in kind)
        raise InvalidRequest(f"{what} {number} is not possible; valid numbers: {valid}") from None


def _filtered(kind: type[Number], number: int, what: str) -> Number | None:
    return None if number == _ANY else _number(kind, number, what)


def _filter(message: asked.DescribeAclsRequest | to_delete.DeleteAclsFilter) -> AclFilter:
    """Raises InvalidRequest."""
    return AclFilter(
        _filtered(ResourceType, message.resource_type_filter, "resource type"),
        message.resource_name_filter,
        _filtered(PatternType, message.pattern_type_filter, "pattern type"),
        message.principal_filter,
        message.host_filter,
        _filtered(AclOperation, message.operation, "operation"),
        _filtered(AclPermission, message.permission_type, "permission"),
    )


# --- DescribeAcls ---


def _read_describe(message: asked.DescribeAclsRequest, _version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(_filter(message))


def _pattern(binding: AclBinding) -> tuple[ResourceType, str, PatternType]:
    return binding.resource_type, binding.resource_name, binding.pattern_type


def _write_described(
    _message: asked.DescribeAclsRequest, answer: DescribeAclsAnswer, _version: int
) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        0,
        code_of(None),
        None,
        tuple(
            DescribeAclsResource(
                *pattern,
                tuple(AclDescription(each.principal, each.host, each.operation, each.permission) for each in bindings),
            )
            for pattern, bindings in groupby(answer.bindings, _pattern)  # sorted by the pattern first
        ),
    )


def _refuse_describe(_message: asked.DescribeAclsRequest, error: TidelogError, _version: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(0, code_of(error), error.message, ())


DESCRIBE_ACLS: Final = KafkaApi(
    range(1, 4),
    asked.DESCRIBE_ACLS_REQUEST,
    DESCRIBE_ACLS_RESPONSE,
    ADMIN_DESCRIBE_ACLS,
    _read_describe,
    _write_described,
    _refuse_describe,
)


# --- CreateAcls ---


def _binding(creation: to_create.AclCreation) -> AclBinding | InvalidRequest:
    """The rule, or why there cannot be such a rule."""
    try:
        return checked_binding(
            AclBinding(
                _number(ResourceType, creation.resource_type, "resource type"),
                creation.resource_name,
                _number(PatternType, creation.resource_pattern_type, "pattern type"),
                creation.principal,
                creation.host,
                _number(AclOperation, creation.operation, "operation"),
                _number(AclPermission, creation.permission_type, "permission"),
            )
        )
    except InvalidRequest as error:
        return error.with_traceback(None)


def _created(error: TidelogError | None) -> AclCreationResult:
    return AclCreationResult(code_of(error), None if error is None else error.message)


def _read_create(message: to_create.CreateAclsRequest, _version: int) -> CreateAcls:
    ensure_few(message.creations, "ACLs", CHANGED_MAX)
    bindings = map(_binding, message.creations)
    return CreateAcls(tuple(each for each in bindings if isinstance(each, AclBinding)))


def _write_created(message: to_create.CreateAclsRequest, _answer: AclsCreated, _version: int) -> CreateAclsResponse:
    bindings = map(_binding, message.creations)
    return CreateAclsResponse(
        0, tuple(_created(each if isinstance(each, InvalidRequest) else None) for each in bindings)
    )


def _refuse_create(message: to_create.CreateAclsRequest, error: TidelogError, _version: int) -> CreateAclsResponse:
    bindings = map(_binding, message.creations[:CHANGED_MAX])
    own = (each if isinstance(each, InvalidRequest) else error for each in bindings)
    errors = islice(chain(own, repeat(error)), len(message.creations))
    return CreateAclsResponse(0, tuple(map(_created, errors)))


CREATE_ACLS: Final = KafkaApi(
    range(1, 4),
    to_create.CREATE_ACLS_REQUEST,
    CREATE_ACLS_RESPONSE,
    ADMIN_CREATE_ACLS,
    _read_create,
    _write_created,
    _refuse_create,
)


# --- DeleteAcls ---


def _selection(asked_filter: to_delete.DeleteAclsFilter) -> AclFilter | InvalidRequest:
    """What a filter selects, or why there cannot be such a filter."""
    try:
        return _filter(asked_filter)
    except InvalidRequest as error:
        return error.with_traceback(None)


def _read_delete(message: to_delete.DeleteAclsRequest, _version: int) -> DeleteAcls:
    ensure_few(message.filters, "filters", FILTERS_MAX)
    return DeleteAcls(tuple(each for each in map(_selection, message.filters) if isinstance(each, AclFilter)))


def _not_deleted(error: TidelogError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(code_of(error), error.message, ())


def _deleted(selection: AclFilter | InvalidRequest, bindings: Iterable[AclBinding]) -> DeleteAclsFilterResult:
    """A rule that several filters select is in the result of each, as in Kafka."""
    if isinstance(selection, InvalidRequest):
        return _not_deleted(selection)
    return DeleteAclsFilterResult(
        code_of(None),
        None,
        tuple(
            DeleteAclsMatchingAcl(
                code_of(None), None, *_pattern(each), each.principal, each.host, each.operation, each.permission
            )
            for each in filter(selection.selects, bindings)
        ),
    )


def _write_deleted(message: to_delete.DeleteAclsRequest, answer: AclsDeleted, _version: int) -> DeleteAclsResponse:
    selections = map(_selection, message.filters)
    return DeleteAclsResponse(0, tuple(_deleted(each, answer.bindings) for each in selections))


def _refuse_delete(message: to_delete.DeleteAclsRequest, error: TidelogError, _version: int) -> DeleteAclsResponse:
    errors = (each if isinstance(each, InvalidRequest) else error for each in map(_selection, message.filters))
    return DeleteAclsResponse(0, tuple(map(_not_deleted, errors)))


DELETE_ACLS: Final = KafkaApi(
    range(1, 4),
    to_delete.DELETE_ACLS_REQUEST,
    DELETE_ACLS_RESPONSE,
    ADMIN_DELETE_ACLS,
    _read_delete,
    _write_deleted,
    _refuse_delete,
)


# --- without an authorizer ---


def _refuse_to_read(_message: Any, _version: int) -> Any:
    raise SecurityDisabled(
        "the node has no authorizer, so that ACLs have no effect: set authorizer.class.name and super.users"
    )


def without_authorizer(kafka: KafkaApi) -> KafkaApi:
    """The row of the table on a node that decides by no ACLs."""
    return replace(kafka, read=_refuse_to_read) if kafka in (DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS) else kafka
