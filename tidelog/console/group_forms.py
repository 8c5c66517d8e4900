"""Set the committed offsets of a group."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.offset_resets import ResetGoal, members_of, plan_reset
from tidelog.console.changes import Plan, done
from tidelog.console.html import address, choice, element, field, link, table
from tidelog.console.layout import form, notice
from tidelog.console.page_call import PageCall, Shown, moment, whole
from tidelog.errors import InvalidRequest, NonEmptyGroup
from tidelog.types import PartitionIndex, TopicPartition

_PLACES = (
    ("earliest", "the first record"),
    ("latest", "behind the last record"),
    ("time", "the first record at or after a time"),
    ("offset", "an offset"),
    ("shift", "so many records further (negative: back)"),
)


class OffsetReset:
    """The offsets of a group without members."""

    path = "/group/reset"

    async def ask(self, call: PageCall) -> Shown:
        """Which partitions, and where to."""
        group_id = call.needed("id")
        members = await members_of(call.admin, group_id)
        busy = (
            notice(
                element(
                    "p",
                    f"The group has {members} members, which would go on from their own positions: stop all "
                    "its consumers first.",
                )
            )
            if members
            else None
        )
        return Shown(
            f"Set the offsets of {group_id}",
            [
                busy,
                form(
                    self.path,
                    call.visitor,
                    element("input", type="hidden", name="id", value=group_id),
                    field("Topic", "topic", hint="empty: all topics with committed offsets"),
                    choice("To", "to", _PLACES),
                    field("Time, offset or number", "at", hint="2026-01-31T12:00:00Z, 12345, or -100"),
                    button="Continue",
                ),
            ],
        )

    async def plan(self, call: PageCall) -> Plan:
        """The offset of each partition before and after."""
        group_id, topic = call.needed("id"), call.request.text("topic")
        if members := await members_of(call.admin, group_id):
            raise NonEmptyGroup(f"group {group_id!r} has {members} members: stop all its consumers, then go back")
        committed = await call.admin.list_group_offsets(group_id)
        keys = sorted(key for key in committed if not topic or key.topic == topic)
        if topic and not keys:
            described = await call.admin.describe_topic(topic)
            keys = [TopicPartition(topic, each.partition) for each in described.partitions]
        if not keys:
            raise InvalidRequest("the group has no committed offsets: name a topic")
        changes = await plan_reset(call.admin, keys, committed, _goal(call))
        again = sum(max(0, each.before - each.after) for each in changes if each.before is not None)
        skipped = sum(max(0, each.after - each.before) for each in changes if each.before is not None)
        effects = [
            f"The committed offsets of {len(changes)} partitions are set.",
            f"Consumers of the group read {again} offsets again and leave {skipped} unread.",
            "No record is changed or deleted.",
        ]
        shown = table(
            "Committed offsets",
            ("Partition", "Now", "Then"),
            [(str(each.partition), "-" if each.before is None else each.before, each.after) for each in changes],
        )
        offsets = json.dumps([[each.partition.topic, int(each.partition.partition), each.after] for each in changes])
        fields = [("id", group_id), ("offsets", offsets)]
        return Plan(f"Set the offsets of {group_id}?", effects, fields, "Set the offsets", more=shown)

    async def carry_out(self, call: PageCall) -> Shown:
        """Set the offsets that were shown."""
        group_id = call.needed("id")
        offsets: dict[TopicPartition | tuple[str, int], int | CommittedOffset] = {}
        offsets.update(_confirmed(call.needed("offsets")))
        await call.admin.alter_group_offsets(group_id, offsets)
        return done("The offsets are set", element("p", link(address("/group", id=group_id), f"Group {group_id}")))


def _goal(call: PageCall) -> ResetGoal:
    to, at = call.needed("to"), call.request.text("at")
    if to == "earliest":
        return ResetGoal(earliest=True)
    if to == "latest":
        return ResetGoal(latest=True)
    if not at:
        raise InvalidRequest("the field 'Time, offset or number' is empty: go back and fill it in")
    if to == "time":
        return ResetGoal(time=moment(at))
    if to == "offset":
        return ResetGoal(offset=whole("offset", at))
    if to == "shift":
        return ResetGoal(shift=whole("number", at))
    raise InvalidRequest(f"{to!r} is no place in a log: begin again")


def _confirmed(text: str) -> Iterator[tuple[TopicPartition, int]]:
    try:
        for topic, partition, offset in json.loads(text):
            if not (isinstance(topic, str) and type(partition) is int and type(offset) is int):
                raise ValueError(text)
            yield TopicPartition(topic, PartitionIndex(partition)), offset
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("the offsets to confirm are malformed: begin again") from None
