"""A story of groups whose members change their protocol, told to a node in frames of Kafka's protocol: what each
request is answered. It is the same for a broker of Kafka and for ours. Topics: `a` with four partitions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from uuid import uuid4

from testbed.consumer_bytes import assigned, places_in, subscription
from tests.interop.transaction_story import Story, settled, told_to
from tests.node.kafka_frames import both_ways
from tidelog.types import PartitionIndex, TopicPartitions

TOPIC: Final = "a"
PARTITIONS: Final = 4
ALL: Final = {(TOPIC, index) for index in range(PARTITIONS)}
LONG_MS: Final = 60_000
MEMBER_ID_REQUIRED: Final = 79


class Classic:
    """A member of the classic protocol, which is eager."""

    def __init__(self, story: Story, group: str, *, instance: str | None = None, version: int = 9) -> None:
        self.story, self.group, self.instance, self.version = story, group, instance, version
        self.member_id, self.generation = "", -1
        self.leads = False
        self.places: set[tuple[str, int]] = set()

    def join(self, kind: str = "consumer", name: str = "range", metadata: bytes | None = None) -> int:
        """Join, a second time if it is given an id."""
        module = both_ways("JoinGroupRequest").module
        metadata = subscription((TOPIC,)) if metadata is None else metadata
        protocols = (module.JoinGroupRequestProtocol(name, metadata),) if name else ()
        answer = self.story.ask(
            "JoinGroup",
            self.version,
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=kind,
            protocols=protocols,
        )
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return self.join(kind, name, metadata)
        if answer.error_code == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == self.member_id
            self.joined = answer
        return int(answer.error_code)

    def sync(self, generation: int | None = None, name: str | None = "range", kind: str | None = "consumer") -> int:
        module = both_ways("SyncGroupRequest").module
        brought = (module.SyncGroupRequestAssignment(self.member_id, assigned(ALL)),) if self.leads else ()
        answer = self.story.ask(
            "SyncGroup",
            5,
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=kind,
            protocol_name=name,
            assignments=brought,
        )
        if answer.error_code == 0:
            self.places = places_in(bytes(answer.assignment))
        return int(answer.error_code)

    def beat(self, generation: int | None = None, member_id: str | None = None) -> int:
        answer = self.story.ask(
            "Heartbeat",
            4,
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance,
        )
        return int(answer.error_code)

    def leave(self, member_id: str | None = None, instance: str | None = None) -> list[int]:
        module = both_ways("LeaveGroupRequest").module
        member = module.MemberIdentity(self.member_id if member_id is None else member_id, instance)
        answer = self.story.ask("LeaveGroup", 5, group_id=self.group, members=(member,))
        return [answer.error_code, *(each.error_code for each in answer.members)]

    def commit(self, generation: int | None = None) -> int:
        module = both_ways("OffsetCommitRequest").module
        topics = (module.OffsetCommitRequestTopic((module.OffsetCommitRequestPartition(0, 7, ""),), TOPIC),)
        answer = self.story.ask(
            "OffsetCommit",
            8,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=topics,
        )
        return int(answer.topics[0].partitions[0].error_code)


class New:
    """A member of KIP-848."""

    def __init__(self, story: Story, group: str, *, instance: str | None = None) -> None:
        self.story, self.group, self.instance = story, group, instance
        self.member_id, self.epoch = str(uuid4()), 0
        self.has: tuple[TopicPartitions, ...] = ()

    @property
    def count(self) -> int:
        return sum(len(each.partitions) for each in self.has)

    def beat(self, epoch: int | None = None) -> int:
        """Join, or say what it has; then it has what it is given."""
        epoch = self.epoch if epoch is None else epoch
        answer = self.story.ask(
            "ConsumerGroupHeartbeat",
            1,
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rack_id=None,
            rebalance_timeout_ms=LONG_MS if epoch == 0 else -1,
            subscribed_topic_names=(TOPIC,) if epoch == 0 else None,
            server_assignor=None,
            topic_partitions=() if epoch == 0 else self.has,
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has = tuple(
                    TopicPartitions(each.topic_id, tuple(map(PartitionIndex, each.partitions)))
                    for each in answer.assignment.topic_partitions
                )
        return int(answer.error_code)


def find(story: Story, group: str) -> None:
    settled(partial(_find, story, group))


def _find(story: Story, group: str) -> int:
    return int(story.ask("FindCoordinator", 2, key=group, key_type=0).error_code)


def joined(story: Story, group: str, **options: Any) -> Classic:
    """A classic group of one member, which has all partitions."""
    find(story, group)
    member = Classic(story, group, **options)
    settled(member.join)
    settled(member.sync)
    return member


def shared(story: Story, classic: Classic, new: New) -> None:
    """Both have their shares."""
    for _ in range(20):
        new.beat()
        if classic.beat() == 27:
            classic.join()
            classic.sync()
        if (len(classic.places), new.count) == (2, 2):
            return
    raise AssertionError(f"{story.outcomes}: {classic.places}, {new.has}")


# --- chapters ---------------------------------------------------------------------------------------------------------


def a_classic_member_joins(story: Story) -> None:
    """A consumer group takes a classic member: what that is answered until it has its share."""
    find(story, "joins")
    new, member = New(story, "joins"), Classic(story, "joins")
    story.note("the first", settled(new.beat))
    story.note("joins", member.join())
    answer = member.joined
    story.note("is told", (answer.protocol_type, answer.protocol_name, answer.leader, len(answer.members)))
    story.note("has to assign", answer.skip_assignment)
    story.note("its generation", member.generation)
    story.note("asks", (member.sync(), len(member.places)))
    story.note("is alive", member.beat())
    story.note("commits", member.commit())
    story.note("the first gives up", (new.beat(), new.count))
    story.note("is alive, and nothing is free", member.beat())
    story.note("the first has given up", new.beat())
    story.note("is alive, and something is free", member.beat())
    story.note("joins again", member.join())
    story.note("asks again", (member.sync(), len(member.places)))
    story.note("generation", (member.generation, new.epoch))
    for name, kind in (("range", None), (None, "consumer"), ("sticky", "consumer"), ("range", "connect")):
        story.note(f"asks as {kind} with {name}", member.sync(name=name, kind=kind))
    story.note("asks for another generation", member.sync(member.generation - 1))
    story.note("lives in another generation", member.beat(member.generation + 1))
    story.note("commits in another generation", member.commit(member.generation - 1))
    story.note("lives under another id", member.beat(member_id="nobody"))
    story.note("lives under the id of the other", member.beat(member_id=new.member_id))
    story.note("lets the other leave", member.leave(new.member_id))
    story.note("lets a stranger leave", member.leave("nobody"))
    story.note("leaves", member.leave())
    story.note("leaves again", member.leave())


def others_are_refused(story: Story) -> None:
    """A consumer group takes no other members, and no other group becomes one."""
    find(story, "refuses")
    settled(New(story, "refuses").beat)
    member = Classic(story, "refuses")
    story.note("joins", member.join())
    story.note("another type", Classic(story, "refuses").join("connect"))
    story.note("another protocol", Classic(story, "refuses").join(name="sticky"))
    story.note("no protocol", Classic(story, "refuses").join(name=""))
    story.note(
        "a newer subscription", Classic(story, "refuses").join(metadata=b"\0\x09" + subscription((TOPIC,), (), 3)[2:])
    )
    find(story, "connects")
    worker = Classic(story, "connects")
    settled(partial(worker.join, "connect"))
    story.note("to workers of connect", New(story, "connects").beat())


def a_group_is_upgraded(story: Story) -> None:
    """A member of KIP-848 joins a classic group."""
    member = joined(story, "upgrades")
    before = member.generation
    new = New(story, "upgrades")
    story.note("joins", (new.beat(), new.count))
    story.note("epoch", new.epoch - before)
    story.note("is alive", member.beat())
    story.note("asks", member.sync())
    story.note("commits", member.commit())
    shared(story, member, new)
    story.note("epochs", (member.generation - before, new.epoch - before))
    story.note("late", (member.beat(before), member.commit(before)))


def a_group_is_downgraded(story: Story) -> None:
    """The last member of KIP-848 leaves."""
    member = joined(story, "downgrades")
    new = New(story, "downgrades")
    new.beat()
    shared(story, member, new)
    before = member.generation
    story.note("leaves", new.beat(-1))
    settled(member.beat, (0,))
    story.note("is alive", member.beat())
    story.note("commits", member.commit())
    story.note("asks", member.sync())
    story.note("joins", (member.join(), member.generation - before, member.leads))
    story.note("brings all", (member.sync(), len(member.places)))
    story.note("is stable", member.beat())
    story.note("to a classic group", new.beat())


def static_members_change(story: Story) -> None:
    """A static member takes its own place with the other protocol."""
    member = joined(story, "statics", instance="i")
    new = New(story, "statics", instance="i")
    story.note("takes its place", (new.beat(), new.count))
    story.note("the former one lives", member.beat())
    story.note("the former one joins", member.join())
    story.note("the former one commits", member.commit())
    again = Classic(story, "statics", instance="i")
    story.note("takes it back", again.join())
    story.note("the other one lives", settled(new.beat, (82,)))
    story.note("with another id", Classic(story, "statics", instance="j").leave("", "j"))


CHAPTERS = (
    a_classic_member_joins,
    others_are_refused,
    a_group_is_upgraded,
    a_group_is_downgraded,
    static_members_change,
)


def tell(address: str) -> dict[str, dict[str, object]]:
    """The outcomes of all chapters, each over a connection of its own."""
    found = {}
    for chapter in CHAPTERS:
        with told_to(address) as story:
            chapter(story)
            found[chapter.__name__] = story.outcomes
    return found
