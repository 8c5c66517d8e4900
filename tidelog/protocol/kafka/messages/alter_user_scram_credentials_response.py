"""AlterUserScramCredentialsResponse, versions 0 to 0. Generated from AlterUserScramCredentialsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_w_i = Struct(">i").pack


class AlterUserScramCredentialsResult(Structure):
    """A structure of AlterUserScramCredentialsResponse."""

    __slots__ = ("user", "error_code", "error_message")
    __match_args__ = ("user", "error_code", "error_message")

    def __init__(
        self,
        user: str,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The user name.
        self.user: Final = user
        # The error code.
        self.error_code: Final = error_code
        # The error message, if any.
        self.error_message: Final = error_message


class AlterUserScramCredentialsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[AlterUserScramCredentialsResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for deletions and alterations, one per affected user.
        self.results: Final = results


def _write_alter_user_scram_credentials_result_0(out: Output, value: AlterUserScramCredentialsResult) -> None:
    write_compact_string(out, value.user)
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_alter_user_scram_credentials_response_0(out: Output, value: AlterUserScramCredentialsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_alter_user_scram_credentials_result_0)
    out.append(0)


ALTER_USER_SCRAM_CREDENTIALS_RESPONSE: Final = MessageCodec(
    AlterUserScramCredentialsResponse,
    51,
    readers={},
    writers={0: _write_alter_user_scram_credentials_response_0},
    flexible_from=0,
)
