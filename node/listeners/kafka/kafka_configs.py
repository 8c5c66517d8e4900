"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources of Kafka's protocol: the settings of
topics, nodes and groups.

Programs tell by the source whether somebody has set a value, and compare topics by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from node.api.admin_requests import ChangedTopics
from node.api.config_requests import (
    AlterConfigsOfResources,
    AlteredResource,
    DescribeConfigsAnswer,
    DescribeConfigsRequest,
    ListConfigResourcesAnswer,
    ListConfigResourcesRequest,
    SettingChange,
)
from node.api.table import ADMIN_ALTER_CONFIGS, ADMIN_DESCRIBE_CONFIGS, ADMIN_LIST_CONFIG_RESOURCES
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.cluster_descriptions import ConfigInForce, ConfigResource, ResourceConfigs
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages import alter_configs_request as to_replace
from tidelog.protocol.kafka.messages import alter_configs_response as replaced
from tidelog.protocol.kafka.messages import describe_configs_request as asked
from tidelog.protocol.kafka.messages import incremental_alter_configs_request as to_alter
from tidelog.protocol.kafka.messages import incremental_alter_configs_response as altered
from tidelog.protocol.kafka.messages import list_config_resources_request as to_list
from tidelog.protocol.kafka.messages import list_config_resources_response as listed
from tidelog.protocol.kafka.messages.describe_configs_response import (
    DESCRIBE_CONFIGS_RESPONSE,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# --- DescribeConfigs ---

_TYPE_FROM: Final = 3
"""Version from which the type of a setting is told."""


def _read_describe(message: asked.DescribeConfigsRequest, _version: int) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        tuple(ConfigResource(each.resource_type, each.resource_name) for each in message.resources)
    )


def _write_described(
    message: asked.DescribeConfigsRequest, answer: DescribeConfigsAnswer, version: int
) -> DescribeConfigsResponse:
    pairs = zip(message.resources, answer.resources, strict=True)
    return DescribeConfigsResponse(0, tuple(_resource(*pair, message, version) for pair in pairs))


def _resource(
    resource: asked.DescribeConfigsResource,
    described: ResourceConfigs,
    message: asked.DescribeConfigsRequest,
    version: int,
) -> DescribeConfigsResult:
    error, keys = described.error, resource.configuration_keys
    return DescribeConfigsResult(
        code_of(error),
        None if error is None else error.message,
        resource.resource_type,
        resource.resource_name,
        tuple(
            _setting(each, version, with_synonyms=message.include_synonyms)
            for each in described.configs
            if keys is None or each.key in keys
        ),
    )


def _setting(setting: ConfigInForce, version: int, *, with_synonyms: bool) -> DescribeConfigsResourceResult:
    values = setting.values if with_synonyms else ()
    return DescribeConfigsResourceResult(
        setting.key,
        setting.value,
        read_only=setting.is_read_only,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=tuple(DescribeConfigsSynonym(each.key, each.value, each.source) for each in values),
        config_type=setting.type if version >= _TYPE_FROM else 0,
    )


def _refuse_describe(
    message: asked.DescribeConfigsRequest, error: TidelogError, version: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        0, tuple(_resource(each, ResourceConfigs(error), message, version) for each in message.resources)
    )


DESCRIBE_CONFIGS: Final = KafkaApi(
    range(1, 5),
    asked.DESCRIBE_CONFIGS_REQUEST,
    DESCRIBE_CONFIGS_RESPONSE,
    ADMIN_DESCRIBE_CONFIGS,
    _read_describe,
    _write_described,
    _refuse_describe,
)


# --- AlterConfigs ---


def _read_replace(message: to_replace.AlterConfigsRequest, _version: int) -> AlterConfigsOfResources:
    return AlterConfigsOfResources(
        tuple(
            AlteredResource(
                ConfigResource(each.resource_type, each.resource_name),
                tuple(SettingChange(config.name, config.value) for config in each.configs),
                replaces_all=True,
                validate_only=message.validate_only,
            )
            for each in message.resources
        )
    )


def _write_replaced(
    message: to_replace.AlterConfigsRequest, answer: ChangedTopics, _version: int
) -> replaced.AlterConfigsResponse:
    return _replaced(message, [each.error for each in answer.topics])


