"""The bytes that members of classic groups with the protocol type `consumer` exchange: what one subscribes to, and what
it is assigned.

    subscription   int16 version, topic names, ...
    assignment     int16 version, topic names with partitions, ...

Each version begins with the fields of version 0, and only these are read. A coordinator needs them for nothing that
members depend on: clients may use other bytes, which are then unknown.
Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import MalformedMessage
from tidelog.protocol.kafka.messages.consumer_protocol_assignment import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    ConsumerProtocolAssignment,
)
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import (
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    ConsumerProtocolSubscription,
)

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups of consumers."""

_ELEMENTS_MAX: Final = 10_000
"""Topics and partitions of one member; of one with more, nothing is known."""

_BODY_AT: Final = 2
"""Behind the version."""


def subscription_in(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """What a member subscribes to; None if the bytes are not of this protocol."""
    if len(metadata) < _BODY_AT:
        return None
    try:
        return CONSUMER_PROTOCOL_SUBSCRIPTION.decode(metadata, 0, _BODY_AT, elements_max=_ELEMENTS_MAX)[0]
    except MalformedMessage:
        return None


def assignment_in(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """What a member is assigned; None if the bytes are not of this protocol, or there are none."""
    if len(assignment) < _BODY_AT:
        return None
    try:
        return CONSUMER_PROTOCOL_ASSIGNMENT.decode(assignment, 0, _BODY_AT, elements_max=_ELEMENTS_MAX)[0]
    except MalformedMessage:
        return None
