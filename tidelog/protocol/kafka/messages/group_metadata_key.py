"""GroupMetadataKey, versions 0 to 0. Generated from GroupMetadataKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_string,
    write_string,
)


class GroupMetadataKey(Structure):
    """The message."""

    __slots__ = ("group",)
    __match_args__ = ("group",)

    def __init__(
        self,
        group: str,
    ) -> None:
        # The group id.
        self.group: Final = group


def _read_group_metadata_key_0(data: Data, at: int) -> tuple[GroupMetadataKey, int]:
    group, at = read_string(data, at)
    return GroupMetadataKey(group=group), at


def _write_group_metadata_key_0(out: Output, value: GroupMetadataKey) -> None:
    write_string(out, value.group)


GROUP_METADATA_KEY: Final = MessageCodec(
    GroupMetadataKey,
    2,
    readers={0: _read_group_metadata_key_0},
    writers={0: _write_group_metadata_key_0},
)