def _refuse_replace(
    message: to_replace.AlterConfigsRequest, error: TidelogError, _version: int
) -> replaced.AlterConfigsResponse:
    return _replaced(message, [error] * len(message.resources))


def _replaced(
    message: to_replace.AlterConfigsRequest, errors: Sequence[TidelogError | None]
) -> replaced.AlterConfigsResponse:
    return replaced.AlterConfigsResponse(
        0,
        tuple(
            replaced.AlterConfigsResourceResponse(
                code_of(error), None if error is None else error.message, each.resource_type, each.resource_name
            )
            for each, error in zip(message.resources, errors, strict=True)
        ),
    )


ALTER_CONFIGS: Final = KafkaApi(
    range(3),
    to_replace.ALTER_CONFIGS_REQUEST,
    replaced.ALTER_CONFIGS_RESPONSE,
    ADMIN_ALTER_CONFIGS,
    _read_replace,
    _write_replaced,
    _refuse_replace,
)


# --- IncrementalAlterConfigs ---


def _read_alter(message: to_alter.IncrementalAlterConfigsRequest, _version: int) -> AlterConfigsOfResources:
    return AlterConfigsOfResources(
        tuple(
            AlteredResource(
                ConfigResource(each.resource_type, each.resource_name),
                tuple(SettingChange(config.name, config.value, config.config_operation) for config in each.configs),
                validate_only=message.validate_only,
            )
            for each in message.resources
        )
    )


def _write_altered(
    message: to_alter.IncrementalAlterConfigsRequest, answer: ChangedTopics, _version: int
) -> altered.IncrementalAlterConfigsResponse:
    return _altered(message, [each.error for each in answer.topics])


def _refuse_alter(
    message: to_alter.IncrementalAlterConfigsRequest, error: TidelogError, _version: int
) -> altered.IncrementalAlterConfigsResponse:
    return _altered(message, [error] * len(message.resources))


def _altered(
    message: to_alter.IncrementalAlterConfigsRequest, errors: Sequence[TidelogError | None]
) -> altered.IncrementalAlterConfigsResponse:
    return altered.IncrementalAlterConfigsResponse(
        0,
        tuple(
            altered.AlterConfigsResourceResponse(
                code_of(error), None if error is None else error.message, each.resource_type, each.resource_name
            )
            for each, error in zip(message.resources, errors, strict=True)
        ),
    )


INCREMENTAL_ALTER_CONFIGS: Final = KafkaApi(
    range(2),
    to_alter.INCREMENTAL_ALTER_CONFIGS_REQUEST,
    altered.INCREMENTAL_ALTER_CONFIGS_RESPONSE,
    ADMIN_ALTER_CONFIGS,
    _read_alter,
    _write_altered,
    _refuse_alter,
)


# --- ListConfigResources ---

_TYPES_FROM: Final = 1
"""Version from which a request names types, and an answer the type of each resource."""

_CLIENT_METRICS: Final = 16
"""The one type before."""


def _read_list(message: to_list.ListConfigResourcesRequest, version: int) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(message.resource_types if version >= _TYPES_FROM else (_CLIENT_METRICS,))


def _write_listed(
    _message: to_list.ListConfigResourcesRequest, answer: ListConfigResourcesAnswer, _version: int
) -> listed.ListConfigResourcesResponse:
    return listed.ListConfigResourcesResponse(
        0, NONE, tuple(listed.ConfigResource(each.name, each.type) for each in answer.resources)
    )


def _refuse_list(
    _message: to_list.ListConfigResourcesRequest, error: TidelogError, _version: int
) -> listed.ListConfigResourcesResponse:
    return listed.ListConfigResourcesResponse(0, code_of(error), ())


LIST_CONFIG_RESOURCES: Final = KafkaApi(
    range(2),
    to_list.LIST_CONFIG_RESOURCES_REQUEST,
    listed.LIST_CONFIG_RESOURCES_RESPONSE,
    ADMIN_LIST_CONFIG_RESOURCES,
    _read_list,
    _write_listed,
    _refuse_list,
)
