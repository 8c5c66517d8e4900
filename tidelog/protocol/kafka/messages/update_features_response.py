"""UpdateFeaturesResponse, versions 0 to 2. Generated from UpdateFeaturesResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
)

_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class UpdatableFeatureResult(Structure):
    """A structure of UpdateFeaturesResponse."""

    __slots__ = ("feature", "error_code", "error_message")
    __match_args__ = ("feature", "error_code", "error_message")

    def __init__(
        self,
        feature: str,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The name of the finalized feature.
        self.feature: Final = feature
        # The feature update error code or `0` if the feature update succeeded.
        self.error_code: Final = error_code
        # The feature update error, or `null` if the feature update succeeded.
        self.error_message: Final = error_message


class UpdateFeaturesResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        results: tuple[UpdatableFeatureResult, ...] = (),
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The top-level error code, or `0` if there was no top-level error.
        self.error_code: Final = error_code
        # The top-level error message, or `null` if there was no top-level error.
        self.error_message: Final = error_message
        # Results for each feature update.
        self.results: Final = results


def _write_updatable_feature_result_0(out: Output, value: UpdatableFeatureResult) -> None:
    write_compact_string(out, value.feature)
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_update_features_response_0(out: Output, value: UpdateFeaturesResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.results, write_compact_length, _write_updatable_feature_result_0)
    out.append(0)


def _write_update_features_response_2(out: Output, value: UpdateFeaturesResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


UPDATE_FEATURES_RESPONSE: Final = MessageCodec(
    UpdateFeaturesResponse,
    57,
    readers={},
    writers={
        0: _write_update_features_response_0,
        1: _write_update_features_response_0,
        2: _write_update_features_response_2,
    },
    flexible_from=0,
)
