"""CreateAclsResponse, versions 1 to 3. Generated from CreateAclsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_string,
)

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class AclCreationResult(Structure):
    """A structure of CreateAclsResponse."""

    __slots__ = ("error_code", "error_message")
    __match_args__ = ("error_code", "error_message")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The result error, or zero if there was no error.
        self.error_code: Final = error_code
        # The result message, or null if there was no error.
        self.error_message: Final = error_message


class CreateAclsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[AclCreationResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for each ACL creation.
        self.results: Final = results


def _write_acl_creation_result_1(out: Output, value: AclCreationResult) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)


def _write_create_acls_response_1(out: Output, value: CreateAclsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_acl_creation_result_1)


def _write_acl_creation_result_2(out: Output, value: AclCreationResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_create_acls_response_2(out: Output, value: CreateAclsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_acl_creation_result_2)
    out.append(0)


CREATE_ACLS_RESPONSE: Final = MessageCodec(
    CreateAclsResponse,
    30,
    readers={},
    writers={1: _write_create_acls_response_1, 2: _write_create_acls_response_2, 3: _write_create_acls_response_2},
    flexible_from=2,
)
