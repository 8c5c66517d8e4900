"""Transactions through the listener of Kafka's protocol, in a world: a transactional producer (version 1, KIP-98), and
workers that consume, transform and produce with it.

What a transaction writes is judged like that of tidelog.Producer (coordinated_transactions.py, exactly_once.py). A
transaction that does not commit ends its instance: the next one has another epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from testbed.sim.clock import WORLD_BEGAN_MS
from testbed.sim.commit_attempts import Place
from testbed.sim.coordinated_transactions import CoordinatedTransaction, Instance
from testbed.sim.watched_offsets import WatchedOffsets
from testbed.sim.workload import Fate, Sent, record_of
from tests.sim.kafka_client import DUPLICATE_SEQUENCE_NUMBER, PRODUCE_MS, KafkaClient, message_of, raise_for
from tests.sim.kafka_coordinators import CALL_S, GROUP_KEY, TRANSACTION_KEY, KafkaCoordinator, by_topic
from tests.sim.kafka_members import SimKafkaMember
from tests.sim.pipeline_worker import PipelineWorker
from tidelog.errors import InvalidProducerEpoch, ProducerFenced, Retry, TidelogError
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis

if TYPE_CHECKING:
    from testbed.sim.workload import Client
    from testbed.sim.world import Simulation
    from tests.sim.pipelines import Pipeline

PRODUCE_VERSION: Final = 11
INIT_VERSION: Final = 4
VERSION: Final = 3
"""The last versions of requests, and of those that have no other name here, with transaction version 1."""

BLOCK_S: Final = 6.0
"""How long a producer tries each step of a transaction."""

FENCED: Final = (ProducerFenced, InvalidProducerEpoch)


class TransactorOfVersion1:
    """One instance of a transactional id."""

    def __init__(self, sim: Simulation, transactional_id: str, *, client: Client, timeout_ms: int) -> None:
        """timeout_ms: of its transactions."""
        self._sim, self.client, self._id, self._timeout_ms = sim, client, transactional_id, timeout_ms
        self._kafka, self._transactions = KafkaClient(client), sim.coordination.transactions
        self._coordinator = KafkaCoordinator(client, TRANSACTION_KEY, transactional_id)
        self._instance = Instance(transactional_id, client.process.name)
        self._watched = WatchedOffsets(sim.coordination, sim.loop, client.process.name)
        self._producer = (-1, -1)
        self._name = f"{client.process.name}.{next(self._transactions.instance_numbers)}"
        self._numbers, self._next = itertools.count(), dict[Place, int]()
        """Numbers of records, and the next sequence number of each partition."""

    def close(self) -> None:
        """End the connections."""
        self._kafka.close()
        self._coordinator.close()

    async def start(self) -> None:
        """Get a producer id and epoch, which fences all earlier instances. Raises the error of the last attempt."""
        request = message_of("InitProducerId").InitProducerIdRequest(self._id, self._timeout_ms, -1, -1)

        async def init() -> None:
            answer = await self._coordinator.ask("InitProducerId", request, CALL_S, INIT_VERSION)
            self._coordinator.raise_for(answer.error_code, f"InitProducerId of {self._id}")
            self._producer = answer.producer_id, answer.producer_epoch
            self._transactions.began(self._instance, self._producer, self.client.loop.now_us)

        await self._patiently(init)

    async def transact(
        self,
        records: Mapping[Place, Sequence[bytes]],
        member: SimKafkaMember,
        offsets: Mapping[Place, tuple[int, int]],
        pause_s: float = 0.0,
    ) -> bool:
        """Write records and commit offsets of a member in one transaction, which stays open for up to `pause_s` before
        its end. Returns True if it is committed."""
        # As it is now: once it is removed and has joined again, what it had before is no longer its own to commit.
        epoch = member.epoch
        judged = self._transactions.begin(self._instance)
        try:
            await self._patiently(lambda: self._add_partitions(list(records)))
            for place, values in records.items():
                await self._produce(place, values, judged)
            await self.client.sleep(self.client.rng.uniform(0, pause_s))
            await self._commit_offsets(member, epoch, offsets)
        except TidelogError as error:
            if not isinstance(error, FENCED):
                await self._end(judged, commit=False)
            return False
        return await self._end(judged, commit=True)

    async def _patiently(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, after as many attempts as fit into the time. Raises the last error."""
        until = self.client.loop.time() + BLOCK_S
        while True:
            try:
                return await call()
            except TidelogError as error:
                if error.retry is Retry.NEVER or self.client.loop.time() >= until:
                    raise
                await self.client.pause()

    async def _add_partitions(self, places: Sequence[Place]) -> None:
        sent = message_of("AddPartitionsToTxn")
        topics = tuple(sent.AddPartitionsToTxnTopic(name, tuple(each)) for name, each in by_topic(places).items())
        message = sent.AddPartitionsToTxnRequest((), self._id, *self._producer, topics)
        answer = await self._coordinator.ask("AddPartitionsToTxn", message, CALL_S, VERSION)
        for topic in answer.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                self._coordinator.raise_for(each.partition_error_code, f"adding {topic.name} to {self._id}")

    async def _produce(self, place: Place, values: Sequence[bytes], judged: CoordinatedTransaction) -> None:
        """Write records of one partition as one batch. Raises the error of the last attempt."""
        records = [
            Sent(*place, value, -1, producer=self._name, number=next(self._numbers), transaction=judged)
            for value in values
        ]
        judged.sent += records
        for each in records:
            self._sim.checkers.sending(each)
        now = Millis(WORLD_BEGAN_MS + self.client.loop.now_us // 1_000)
        sequence = self._next.get(place, 0)
        self._next[place] = sequence + len(records)
        data = build_batch(
            [record_of(each, now, number) for number, each in enumerate(records)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        sent = message_of("Produce")
        topic = sent.TopicProduceData(name=place[0], partition_data=(sent.PartitionProduceData(place[1], data),))
        request = sent.ProduceRequest(self._id, -1, PRODUCE_MS, (topic,))

        async def attempt() -> None:
            known = await self._kafka.place(place)
            for each in records:
                each.topic_id, each.attempts = known.topic_id, each.attempts + 1
            try:
                answer = await (await self._kafka.wire(known.leader)).ask("Produce", request, version=PRODUCE_VERSION)
                found = self._kafka.only_partition(place, answer.responses, "partition_responses", "index")
                if found.error_code != DUPLICATE_SEQUENCE_NUMBER:
                    raise_for(found.error_code, f"a batch of {self._name} for {place}")
            except TidelogError:
                self._kafka.forget(place)
                raise
            for number, each in enumerate(records):
                each.offset = found.base_offset + number
                self._done(each, Fate.ACKNOWLEDGED if found.base_offset >= 0 else Fate.UNKNOWN)

        try:
            await self._patiently(attempt)
        except TidelogError:
            for each in records:
                self._done(each, Fate.UNKNOWN)
            raise

    def _done(self, sent: Sent, fate: Fate) -> None:
        sent.fate = fate
        for tell in sent.on_done:
            self.client.loop.call_soon(tell, sent)

    async def _commit_offsets(
        self, member: SimKafkaMember, epoch: int, offsets: Mapping[Place, tuple[int, int]]
    ) -> None:
        group = member.group.name
        added = message_of("AddOffsetsToTxn").AddOffsetsToTxnRequest(self._id, *self._producer, group)

        async def add() -> None:
            answer = await self._coordinator.ask("AddOffsetsToTxn", added, CALL_S, VERSION)
            self._coordinator.raise_for(answer.error_code, f"adding {group} to {self._id}")

        await self._patiently(add)
        coordinator = KafkaCoordinator(self.client, GROUP_KEY, group)
        try:
            await self._patiently(lambda: self._send_offsets(coordinator, member, epoch, offsets))
        finally:  # a node has few connections, and closes none that a client has left behind
            coordinator.close()

    async def _send_offsets(
        self,
        coordinator: KafkaCoordinator,
        member: SimKafkaMember,
        epoch: int,
        offsets: Mapping[Place, tuple[int, int]],
    ) -> None:
        sent, group = message_of("TxnOffsetCommit"), member.group.name
        topics = []
        for name, indexes in by_topic(offsets).items():
            partitions = []
            for index in indexes:
                place, (offset, leader_epoch) = (name, index), offsets[name, index]
                metadata = self._watched.sending(
                    group,
                    place,
                    offset,
                    member_id=member.member_id,
                    member_epoch=epoch,
                    given_to=member.readings.may_commit(place, offset) if place in member.owned else None,
                    is_ordered=False,
                )
                partitions.append(sent.TxnOffsetCommitRequestPartition(index, offset, metadata, leader_epoch))
            topics.append(sent.TxnOffsetCommitRequestTopic(name, tuple(partitions)))
        message = sent.TxnOffsetCommitRequest(
            self._id, group, *self._producer, tuple(topics), epoch, member.member_id, member.instance_id
        )
        answer = await coordinator.ask("TxnOffsetCommit", message, CALL_S, VERSION)
        for topic in answer.topics:
            for each in topic.partitions:
                coordinator.raise_for(each.error_code, f"offsets of {self._id} for {group}")

    async def _end(self, judged: CoordinatedTransaction, *, commit: bool) -> bool:
        """End the transaction. Returns True if it is known to be committed. What has no answer stays unknown."""
        request = message_of("EndTxn").EndTxnRequest(self._id, *self._producer, commit)

        async def end() -> None:
            answer = await self._coordinator.ask("EndTxn", request, CALL_S, VERSION)
            self._coordinator.raise_for(answer.error_code, f"EndTxn of {self._id}")

        try:
            await self._patiently(end)
        except TidelogError:
            return False
        decision = self._sim.coordination.decisions.of(self._producer)
        if decision is not commit:
            self._watched.report(
                f"{self.client.process.name} was told that {self._id} in epoch {self._producer[1]} is "
                f"{'committed' if commit else 'aborted'}, and its log says {decision}"
            )
        self._transactions.told(judged, committed=commit)
        return commit


class SimKafkaWorker(PipelineWorker[SimKafkaMember]):
    """One worker of a pipeline (pipelines.py), in its own client process."""

    def __init__(
        self, pipeline: Pipeline, number: int, *, transaction_timeout_ms: int = 5_000, pause: float = 0.0
    ) -> None:
        """pause: as of PipelineWorker."""
        super().__init__(pipeline, number, None, transaction_timeout_ms, pause)

    async def _work(self) -> None:
        group = self.pipeline.group
        member = self.member = SimKafkaMember(group, client=self.client, auto_commit=False)
        group.kafka.append(member)
        transactor = TransactorOfVersion1(
            group.sim, self._transactional_id, client=self.client, timeout_ms=self._timeout_ms
        )
        try:
            await transactor.start()
            member.start()
            while not self.is_stopping and not member.is_fenced:
                records = await member.poll()
                if records and not await self._transform(member, transactor, records):
                    return
        except TidelogError as error:
            if error.retry is Retry.NEVER and not isinstance(error, FENCED):
                raise
        finally:
            await member.close()
            transactor.close()

    async def _transform(
        self, member: SimKafkaMember, transactor: TransactorOfVersion1, records: Sequence[tuple[Place, Record]]
    ) -> bool:
        """Write the results in a transaction. Returns whether it committed."""
        results: dict[Place, list[bytes]] = {}
        for place, record in records:
            value = self._result_of(*place, int(record.offset))
            results.setdefault(self._any_target(), []).append(value)
        offsets = {place: member.positions[place] for place, _ in records if place in member.positions}
        if len(offsets) < len({place for place, _ in records}):
            return False  # something was revoked: it is no longer its own to commit
        is_committed = await transactor.transact(results, member, offsets, self._pause)
        self.committed += is_committed
        return is_committed
