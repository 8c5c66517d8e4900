"""UpdateFeaturesRequest, versions 0 to 2. Generated from UpdateFeaturesRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    skip_tags,
)

_r_t = Struct(">?").unpack_from
_r_ht = Struct(">h?").unpack_from
_r_hb = Struct(">hb").unpack_from
_r_i = Struct(">i").unpack_from


class FeatureUpdateKey(Structure):
    """A structure of UpdateFeaturesRequest."""

    __slots__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type")
    __match_args__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type")

    def __init__(
        self,
        feature: str,
        max_version_level: int,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
    ) -> None:
        # The name of the finalized feature to be updated.
        self.feature: Final = feature
        # The new maximum version level for the finalized feature. A value >= 1 is valid. A value < 1, is special, and
        # can be used to request the deletion of the finalized feature.
        self.max_version_level: Final = max_version_level
        # DEPRECATED in version 1 (see DowngradeType). When set to true, the finalized feature version level is
        # allowed to be downgraded/deleted. The downgrade request will fail if the new maximum version level is a
        # value that's not lower than the existing maximum finalized version level.
        self.allow_downgrade: Final = allow_downgrade
        # Determine which type of upgrade will be performed: 1 will perform an upgrade only (default), 2 is safe
        # downgrades only (lossless), 3 is unsafe downgrades (lossy).
        self.upgrade_type: Final = upgrade_type


class UpdateFeaturesRequest(Structure):
    """The message."""

    __slots__ = ("timeout_ms", "feature_updates", "validate_only")
    __match_args__ = ("timeout_ms", "feature_updates", "validate_only")

    def __init__(
        self,
        timeout_ms: int,
        feature_updates: tuple[FeatureUpdateKey, ...],
        validate_only: bool = False,
    ) -> None:
        # How long to wait in milliseconds before timing out the request.
        self.timeout_ms: Final = timeout_ms
        # The list of updates to finalized features.
        self.feature_updates: Final = feature_updates
        # True if we should validate the request, but not perform the upgrade or downgrade.
        self.validate_only: Final = validate_only


def _read_feature_update_key_0(data: Data, at: int) -> tuple[FeatureUpdateKey, int]:
    feature, at = read_compact_string(data, at)
    max_version_level, allow_downgrade = _r_ht(data, at)
    at += 3
    at = skip_tags(data, at)
    return FeatureUpdateKey(feature=feature, max_version_level=max_version_level, allow_downgrade=allow_downgrade), at


def _read_update_features_request_0(data: Data, at: int) -> tuple[UpdateFeaturesRequest, int]:
    (timeout_ms,) = _r_i(data, at)
    at += 4
    feature_updates, at = read_array(data, at, read_compact_length, _read_feature_update_key_0)
    at = skip_tags(data, at)
    return UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=feature_updates), at


def _read_feature_update_key_1(data: Data, at: int) -> tuple[FeatureUpdateKey, int]:
    feature, at = read_compact_string(data, at)
    max_version_level, upgrade_type = _r_hb(data, at)
    at += 3
    at = skip_tags(data, at)
    return FeatureUpdateKey(feature=feature, max_version_level=max_version_level, upgrade_type=upgrade_type), at


def _read_update_features_request_1(data: Data, at: int) -> tuple[UpdateFeaturesRequest, int]:
    (timeout_ms,) = _r_i(data, at)
    at += 4
    feature_updates, at = read_array(data, at, read_compact_length, _read_feature_update_key_1)
    (validate_only,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return UpdateFeaturesRequest(
        timeout_ms=timeout_ms, feature_updates=feature_updates, validate_only=validate_only
    ), at


UPDATE_FEATURES_REQUEST: Final = MessageCodec(
    UpdateFeaturesRequest,
    57,
    readers={
        0: _read_update_features_request_0,
        1: _read_update_features_request_1,
        2: _read_update_features_request_1,
    },
    writers={},
    flexible_from=0,
)
