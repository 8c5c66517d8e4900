"""ListGroups, DescribeGroups and DeleteGroups of Kafka's protocol: what tools ask about groups."""

from __future__ import annotations

from typing import Final

from node.api.table import GROUPS_DELETE_GROUPS, GROUPS_DESCRIBE_CLASSIC_GROUPS, GROUPS_LIST_GROUPS
from node.listeners.kafka.error_codes import NONE, code_of, coordinator_code_of
from node.listeners.kafka.exchange import NO_OPERATIONS, KafkaApi
from replication.coordination.classic_requests import (
    DescribeClassicGroups,
    DescribeClassicGroupsAnswer,
    DescribedClassicGroup,
)
from replication.coordination.group_requests import (
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsAnswer,
    ListGroups,
    ListGroupsAnswer,
)
from tidelog.errors import GroupIdNotFound, NotCoordinator, TidelogError
from tidelog.protocol.kafka.messages import delete_groups_request as asked_delete
from tidelog.protocol.kafka.messages import describe_groups_request as asked_describe
from tidelog.protocol.kafka.messages import list_groups_request as asked_list
from tidelog.protocol.kafka.messages.delete_groups_response import (
    DELETE_GROUPS_RESPONSE,
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from tidelog.protocol.kafka.messages.describe_groups_response import (
    DESCRIBE_GROUPS_RESPONSE,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.protocol.kafka.messages.list_groups_response import LIST_GROUPS_RESPONSE, ListedGroup, ListGroupsResponse

# --- ListGroups ---


def _read_list(message: asked_list.ListGroupsRequest, _version: int) -> ListGroups:
    return ListGroups(message.states_filter, message.types_filter)


def _write_listed(_message: object, answer: ListGroupsAnswer, _version: int) -> ListGroupsResponse:
    """A client asks every node: another one answers for a coordinator that has moved there."""
    errors = (each.error for each in answer.coordinators)
    missing = next((each for each in errors if each is not None and not isinstance(each, NotCoordinator)), None)
    if missing is not None:  # without the error, the client would take its groups for gone
        return ListGroupsResponse(code_of(missing), ())
    groups = (ListedGroup(each.group_id, each.protocol_type, each.state, each.type) for each in answer.groups)
    return ListGroupsResponse(NONE, tuple(groups))


def _refuse_list(_message: object, error: TidelogError, _version: int) -> ListGroupsResponse:
    return ListGroupsResponse(code_of(error), ())


LIST_GROUPS: Final = KafkaApi(
    range(6),
    asked_list.LIST_GROUPS_REQUEST,
    LIST_GROUPS_RESPONSE,
    GROUPS_LIST_GROUPS,
    _read_list,
    _write_listed,
    _refuse_list,
)


# --- DescribeGroups ---

_NOT_FOUND_FROM: Final = 6
"""Version from which a group that does not exist is an error (KIP-1043). Before it, its state is Dead."""


def _read_describe(message: asked_describe.DescribeGroupsRequest, _version: int) -> DescribeClassicGroups:
    return DescribeClassicGroups(message.groups)


def _write_described(_message: object, answer: DescribeClassicGroupsAnswer, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(tuple(_group(each, version) for each in answer.groups))


def _group(group: DescribedClassicGroup, version: int) -> DescribedGroup:
    is_missing = isinstance(group.error, GroupIdNotFound)
    error = None if is_missing and version < _NOT_FOUND_FROM else group.error
    return DescribedGroup(
        code_of(error),
        group.group_id,
        group.state if error is None or is_missing else "",
        group.protocol_type,
        group.protocol,
        tuple(
            DescribedGroupMember(
                each.member_id, each.client_id, each.client_host, each.metadata, each.assignment, each.instance_id
            )
            for each in group.members
        ),
        None if error is None or version < _NOT_FOUND_FROM else error.message,
        NO_OPERATIONS,
    )


def _refuse_describe(
    message: asked_describe.DescribeGroupsRequest, error: TidelogError, version: int
) -> DescribeGroupsResponse:
    refused = tuple(DescribedClassicGroup(group_id, error) for group_id in message.groups)
    return _write_described(message, DescribeClassicGroupsAnswer(refused), version)


DESCRIBE_GROUPS: Final = KafkaApi(
    range(7),
    asked_describe.DESCRIBE_GROUPS_REQUEST,
    DESCRIBE_GROUPS_RESPONSE,
    GROUPS_DESCRIBE_CLASSIC_GROUPS,
    _read_describe,
    _write_described,
    _refuse_describe,
)


# --- DeleteGroups ---


def _read_delete(message: asked_delete.DeleteGroupsRequest, _version: int) -> DeleteGroups:
    return DeleteGroups(message.groups_names)


def _write_deleted(_message: object, answer: DeleteGroupsAnswer, _version: int) -> DeleteGroupsResponse:
    results = (DeletableGroupResult(each.group_id, coordinator_code_of(each.error)) for each in answer.groups)
    return DeleteGroupsResponse(0, tuple(results))


def _refuse_delete(
    message: asked_delete.DeleteGroupsRequest, error: TidelogError, version: int
) -> DeleteGroupsResponse:
    refused = tuple(DeletedGroup(group_id, error) for group_id in message.groups_names)
    return _write_deleted(message, DeleteGroupsAnswer(refused), version)


DELETE_GROUPS: Final = KafkaApi(
    range(3),
    asked_delete.DELETE_GROUPS_REQUEST,
    DELETE_GROUPS_RESPONSE,
    GROUPS_DELETE_GROUPS,
    _read_delete,
    _write_deleted,
    _refuse_delete,
)
