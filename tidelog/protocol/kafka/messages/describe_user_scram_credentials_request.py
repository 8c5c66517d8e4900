"""DescribeUserScramCredentialsRequest, versions 0 to 0. Generated from DescribeUserScramCredentialsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_length,
    read_compact_string,
    read_nullable_array,
    skip_tags,
)


class UserName(Structure):
    """A structure of DescribeUserScramCredentialsRequest."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    def __init__(
        self,
        name: str,
    ) -> None:
        # The user name.
        self.name: Final = name


class DescribeUserScramCredentialsRequest(Structure):
    """The message."""

    __slots__ = ("users",)
    __match_args__ = ("users",)

    def __init__(
        self,
        users: tuple[UserName, ...] | None,
    ) -> None:
        # The users to describe, or null/empty to describe all users.
        self.users: Final = users


def _read_user_name_0(data: Data, at: int) -> tuple[UserName, int]:
    name, at = read_compact_string(data, at)
    at = skip_tags(data, at)
    return UserName(name=name), at


def _read_describe_user_scram_credentials_request_0(
    data: Data, at: int
) -> tuple[DescribeUserScramCredentialsRequest, int]:
    users, at = read_nullable_array(data, at, read_compact_length, _read_user_name_0)
    at = skip_tags(data, at)
    return DescribeUserScramCredentialsRequest(users=users), at


DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST: Final = MessageCodec(
    DescribeUserScramCredentialsRequest,
    50,
    readers={0: _read_describe_user_scram_credentials_request_0},
    writers={},
    flexible_from=0,
)
