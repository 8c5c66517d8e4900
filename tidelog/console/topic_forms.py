"""Create a topic, delete one, and move its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from tidelog.client.admin import NODE_DEFAULT, TopicDescription
from tidelog.console.changes import Plan, changed_since, done
from tidelog.console.html import Html, address, element, field, items, lines, link, table
from tidelog.console.layout import ROWS_SHOWN_MAX, form, hidden, not_shown
from tidelog.console.page_call import PageCall, Shown, whole
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import NO_NODE, PartitionIndex, TopicId, TopicPartition


class TopicForm:
    """A new topic."""

    path = "/topic/create"

    async def ask(self, call: PageCall) -> Shown:
        """Name, numbers, settings."""
        return Shown(
            "Create a topic",
            [
                form(
                    self.path,
                    call.visitor,
                    field("Name", "name", required=True, maxlength=249),
                    field("Partitions", "partitions", hint="empty: num.partitions of the node", inputmode="numeric"),
                    field(
                        "Replicas of each",
                        "replicas",
                        hint="empty: default.replication.factor of the node",
                        inputmode="numeric",
                    ),
                    _text_area("Settings", "settings", "", "one to a line, as retention.ms=86400000"),
                    button="Continue",
                )
            ],
        )

    async def plan(self, call: PageCall) -> Plan:
        """Checked by the controller."""
        name, partitions, replicas = self._named(call)
        settings = _settings(call)
        warned = await self._create(call, validate_only=True)
        counts = [
            "as many partitions as num.partitions says" if partitions == NODE_DEFAULT else f"{partitions} partitions",
            "as many replicas as default.replication.factor says"
            if replicas == NODE_DEFAULT
            else f"{replicas} replicas of each",
        ]
        effects = [
            f"The topic {name} is created with {' and '.join(counts)}.",
            *[f"Its setting {key} is {value}." for key, value in settings.items()],
            *[f"Warning: {each}." for each in warned],
            "No other topic changes.",
        ]
        fields = [(key, call.request.text(key)) for key in ("name", "partitions", "replicas", "settings")]
        return Plan(f"Create the topic {name}?", effects, fields, "Create the topic")

    async def carry_out(self, call: PageCall) -> Shown:
        """Create it."""
        name, _, _ = self._named(call)
        warned = await self._create(call, validate_only=False)
        link_to = element("p", link(address("/topic", name=name), f"Topic {name}"))
        return done("The topic is created", link_to, items(warned) if warned else None)

    def _named(self, call: PageCall) -> tuple[str, int, int]:
        return call.needed("name"), call.number("partitions", NODE_DEFAULT), call.number("replicas", NODE_DEFAULT)

    async def _create(self, call: PageCall, *, validate_only: bool) -> list[str]:
        """Returns what the cluster warns of."""
        name, partitions, replicas = self._named(call)
        warned: list[str] = []
        await call.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replicas,
            configs=_settings(call),
            validate_only=validate_only,
            on_warning=warned.append,
        )
        return warned


class TopicDeletion:
    """A topic with all its records."""

    path = "/topic/delete"

    async def ask(self, _call: PageCall) -> None:
        """Its name says all."""
        return

    async def plan(self, call: PageCall) -> Plan:
        """What is lost."""
        name = call.identity("name")
        found = await call.admin.describe_topic(name)
        count = len(found.partitions)
        effects = [
            f"The topic {name} (id {found.topic_id}) and its {count} partitions are deleted on all nodes.",
            await _records_in(call, found),
            "Producers and consumers of it fail. Committed offsets of groups in it are of no use any more.",
            "This cannot be undone.",
        ]
        return Plan(
            f"Delete the topic {name}?",
            effects,
            [("name", name), ("topic_id", str(found.topic_id))],
            "Delete the topic",
            is_dangerous=True,
            must_type=name,
        )

    async def carry_out(self, call: PageCall) -> Shown:
        """Delete the incarnation that was described."""
        name = call.identity("name")
        await call.admin.delete_topic(name, topic_id=_topic_id(call))
        return done(f"The topic {name} is deleted", element("p", link("/topics", "All topics")))


class TopicMove:
    """Other nodes for the replicas of a topic's partitions."""

    path = "/topic/reassign"

    async def ask(self, call: PageCall) -> Shown:
        """The present replicas, to be edited."""
        name = call.identity("name")
        found = await call.admin.describe_topic(name)
        nodes = (await call.admin.describe_cluster()).nodes
        shown = found.partitions[:ROWS_SHOWN_MAX]
        present = _lines({int(each.partition): tuple(map(int, each.replicas)) for each in shown})
        return Shown(
            f"Move replicas of {name}",
            [
                element(
                    "p",
                    "The nodes of each partition, the preferred leader first. Lines that stay as they are do nothing.",
                ),
                element(
                    "p",
                    "Nodes: ",
                    ", ".join(
                        f"{each.node_id}" + ("" if each.takes_replicas else f" ({each.state})") for each in nodes
                    ),
                ),
                not_shown(len(found.partitions), "Write a line for each of the others that moves."),
                form(
                    self.path,
                    call.visitor,
                    hidden([("name", name)]),
                    _text_area("Replicas", "replicas", present, "a partition to a line, as 0: 1, 2, 3"),
                    button="Continue",
                ),
            ],
        )

    async def plan(self, call: PageCall) -> Plan:
        """What is copied and what is removed."""
        name = call.identity("name")
        found = await call.admin.describe_topic(name)
        wanted = _replicas(call.request.text("replicas"))
        present = {int(each.partition): tuple(map(int, each.replicas)) for each in found.partitions}
        if unknown := sorted(wanted.keys() - present.keys()):
            raise InvalidRequest(f"topic {name!r} has no partition {unknown[0]}")
        moved = {index: nodes for index, nodes in wanted.items() if nodes != present[index]}
        if not moved:
            raise InvalidRequest("every partition stays where it is: go back and change a line")
        copies = sum(len(set(nodes) - set(present[index])) for index, nodes in moved.items())
        removed = sum(len(set(present[index]) - set(nodes)) for index, nodes in moved.items())
        shown = table(
            "Partitions that change",
            ("Partition", "Now", "Then", "Copied to", "Removed from"),
            [
                (
                    str(index),
                    _listed(present[index]),
                    _listed(nodes),
                    _listed(sorted(set(nodes) - set(present[index]))),
                    _listed(sorted(set(present[index]) - set(nodes))),
                )
                for index, nodes in sorted(moved.items())
            ],
        )
        effects = [
            f"{copies} replicas are copied from the leaders to other nodes, which takes network and disk there.",
            f"{removed} replicas are removed, each once the new ones of its partition are in sync.",
            "Readers and writers go on meanwhile. No record is lost.",
        ]
        fields = [
            ("name", name),
            ("topic_id", str(found.topic_id)),
            ("present", _lines({index: present[index] for index in moved})),
            ("replicas", _lines(moved)),
        ]
        return Plan(f"Move replicas of {name}?", effects, fields, "Move the replicas", more=shown)

    async def carry_out(self, call: PageCall) -> Shown:
        """Begin it, unless the partitions have other replicas than were shown."""
        name, topic_id = call.identity("name"), _topic_id(call)
        shown, wanted = _replicas(call.identity("present")), _replicas(call.identity("replicas"))
        found = await call.admin.describe_topic(name)
        if found.topic_id != topic_id:
            raise changed_since(f"the topic {name} was deleted and created again, with the id {found.topic_id}")
        # Another operator, or a node that drains, may have moved them: what was shown as copied and removed is wrong.
        present = {int(each.partition): tuple(map(int, each.replicas)) for each in found.partitions}
        for index in wanted:
            before, now = shown.get(index, ()), present.get(index, ())
            if before != now:
                raise changed_since(f"the replicas of {name}-{index} were {_listed(before)}, now {_listed(now)}")
        results = await call.admin.reassign(
            {TopicPartition(name, PartitionIndex(index)): nodes for index, nodes in wanted.items()}
        )
        refused = [f"{each.partition}: {each.error.message}" for each in results if each.error is not None]
        if refused:
            raise InvalidRequest(
                f"{len(results) - len(refused)} partitions move, and these do not: {'; '.join(refused)}"
            )
        return done(
            "The replicas move",
            element("p", "The page of the topic shows how far they are: ", link(address("/topic", name=name), name)),
        )


