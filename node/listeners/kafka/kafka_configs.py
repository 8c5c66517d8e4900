"""DescribeConfigs of Kafka's protocol: the settings of topics.

Programs tell by the source whether somebody has set a value, and compare topics by that.
"""

from __future__ import annotations

from typing import Final

from node.api.admin_requests import ConfigInForce, DescribeConfigsAnswer, DescribeConfigsRequest, TopicConfigs
from node.api.table import ADMIN_DESCRIBE_CONFIGS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.kafka.messages import describe_configs_request as asked
from tidelog.protocol.kafka.messages.describe_configs_response import (
    DESCRIBE_CONFIGS_RESPONSE,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_TOPIC: Final = 2
"""The type of resource."""

_TYPE_FROM: Final = 3
_STRING: Final = 2
"""The type of a setting, which is told from this version on."""


def _read(message: asked.DescribeConfigsRequest, _version: int) -> DescribeConfigsRequest:
    topics = (each.resource_name for each in message.resources if each.resource_type == _TOPIC)
    return DescribeConfigsRequest(tuple(topics))


def _write(
    message: asked.DescribeConfigsRequest, answer: DescribeConfigsAnswer, version: int
) -> DescribeConfigsResponse:
    described = iter(answer.topics)
    other = InvalidRequest("this listener describes the settings of topics only")
    return DescribeConfigsResponse(
        0,
        tuple(
            _resource(
                each, next(described) if each.resource_type == _TOPIC else TopicConfigs("", other), message, version
            )
            for each in message.resources
        ),
    )


def _resource(
    resource: asked.DescribeConfigsResource,
    described: TopicConfigs,
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
    return DescribeConfigsResourceResult(
        setting.key,
        setting.value,
        read_only=False,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=(DescribeConfigsSynonym(setting.key, setting.value, setting.source),) if with_synonyms else (),
        config_type=_STRING if version >= _TYPE_FROM else 0,
    )


def _refuse(message: asked.DescribeConfigsRequest, error: TidelogError, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        0, tuple(_resource(each, TopicConfigs("", error), message, version) for each in message.resources)
    )


DESCRIBE_CONFIGS: Final = KafkaApi(
    range(1, 5),
    asked.DESCRIBE_CONFIGS_REQUEST,
    DESCRIBE_CONFIGS_RESPONSE,
    ADMIN_DESCRIBE_CONFIGS,
    _read,
    _write,
    _refuse,
)
