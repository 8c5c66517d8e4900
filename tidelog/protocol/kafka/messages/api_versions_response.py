"""ApiVersionsResponse, versions 0 to 4. Generated from ApiVersionsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_tags,
)

_w_t = Struct(">?").pack
_w_h = Struct(">h").pack
_w_hh = Struct(">hh").pack
_w_hhh = Struct(">hhh").pack
_w_i = Struct(">i").pack
_w_q = Struct(">q").pack


class ApiVersion(Structure):
    """A structure of ApiVersionsResponse."""

    __slots__ = ("api_key", "min_version", "max_version")
    __match_args__ = ("api_key", "min_version", "max_version")

    def __init__(
        self,
        api_key: int,
        min_version: int,
        max_version: int,
    ) -> None:
        # The API index.
        self.api_key: Final = api_key
        # The minimum supported version, inclusive.
        self.min_version: Final = min_version
        # The maximum supported version, inclusive.
        self.max_version: Final = max_version


class SupportedFeatureKey(Structure):
    """A structure of ApiVersionsResponse."""

    __slots__ = ("name", "min_version", "max_version")
    __match_args__ = ("name", "min_version", "max_version")

    def __init__(
        self,
        name: str,
        min_version: int,
        max_version: int,
    ) -> None:
        # The name of the feature.
        self.name: Final = name
        # The minimum supported version for the feature.
        self.min_version: Final = min_version
        # The maximum supported version for the feature.
        self.max_version: Final = max_version


class FinalizedFeatureKey(Structure):
    """A structure of ApiVersionsResponse."""

    __slots__ = ("name", "max_version_level", "min_version_level")
    __match_args__ = ("name", "max_version_level", "min_version_level")

    def __init__(
        self,
        name: str,
        max_version_level: int,
        min_version_level: int,
    ) -> None:
        # The name of the feature.
        self.name: Final = name
        # The cluster-wide finalized max version level for the feature.
        self.max_version_level: Final = max_version_level
        # The cluster-wide finalized min version level for the feature.
        self.min_version_level: Final = min_version_level


class ApiVersionsResponse(Structure):
    """The message."""

    __slots__ = (
        "error_code",
        "api_keys",
        "throttle_time_ms",
        "supported_features",
        "finalized_features_epoch",
        "finalized_features",
        "zk_migration_ready",
    )
    __match_args__ = (
        "error_code",
        "api_keys",
        "throttle_time_ms",
        "supported_features",
        "finalized_features_epoch",
        "finalized_features",
        "zk_migration_ready",
    )

    def __init__(
        self,
        error_code: int,
        api_keys: tuple[ApiVersion, ...],
        throttle_time_ms: int = 0,
        supported_features: tuple[SupportedFeatureKey, ...] = (),
        finalized_features_epoch: int = -1,
        finalized_features: tuple[FinalizedFeatureKey, ...] = (),
        zk_migration_ready: bool = False,
    ) -> None:
        # The top-level error code.
        self.error_code: Final = error_code
        # The APIs supported by the broker.
        self.api_keys: Final = api_keys
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted.
        self.supported_features: Final = supported_features
        # The monotonically increasing epoch for the finalized features information. Valid values are >= 0. A value of
        # -1 is special and represents unknown epoch.
        self.finalized_features_epoch: Final = finalized_features_epoch
        # List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0.
        self.finalized_features: Final = finalized_features
        # Set by a KRaft controller if the required configurations for ZK migration are present.
        self.zk_migration_ready: Final = zk_migration_ready


def _write_api_version_0(out: Output, value: ApiVersion) -> None:
    out += _w_hhh(value.api_key, value.min_version, value.max_version)


def _write_api_versions_response_0(out: Output, value: ApiVersionsResponse) -> None:
    out += _w_h(value.error_code)
    write_array(out, value.api_keys, write_length, _write_api_version_0)


def _write_api_versions_response_1(out: Output, value: ApiVersionsResponse) -> None:
    out += _w_h(value.error_code)
    write_array(out, value.api_keys, write_length, _write_api_version_0)
    out += _w_i(value.throttle_time_ms)


def _write_api_version_3(out: Output, value: ApiVersion) -> None:
    out += _w_hhh(value.api_key, value.min_version, value.max_version)
    out.append(0)


def _write_supported_feature_key_3(out: Output, value: SupportedFeatureKey) -> None:
    write_compact_string(out, value.name)
    out += _w_hh(value.min_version, value.max_version)
    out.append(0)


def _write_finalized_feature_key_3(out: Output, value: FinalizedFeatureKey) -> None:
    write_compact_string(out, value.name)
    out += _w_hh(value.max_version_level, value.min_version_level)
    out.append(0)


def _write_api_versions_response_3(out: Output, value: ApiVersionsResponse) -> None:
    out += _w_h(value.error_code)
    write_array(out, value.api_keys, write_compact_length, _write_api_version_3)
    out += _w_i(value.throttle_time_ms)
    tags: list[tuple[int, Output]] = []
    if value.supported_features != ():
        tagged = Output()
        write_array(tagged, value.supported_features, write_compact_length, _write_supported_feature_key_3)
        tags.append((0, tagged))
    if value.finalized_features_epoch != -1:
        tagged = Output()
        tagged += _w_q(value.finalized_features_epoch)
        tags.append((1, tagged))
    if value.finalized_features != ():
        tagged = Output()
        write_array(tagged, value.finalized_features, write_compact_length, _write_finalized_feature_key_3)
        tags.append((2, tagged))
    if value.zk_migration_ready != False:
        tagged = Output()
        tagged += _w_t(value.zk_migration_ready)
        tags.append((3, tagged))
    write_tags(out, tags)


API_VERSIONS_RESPONSE: Final = MessageCodec(
    ApiVersionsResponse,
    18,
    readers={},
    writers={
        0: _write_api_versions_response_0,
        1: _write_api_versions_response_1,
        2: _write_api_versions_response_1,
        3: _write_api_versions_response_3,
        4: _write_api_versions_response_3,
    },
    flexible_from=3,
)