async def _records_in(call: PageCall, found: TopicDescription) -> str:
    led = [TopicPartition(found.name, each.partition) for each in found.partitions if each.leader != NO_NODE]
    try:
        starts = await call.admin.list_offsets(led, "earliest")
        ends = await call.admin.list_offsets(led, "latest")
    except TidelogError as error:
        return f"How many records are lost is not known: {error.message}"
    records = sum(ends[key] - starts[key] for key in led)
    unknown = "" if len(led) == len(found.partitions) else ", besides those of partitions without a leader"
    return f"All its records are lost: {records} offsets{unknown}."


def _topic_id(call: PageCall) -> TopicId:
    """Of the topic that was described."""
    try:
        return TopicId(UUID(call.identity("topic_id")))
    except ValueError:
        raise InvalidRequest("the id of the topic is malformed: begin again") from None


def _lines(replicas: Mapping[int, tuple[int, ...]]) -> str:
    """Read back by `_replicas`."""
    return "\n".join(f"{index}: {_listed(nodes)}" for index, nodes in sorted(replicas.items()))


def _settings(call: PageCall) -> Mapping[str, str]:
    found = {}
    for line in call.request.text("settings").splitlines():
        key, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals:
            raise InvalidRequest(f"{line.strip()!r} is no setting: write it as retention.ms=86400000")
        found[key.strip()] = value.strip()
    return found


def _replicas(text: str) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        index, colon, nodes = line.partition(":")
        if not colon:
            raise InvalidRequest(f"{line.strip()!r} names no replicas: write a partition to a line, as 0: 1, 2, 3")
        number = whole("partition", index.strip())
        if number in found:
            raise InvalidRequest(f"partition {number} has two lines: write one")
        found[number] = tuple(whole("node", each.strip()) for each in nodes.split(",") if each.strip())
    return found


def _listed(nodes: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, nodes))


def _text_area(label: str, name: str, value: str, hint: str) -> Html:
    identity = f"field-{name}"
    rows = min(20, max(3, value.count("\n") + 1))
    text = Html("\n" + lines(value.split("\n")))  # the first line break behind the tag is not part of the value
    return element(
        "p",
        element("label", label, for_=identity),
        element("textarea", text, id=identity, name=name, rows=rows, cols=60, aria_describedby=f"{identity}-hint"),
        element("small", hint, id=f"{identity}-hint"),
    )
