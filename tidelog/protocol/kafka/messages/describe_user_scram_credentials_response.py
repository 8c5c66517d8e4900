"""DescribeUserScramCredentialsResponse, versions 0 to 0. Generated from DescribeUserScramCredentialsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_bi = Struct(">bi").pack
_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class CredentialInfo(Structure):
    """A structure of DescribeUserScramCredentialsResponse."""

    __slots__ = ("mechanism", "iterations")
    __match_args__ = ("mechanism", "iterations")

    def __init__(
        self,
        mechanism: int,
        iterations: int,
    ) -> None:
        # The SCRAM mechanism.
        self.mechanism: Final = mechanism
        # The number of iterations used in the SCRAM credential.
        self.iterations: Final = iterations


class DescribeUserScramCredentialsResult(Structure):
    """A structure of DescribeUserScramCredentialsResponse."""

    __slots__ = ("user", "error_code", "error_message", "credential_infos")
    __match_args__ = ("user", "error_code", "error_message", "credential_infos")

    def __init__(
        self,
        user: str,
        error_code: int,
        error_message: str | None,
        credential_infos: tuple[CredentialInfo, ...],
    ) -> None:
        # The user name.
        self.user: Final = user
        # The user-level error code.
        self.error_code: Final = error_code
        # The user-level error message, if any.
        self.error_message: Final = error_message
        # The mechanism and related information associated with the user's SCRAM credentials.
        self.credential_infos: Final = credential_infos


class DescribeUserScramCredentialsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        results: tuple[DescribeUserScramCredentialsResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The message-level error code, 0 except for user authorization or infrastructure issues.
        self.error_code: Final = error_code
        # The message-level error message, if any.
        self.error_message: Final = error_message
        # The results for descriptions, one per user.
        self.results: Final = results


def _write_credential_info_0(out: Output, value: CredentialInfo) -> None:
    out += _w_bi(value.mechanism, value.iterations)
    out.append(0)


def _write_describe_user_scram_credentials_result_0(out: Output, value: DescribeUserScramCredentialsResult) -> None:
    write_compact_string(out, value.user)
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.credential_infos, write_compact_length, _write_credential_info_0)
    out.append(0)


def _write_describe_user_scram_credentials_response_0(out: Output, value: DescribeUserScramCredentialsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.results, write_compact_length, _write_describe_user_scram_credentials_result_0)
    out.append(0)


DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE: Final = MessageCodec(
    DescribeUserScramCredentialsResponse,
    50,
    readers={},
    writers={0: _write_describe_user_scram_credentials_response_0},
    flexible_from=0,
)
