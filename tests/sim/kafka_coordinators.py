"""What clients of Kafka's protocol ask of a coordinator, in a world: where it is, and the offsets of a group.

A client has connections of its own for its coordinator, since a request there may wait for other members. Not here:
what members of groups and producers do (kafka_classic_calls.py, kafka_members.py, kafka_workers.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation
from testbed.sim.watched_offsets import WatchedOffsets
from testbed.sim.workload import Client
from tests.sim.kafka_client import ANSWER_S, KafkaClient, message_of, raise_for
from tidelog.errors import CoordinatorNotAvailable, NotCoordinator, TidelogError
from tidelog.types import Endpoint

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""Kinds of coordinators."""

CALL_S: Final = 2.0
"""Less than the session of a member."""

MOVED: Final = (NotCoordinator.code, CoordinatorNotAvailable.code)


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found


class KafkaCoordinator:
    """The coordinator of a group or a transactional id."""

    def __init__(self, client: Client, kind: int, key: str) -> None:
        self.client = client
        self._kafka, self._kind, self._key = KafkaClient(client), kind, key
        self._endpoint: Endpoint | None = None

    async def ask(self, api: str, message: Any, within_s: float = ANSWER_S, version: int | None = None) -> Any:
        """The answer, in which there may be errors. Raises what a connection raises, and why there is none."""
        try:
            wire = await self._kafka.wire(await self._found())
            return await wire.ask(api, message, within_s, version)
        except TidelogError:
            self._endpoint = None
            raise

    def raise_for(self, code: int, what: str) -> None:
        """Raise the error with this number; a coordinator that has moved is looked up again."""
        if code in MOVED:
            self._endpoint = None
        raise_for(code, what)

    def close(self) -> None:
        """End the connections."""
        self._kafka.close()

    async def _found(self) -> Endpoint:
        if self._endpoint is None:
            request = message_of("FindCoordinator").FindCoordinatorRequest("", self._kind, (self._key,))
            answer = await (await self._kafka.any_wire()).ask("FindCoordinator", request, CALL_S)
            [found] = answer.coordinators
            if found.key != self._key:
                raise Violation(f"the coordinator of {self._key} was asked for, and that of {found.key} is told")
            raise_for(found.error_code, f"the coordinator of {self._key}")
            self._endpoint = Endpoint(found.host, found.port)
        return self._endpoint


class KafkaOffsets:
    """The committed offsets of a group, as a member of it asks for them and commits."""

    def __init__(self, coordinator: KafkaCoordinator, group: str, watched: WatchedOffsets) -> None:
        self._coordinator, self._group, self._watched = coordinator, group, watched

    async def fetched(self, places: Iterable[Place], member_id: str, member_epoch: int) -> dict[Place, tuple[int, int]]:
        """The committed offsets and their leader epochs, -1 for none, without those of which the answer is an error.
        Raises the error of the request."""
        sent = message_of("OffsetFetch")
        topics = tuple(
            sent.OffsetFetchRequestTopics(tuple(indexes), name) for name, indexes in by_topic(places).items()
        )
        asked = sent.OffsetFetchRequestGroup(self._group, topics, member_id, member_epoch)
        sent_us = self._coordinator.client.loop.now_us
        answer = await self._coordinator.ask(
            "OffsetFetch", sent.OffsetFetchRequest("", (), (asked,), require_stable=True), CALL_S
        )
        [group] = answer.groups
        self._coordinator.raise_for(group.error_code, f"the offsets of {self._group}")
        offsets: dict[Place, tuple[int, int]] = {}
        for topic in group.topics:
            for each in topic.partitions:
                if not each.error_code:
                    place = topic.name, each.partition_index
                    offsets[place] = each.committed_offset, each.committed_leader_epoch
                    self._watched.fetched(self._group, place, each.committed_offset, sent_us)
        if not offsets.keys() <= set(places):
            raise Violation(f"the offsets of {sorted(places)} were asked for, and those of {sorted(offsets)} are told")
        return offsets

    async def commit(
        self,
        offsets: Mapping[Place, tuple[int, int]],
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        given_to: Mapping[Place, int | None] | None = None,
    ) -> None:
        """Commit offsets with their leader epochs. given_to: as of CommitAttempt. Raises the first error of the
        answer."""
        sent = message_of("OffsetCommit")
        identities = {
            place: self._watched.sending(
                self._group,
                place,
                offset,
                member_id=member_id,
                member_epoch=member_epoch,
                given_to=(given_to or {}).get(place),
                is_ordered=False,
            )
            for place, (offset, _) in offsets.items()
        }
        topics = tuple(
            sent.OffsetCommitRequestTopic(
                tuple(
                    sent.OffsetCommitRequestPartition(
                        index,
                        offsets[name, index][0],
                        committed_metadata=identities[name, index],
                        committed_leader_epoch=offsets[name, index][1],
                    )
                    for index in indexes
                ),
                name,
            )
            for name, indexes in by_topic(offsets).items()
        )
        message = sent.OffsetCommitRequest(self._group, member_epoch, member_id, topics, instance_id)
        answer = await self._coordinator.ask("OffsetCommit", message, CALL_S)
        codes = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        if codes.keys() != offsets.keys():
            raise Violation(f"a commit of {sorted(offsets)} was answered for {sorted(codes)}")
        for place, code in codes.items():
            if not code:
                self._watched.committed(self._group, place, offsets[place][0], identities[place])
        for code in codes.values():
            self._coordinator.raise_for(code, f"a commit of {member_id} for {self._group}")
