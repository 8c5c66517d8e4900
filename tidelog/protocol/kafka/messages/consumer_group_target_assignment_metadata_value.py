"""ConsumerGroupTargetAssignmentMetadataValue, versions 0 to 0. Generated from ConsumerGroupTargetAssignmentMetadataValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class ConsumerGroupTargetAssignmentMetadataValue(Structure):
    """The message."""

    __slots__ = ("assignment_epoch",)
    __match_args__ = ("assignment_epoch",)

    def __init__(
        self,
        assignment_epoch: int,
    ) -> None:
        # The assignment epoch.
        self.assignment_epoch: Final = assignment_epoch


def _read_consumer_group_target_assignment_metadata_value_0(
    data: Data, at: int
) -> tuple[ConsumerGroupTargetAssignmentMetadataValue, int]:
    (assignment_epoch,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch), at


def _write_consumer_group_target_assignment_metadata_value_0(
    out: Output, value: ConsumerGroupTargetAssignmentMetadataValue
) -> None:
    out += _w_i(value.assignment_epoch)
    out.append(0)


CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = MessageCodec(
    ConsumerGroupTargetAssignmentMetadataValue,
    6,
    readers={0: _read_consumer_group_target_assignment_metadata_value_0},
    writers={0: _write_consumer_group_target_assignment_metadata_value_0},
)
