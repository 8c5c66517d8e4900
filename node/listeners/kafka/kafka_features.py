"""UpdateFeatures of Kafka's protocol, for `kafka-features`: all updates of a request are made, or none is (KIP-584)."""

from __future__ import annotations

from typing import Final

from node.api.admin_requests import FeatureUpdate, FeatureUpdateType, UpdateNamedFeatures
from node.api.table import ADMIN_UPDATE_NAMED_FEATURES
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.controller.events import FeaturesUpdated
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages.update_features_request import (
    UPDATE_FEATURES_REQUEST,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tidelog.protocol.kafka.messages.update_features_response import (
    UPDATE_FEATURES_RESPONSE,
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)

_TYPES_FROM: Final = 1
"""Version from which an update names its type; before, it says whether a downgrade is allowed."""

_RESULTS_TO: Final = 1
"""Last version in which a success names each feature."""


def _read(message: UpdateFeaturesRequest, version: int) -> UpdateNamedFeatures:
    return UpdateNamedFeatures(
        tuple(
            FeatureUpdate(each.feature, each.max_version_level, _type_of(each, version))
            for each in message.feature_updates
        ),
        message.validate_only,
    )


def _type_of(update: FeatureUpdateKey, version: int) -> int:
    if version >= _TYPES_FROM:
        return update.upgrade_type
    return FeatureUpdateType.SAFE_DOWNGRADE if update.allow_downgrade else FeatureUpdateType.UPGRADE


def _write(message: UpdateFeaturesRequest, _answer: FeaturesUpdated, version: int) -> UpdateFeaturesResponse:
    named = dict.fromkeys(each.feature for each in message.feature_updates) if version <= _RESULTS_TO else ()
    return UpdateFeaturesResponse(0, NONE, None, tuple(UpdatableFeatureResult(name, NONE, None) for name in named))


def _refuse(_message: UpdateFeaturesRequest, error: TidelogError, _version: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(0, code_of(error), error.message)


UPDATE_FEATURES: Final = KafkaApi(
    range(3),
    UPDATE_FEATURES_REQUEST,
    UPDATE_FEATURES_RESPONSE,
    ADMIN_UPDATE_NAMED_FEATURES,
    _read,
    _write,
    _refuse,
)
