"""Set the committed offsets of a group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from tidelog.client.admin import Admin
from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.offset_resets import OffsetChange, ResetGoal, members_of, plan_reset
from tidelog.console.changes import Plan, changed_since, done
from tidelog.console.html import Html, address, choice, element, field, link, table
from tidelog.console.layout import ROWS_SHOWN_MAX, form, hidden, not_shown, notice
from tidelog.console.page_call import PageCall, Shown, moment, whole
from tidelog.errors import InvalidRequest, NonEmptyGroup, TidelogError
from tidelog.types import PartitionIndex, TopicId, TopicPartition

_PLACES = (
    ("earliest", "the first record"),
    ("latest", "behind the last record"),
    ("time", "the first record at or after a time"),
    ("offset", "an offset"),
    ("shift", "so many records further (negative: back)"),
)


CONFIRMED_BYTES_MAX: Final = 45_000
"""Of what was shown, before it is encoded: a form has at most 64 KiB."""


class OffsetReset:
    """The offsets of a group without members."""

    path = "/group/reset"

    async def ask(self, call: PageCall) -> Shown:
        """Which partitions, and where to."""
        group_id = call.identity("id")
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
                    hidden([("id", group_id)]),
                    field("Topic", "topic", hint="empty: all topics with committed offsets"),
                    choice("To", "to", _PLACES),
                    field("Time, offset or number", "at", hint="2026-01-31T12:00:00Z, 12345, or -100"),
                    button="Continue",
                ),
            ],
        )

    async def plan(self, call: PageCall) -> Plan:
        """The offset of each partition before and after."""
        group_id, topic = call.identity("id"), call.request.text("topic")
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
            [
                (str(each.partition), "-" if each.before is None else each.before, each.after)
                for each in changes[:ROWS_SHOWN_MAX]
            ],
        )
        ids = await _ids(call.admin, {each.partition.topic for each in changes})
        offsets = _written(changes, ids)
        if len(offsets) > CONFIRMED_BYTES_MAX:
            raise InvalidRequest(
                f"these are {len(changes)} partitions, more than one form has room for: name a topic, or use "
                "`tidelog group reset-offsets`"
            )
        more = Html(shown + (not_shown(len(changes), "They are set in the same way.") or ""))
        fields = [("id", group_id), ("offsets", offsets)]
        return Plan(f"Set the offsets of {group_id}?", effects, fields, "Set the offsets", more=more)

    async def carry_out(self, call: PageCall) -> Shown:
        """Set the offsets that were shown, unless those that they replace are others by now."""
        group_id = call.identity("id")
        changes, ids = _confirmed(call.identity("offsets"))
        present = await _ids(call.admin, ids)
        for topic, topic_id in ids.items():
            if present[topic] != topic_id:
                raise changed_since(f"the topic {topic} was deleted and created again, with the id {present[topic]}")
        committed = await call.admin.list_group_offsets(group_id)
        for each in changes:
            # A consumer has run meanwhile: what was shown as read again and as skipped is wrong.
            if (now := _offset_in(committed, each.partition)) != each.before:
                raise changed_since(f"the committed offset of {each.partition} was {each.before}, now {now}")
        offsets: dict[TopicPartition | tuple[str, int], int | CommittedOffset] = {}
        offsets.update({each.partition: each.after for each in changes})
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


async def _ids(admin: Admin, topics: Iterable[str]) -> dict[str, TopicId]:
    found = {}
    for name, described in (await admin.describe_topics(sorted(topics))).items():
        if isinstance(described, TidelogError):
            raise described
        found[name] = described.topic_id
    return found


def _offset_in(committed: Mapping[TopicPartition, CommittedOffset | None], key: TopicPartition) -> int | None:
    return None if (found := committed.get(key)) is None else int(found.offset)


def _written(changes: Sequence[OffsetChange], ids: Mapping[str, TopicId]) -> str:
    """What was shown, by topic: a form has a limited size."""
    by_topic: dict[str, list[tuple[int, int | None, int]]] = {name: [] for name in ids}
    for each in changes:
        by_topic[each.partition.topic].append((int(each.partition.partition), each.before, each.after))
    return json.dumps({name: [str(ids[name]), rows] for name, rows in by_topic.items()}, separators=(",", ":"))


def _confirmed(text: str) -> tuple[list[OffsetChange], dict[str, TopicId]]:
    """Read what `_written` has written. Raises InvalidRequest."""
    changes, ids = [], {}
    try:
        for topic, (topic_id, rows) in json.loads(text).items():
            ids[topic] = TopicId(UUID(topic_id))
            for partition, before, after in rows:
                if not (type(partition) is int and type(after) is int and (before is None or type(before) is int)):
                    raise ValueError(text)
                changes.append(OffsetChange(TopicPartition(topic, PartitionIndex(partition)), before, after))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest("the offsets to confirm are malformed: begin again") from None
    return changes, ids
