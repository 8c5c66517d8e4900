"""A small cluster in memory behind real gRPC servers, for situations that a real node does not produce on purpose.

Each partition has one log that all nodes share, so that moving a leader needs no replication. Nodes can reject
requests, not answer, break a stream before or after the append, stop and restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from node.boundary.boundary import Boundary
from node.listener_settings import ListenerTls
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.requests.context import RequestContext
from tests.client.memory_groups import MemoryGroups, MemoryGroupsService
from tests.client.memory_transactions import MemoryTransactions, MemoryTransactionsService
from tests.client.producer_states import ProducerStates
from tests.node.message_services import gates_of, messages_of
from tests.record_values import fetched
from tidelog.client.admin import NODE_DEFAULT
from tidelog.client.machine import LoopThread
from tidelog.clock import MachineClock
from tidelog.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
    TooFewNodes,
    TopicExists,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    VoterNotFound,
)
from tidelog.protocol import methods
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import admin_pb2, common_pb2, data_pb2, sasl_pb2
from tidelog.record_exchange import AbortedStart, FetchAnswer, FetchedPartition, ProduceBatch
from tidelog.records import RecordBatch, iter_batches, stamp
from tidelog.types import Endpoint, EpochEnd, LeaderEpoch, NodeAddress, NodeId, Offset, ProducerId

T = TypeVar("T")

SILENCE = object()
"""What a node does instead of answering: nothing, ever."""


OTHER_RPCS = {method.attribute for method in methods.ALL if method.service in (methods.DATA, methods.ADMIN)}


CLOCK = MachineClock()


async def until(reached: Callable[[], object]) -> None:
    """Return once the condition is true; the test's own time limit bounds the wait."""
    while not reached():
        await CLOCK.sleep_ms(2)


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run beside the story, which awaits the result later."""
    return asyncio.get_running_loop().create_task(work)


@dataclass
class MemoryPartition:
    """One partition: its batches, its leader and its log start."""

    leader: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    open_since: int | None = None
    """Where the first open transaction begins."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Producer and first offset of aborted transactions."""
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    producers: ProducerStates = field(default_factory=ProducerStates)

    @property
    def end(self) -> int:
        return RecordBatch(self.batches[-1]).next_offset if self.batches else self.start

    def end_for(self, isolation: int) -> int:
        """Return the end of the log for a reader of that isolation level."""
        return self.end if isolation == 0 or self.open_since is None else self.open_since

    def read(self, offset: int, max_bytes: int, isolation: int) -> bytes:
        """Return whole batches, from the one that contains `offset` on."""
        records, end = b"", self.end_for(isolation)
        for data in self.batches:
            if RecordBatch(data).next_offset <= offset:
                continue
            if (records and len(records) + len(data) > max_bytes) or RecordBatch(data).next_offset > end:
                break
            records += data
        return records

    def append(self, records: Any) -> int:
        batch = bytearray(records)
        base = self.end
        stamp(batch, 0, base_offset=base, leader_epoch=self.leader_epoch)
        RecordBatch(batch).ensure_valid()
        self.batches.append(bytes(batch))
        self.grown.set()
        self.grown = asyncio.Event()
        return base

    def produce(self, records: Any) -> int:
        """Append a producer's batch as a leader does: a repeated batch of an idempotent producer is ignored."""
        sent = RecordBatch(records)
        numbers = (sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.count)
        first_copy = self.producers.judge(*numbers)
        if first_copy is not None:
            return first_copy
        base = self.append(records)
        self.producers.appended(*numbers, base)
        return base

    def epoch_before(self, offset: int) -> int:
        batches = [RecordBatch(data) for data in self.batches]
        return next((batch.partition_leader_epoch for batch in reversed(batches) if batch.base_offset < offset), -1)

    def epoch_end(self, epoch: int) -> common_pb2.EpochEnd:
        best, end = -1, -1
        for data in self.batches:
            batch = RecordBatch(data)
            if batch.partition_leader_epoch <= epoch:
                best, end = batch.partition_leader_epoch, batch.next_offset
        if best >= 0 and best == self.leader_epoch:
            end = self.end
        return common_pb2.EpochEnd(epoch=best, end_offset=end)


@dataclass
class MemoryTopic:
    name: str
    topic_id: UUID
    partitions: list[MemoryPartition]
    configs: dict[str, str] = field(default_factory=dict)


class _Collected:
    """Takes the answers to a call as if it were a stream."""

    def __init__(self) -> None:
        self.partitions: list[FetchedPartition] = []

    async def send(self, answer: FetchAnswer) -> None:
        self.partitions += answer.partitions


class MemoryNode:
    """One node: its address, and its scripted behaviour."""

    def __init__(self, cluster: MemoryCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.endpoint = Endpoint("127.0.0.1", 0)
        self.server: GrpcServer | None = None
        self.on_produce: Callable[[ProduceBatch], object] = lambda entry: None
        """Called before each append; may return SILENCE, an error to answer, or "break" (before) / "lose" (after)."""
        self.on_fetch: Callable[[data_pb2.FetchPartition], object] = lambda entry: None
        self.on_init_producer_id: Callable[[data_pb2.InitProducerIdRequest], object] = lambda request: None
        self.produced: list[list[int]] = []
        self.fetches: list[data_pb2.FetchPartition] = []
        self.waiting: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self.scripted: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.metadata_requests: list[admin_pb2.GetMetadataRequest] = []
        self.on_get_metadata = cluster.metadata
        """What the node knows of the cluster: it may lag."""
        self.client_ids: set[str] = set()
        """Of metadata requests and of streams."""

    async def start(self) -> None:
        tls = self.cluster.tls
        self.server = GrpcServer(
            "client", boundary=Boundary(), tls=None if tls is None else ServerTls("client", tls, MachineClock())
        )
        self.endpoint = self.server.bind(self.endpoint)
        groups = MemoryGroupsService(self)
        self.server.serve(
            gates_of(
                {
                    methods.DATA: self,
                    methods.ADMIN: self,
                    methods.COORDINATORS: groups,
                    methods.GROUPS: groups,
                    methods.TRANSACTIONS: MemoryTransactionsService(self),
                }
            ),
            codec_of=messages_of,
        )
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    # --- Data ---------------------------------------------------------------------------------------------------

    async def produce_stream(self, stream: Any, context: RequestContext) -> None:
        self.client_ids.add(context.client_id)
        while (request := await stream.receive()) is not None:
            self.produced.append([len(entry.records) for entry in request.partitions])
            for entry in request.partitions:
                wish = self.on_produce(entry)
                if wish is SILENCE:
                    continue
                if wish == "break":
                    return
                answer = data_pb2.PartitionProduced(
                    batch_id=entry.correlation_id, base_offset=-1, log_append_time_ms=-1
                )
                try:
                    if isinstance(wish, TidelogError):
                        raise wish
                    partition = self.cluster.led(self, entry)
                    if request.transactional_id:
                        self.cluster.transactions.verify(request.transactional_id, partition, entry.records)
                    answer.base_offset = partition.produce(entry.records)
                except TidelogError as error:
                    answer.error.CopyFrom(to_proto(error))
                    answer.record_errors.extend(
                        data_pb2.RecordError(index=each.index, message=each.message) for each in error.record_errors
                    )
                if wish == "lose":
                    return
                if request.acks != 0:
                    await stream.send(data_pb2.ProduceResponse(partitions=[answer]))

    async def produce(self, request: Any, context: RequestContext) -> Any:
        raise NotImplementedError

    async def init_producer_id(self, request: data_pb2.InitProducerIdRequest, context: RequestContext) -> Any:
        wish = self.on_init_producer_id(request)
        if isinstance(wish, TidelogError):
            raise wish
        self.cluster.producer_ids += 1
        return data_pb2.InitProducerIdResponse(producer_id=self.cluster.producer_ids, producer_epoch=0)

    async def fetch(self, request: Any, context: RequestContext) -> Any:
        collected = _Collected()
        for entry in request.partitions:
            await self._fetch(collected, request, entry)
        return FetchAnswer(collected.partitions)

    async def fetch_stream(self, stream: Any, context: RequestContext) -> None:
        self.client_ids.add(context.client_id)
        async with asyncio.TaskGroup() as tasks:
            opened: dict[tuple[bytes, int], asyncio.Task[None]] = {}
            while (request := await stream.receive()) is not None:
                for entry in request.partitions:
                    self.fetches.append(entry)
                    key = (entry.topic_id, entry.partition)
                    if key in opened:
                        opened[key].cancel()
                    opened[key] = tasks.create_task(self._fetch(stream, request, entry))

    async def _fetch(self, stream: Any, request: data_pb2.FetchRequest, entry: data_pb2.FetchPartition) -> None:
        wish = self.on_fetch(entry)
        if wish is SILENCE:
            return
        if wish == "break":
            stream.close()
            return
        answer = fetched(
            correlation_id=entry.fetch_id, topic_id=entry.topic_id, partition=entry.partition, preferred_read_replica=-1
        )
        try:
            if isinstance(wish, TidelogError):
                raise wish
            partition = self.cluster.led(self, entry)
            if not partition.start <= entry.fetch_offset <= partition.end:
                raise OffsetOutOfRange(
                    f"offset {entry.fetch_offset} is outside {partition.start}..{partition.end} of partition "
                    f"{entry.partition}"
                )
            if entry.fetch_offset >= partition.end_for(request.isolation_level):
                try:
                    async with asyncio.timeout(request.max_wait_ms / 1000):
                        await partition.grown.wait()
                except TimeoutError:
                    pass
                partition = self.cluster.led(self, entry)
            if entry.last_fetched_epoch >= 0:
                end = partition.epoch_end(entry.last_fetched_epoch)
                if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.fetch_offset:
                    diverging = EpochEnd(LeaderEpoch(end.epoch), Offset(end.end_offset))
                    answer = answer._replace(diverging=diverging, leader_epoch=LeaderEpoch(partition.leader_epoch))
                    await stream.send(FetchAnswer([answer]))
                    return
            records = partition.read(entry.fetch_offset, entry.max_bytes, request.isolation_level)
            aborted = partition.aborted if request.isolation_level == 1 else ()
            answer = answer._replace(
                leader_epoch=LeaderEpoch(partition.leader_epoch),
                high_watermark=Offset(partition.end),
                last_stable_offset=Offset(partition.end_for(1)),
                log_start_offset=Offset(partition.start),
                aborted=[AbortedStart(ProducerId(producer), Offset(first)) for producer, first in aborted],
                records=wish(records) if callable(wish) else records,
            )
        except TidelogError as error:
            answer = answer._replace(error=error)
        await stream.send(FetchAnswer([answer]))

    async def list_offsets(
        self, request: data_pb2.ListOffsetsRequest, context: RequestContext
    ) -> data_pb2.ListOffsetsResponse:
        answer = data_pb2.ListOffsetsResponse()
        for entry in request.partitions:
            reported = answer.partitions.add(
                topic_id=entry.topic_id, partition=entry.partition, offset=-1, timestamp_ms=-1, leader_epoch=-1
            )
            try:
                partition = self.cluster.led(self, entry)
            except TidelogError as error:
                reported.error.CopyFrom(to_proto(error))
                continue
            if entry.timestamp_ms == -1:
                reported.offset = partition.end_for(request.isolation_level)
                reported.leader_epoch = partition.epoch_before(reported.offset)
            elif entry.timestamp_ms == -2:
                reported.offset = partition.start
            else:
                for data in partition.batches:
                    found = next((r for r in RecordBatch(data).records() if r.timestamp >= entry.timestamp_ms), None)
                    if found is not None:
                        reported.offset, reported.timestamp_ms = found.offset, found.timestamp
                        break
        return answer

    async def delete_records(
        self, request: data_pb2.DeleteRecordsRequest, context: RequestContext
    ) -> data_pb2.DeleteRecordsResponse:
        self.asked.append(request)
        answer = data_pb2.DeleteRecordsResponse()
        for entry in request.partitions:
            deleted = answer.partitions.add(topic_id=entry.topic_id, partition=entry.partition, low_watermark=-1)
            try:
                partition = self.cluster.led(self, entry)
                if entry.offset > partition.end:
                    raise OffsetOutOfRange(f"the log ends at {partition.end}")
            except TidelogError as error:
                deleted.error.CopyFrom(to_proto(error))
            else:
                partition.start = deleted.low_watermark = max(partition.start, entry.offset)
        return answer

    async def offset_for_leader_epoch(
        self, request: data_pb2.OffsetForLeaderEpochRequest, context: RequestContext
    ) -> data_pb2.OffsetForLeaderEpochResponse:
        answer = data_pb2.OffsetForLeaderEpochResponse()
        for entry in request.partitions:
            reported = answer.partitions.add(topic_id=entry.topic_id, partition=entry.partition)
            try:
                reported.end.CopyFrom(self.cluster.led(self, entry).epoch_end(entry.leader_epoch))
            except TidelogError as error:
                reported.error.CopyFrom(to_proto(error))
        return answer

    # --- Admin --------------------------------------------------------------------------------------------------

    async def get_metadata(self, request: admin_pb2.GetMetadataRequest, context: RequestContext) -> Any:
        self.client_ids.add(context.client_id)
        self.metadata_requests.append(request)
        return self.on_get_metadata(request)

    def __getattr__(self, name: str) -> Any:
        """Every other RPC: returns the answer in `scripted`, or rejects the request."""
        if name not in OTHER_RPCS:
            raise AttributeError(name)

        async def serve(request: Any, context: RequestContext) -> Any:
            self.asked.append(request)
            answer = self.scripted.get(name)
            if isinstance(answer, TidelogError):
                raise answer
            if answer is None:
                raise UnsupportedVersion(f"a node in memory does not do {name}")
            return answer

        return serve

    async def create_topics(self, request: admin_pb2.CreateTopicsRequest, context: RequestContext) -> Any:
        return admin_pb2.ChangedTopics(topics=[self._created(asked) for asked in request.topics])

    def _created(self, asked: admin_pb2.CreateTopic) -> admin_pb2.ChangedTopic:
        if asked.name in self.cluster.topics:
            return _refused(TopicExists(f"topic {asked.name!r} exists: choose another name"))
        usable = sum(node.server is not None for node in self.cluster.nodes)
        if asked.replication_factor > usable:
            self.cluster.refused_for_nodes += 1
            few = f"topic {asked.name!r} cannot have so many replicas: {usable} nodes are usable"
            return _refused(TooFewNodes(few))
        self.cluster.created.append(asked)
        partitions = 1 if asked.partitions == NODE_DEFAULT else asked.partitions
        topic = self.cluster.create(asked.name, partitions, dict(asked.configs))
        warnings = self.cluster.topic_warnings
        return admin_pb2.ChangedTopic(name=topic.name, topic_id=topic.topic_id.bytes, warnings=warnings)

    async def delete_topics(self, request: admin_pb2.DeleteTopicsRequest, context: RequestContext) -> Any:
        return admin_pb2.ChangedTopics(topics=[self._deleted(asked.name) for asked in request.topics])

    def _deleted(self, name: str) -> admin_pb2.ChangedTopic:
        if name not in self.cluster.topics:
            return _refused(UnknownTopicOrPartition(f"there is no topic {name!r}"))
        self.cluster.delete(name)
        return admin_pb2.ChangedTopic(name=name)

    async def remove_voter(self, request: admin_pb2.RemoveVoterRequest, context: RequestContext) -> Any:
        if request.node_id not in self.cluster.voters:
            raise VoterNotFound(f"node {request.node_id} does not vote")
        self.cluster.voters.remove(request.node_id)
        return admin_pb2.RemoveVoterResponse()

    async def unregister_node(self, request: admin_pb2.UnregisterNodeRequest, context: RequestContext) -> Any:
        removed_voter = request.node_id in self.cluster.voters
        if removed_voter:
            self.cluster.voters.remove(request.node_id)
        return admin_pb2.UnregisterNodeResponse(removed_voter=removed_voter)

    async def alter_cordon(self, request: admin_pb2.AlterCordonRequest, context: RequestContext) -> Any:
        before = set(self.cluster.cordoned)
        (self.cluster.cordoned.add if request.cordoned else self.cluster.cordoned.discard)(request.node_id)
        return admin_pb2.AlterCordonResponse(changed=before != self.cluster.cordoned)

    async def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Any:
        for each in request.upsertions:
            self.cluster.users[each.name, each.mechanism] = each
        for each in request.deletions:
            del self.cluster.users[each.name, each.mechanism]
        return sasl_pb2.AlterUserScramCredentialsResponse()

    async def describe_user_scram_credentials(self, request: Any, context: RequestContext) -> Any:
        credentials = [
            sasl_pb2.ScramCredentialInfo(name=each.name, mechanism=each.mechanism, iterations=each.iterations)
            for _, each in sorted(self.cluster.users.items())
            if each.name in request.users or not request.users
        ]
        return sasl_pb2.DescribeUserScramCredentialsResponse(credentials=credentials)

    async def describe_cluster(self, request: Any, context: RequestContext) -> Any:
        nodes = [
            admin_pb2.NodeStatus(
                address=common_pb2.NodeAddress(
                    node_id=node.node_id, host=node.endpoint.host, port=node.endpoint.port, leader_epoch=-1
                ),
                incarnation=bytes(16),
                fenced=node.server is None,
                cordoned=node.node_id in self.cluster.cordoned,
                replicas=self.cluster.replicas_of.get(node.node_id, 0),
            )
            for node in self.cluster.nodes
        ]
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self.cluster.cluster_id,
            nodes=nodes,
            topics=len(self.cluster.topics),
            controller_id=0 if self.cluster.controller_silence_ms == 0 else -1,
            controller_silence_ms=self.cluster.controller_silence_ms,
            voters=[admin_pb2.QuorumVoter(node_id=node, directory_id=bytes(16)) for node in self.cluster.voters],
            **self.cluster.described,
        )


class MemoryCluster:
    """Nodes that share one state."""

    def __init__(self, nodes: int) -> None:
        self.nodes = [MemoryNode(self, number) for number in range(nodes)]
        self.topics: dict[str, MemoryTopic] = {}
        self.groups = MemoryGroups(self)
        self.transactions = MemoryTransactions(self)
        self.users: dict[tuple[str, int], sasl_pb2.ScramCredentialUpsertion] = {}
        self.version = 0
        self.cluster_id = "memory"
        self.producer_ids = 0
        self.tls: ListenerTls | None = None
        self.controller_silence_ms = 0
        self.topic_warnings: list[str] = []
        self.created: list[admin_pb2.CreateTopic] = []
        """What was asked for with each topic that a client has created."""
        self.refused_for_nodes = 0
        """How often a topic was to have more replicas than nodes run."""
        self.described: dict[str, Any] = {}
        """Other fields of the cluster's description."""
        self.voters = [node.node_id for node in self.nodes]
        self.cordoned: set[int] = set()
        self.replicas_of: dict[int, int] = {}
        """The number of replicas that a node is said to have, by node."""
        self._ids = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.endpoint) for node in self.nodes)

    def create(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> MemoryTopic:
        self._ids += 1
        made = [MemoryPartition(leader=index % len(self.nodes)) for index in range(partitions)]
        topic = self.topics[name] = MemoryTopic(name, UUID(int=self._ids), made, configs or {})
        self.version += 1
        return topic

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.version += 1

    def lead(self, name: str, partition: int, node: int) -> None:
        """Elect a leader (-1: none)."""
        chosen = self.topics[name].partitions[partition]
        chosen.leader, chosen.leader_epoch = node, chosen.leader_epoch + 1
        self.version += 1
        chosen.grown.set()
        chosen.grown = asyncio.Event()

    def values(self, name: str, partition: int = 0) -> list[bytes | None]:
        """Return the values of a partition, in order."""
        log = b"".join(self.topics[name].partitions[partition].batches)
        return [record.value for batch in iter_batches(log) for record in batch.records()]

    def led(self, node: MemoryNode, entry: Any) -> MemoryPartition:
        """Return the partition of an entry if the node leads it in the entry's epoch; else raise the error."""
        topic = next((t for t in self.topics.values() if t.topic_id.bytes == entry.topic_id), None)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {entry.topic_id.hex()}")
        partition: MemoryPartition = topic.partitions[entry.partition]
        claimed = entry.leader_epoch if hasattr(entry, "records") else getattr(entry, "current_leader_epoch", -1)
        if partition.leader != node.node_id:
            at = self.nodes[partition.leader].endpoint if partition.leader >= 0 else Endpoint("", 0)
            leader = NodeAddress(NodeId(partition.leader), at, "", LeaderEpoch(partition.leader_epoch))
            raise NotLeaderOrFollower(
                f"{topic.name}-{entry.partition} is led by node {partition.leader}",
                leader=leader if partition.leader >= 0 else None,
            )
        if 0 <= claimed < partition.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {claimed} is over, it is {partition.leader_epoch}")
        if claimed > partition.leader_epoch:
            raise UnknownLeaderEpoch(f"epoch {claimed} has not begun, it is {partition.leader_epoch}")
        return partition

    def metadata(self, request: admin_pb2.GetMetadataRequest) -> admin_pb2.GetMetadataResponse:
        answer = admin_pb2.GetMetadataResponse(
            cluster_id=self.cluster_id, controller_id=0, metadata_offset=self.version
        )
        for node in self.nodes:
            if node.server is not None:
                answer.nodes.add(node_id=node.node_id, host=node.endpoint.host, port=node.endpoint.port)
        by_id = {topic.topic_id.bytes: name for name, topic in self.topics.items()}
        named = [by_id[topic_id] for topic_id in request.topic_ids if topic_id in by_id]
        for name in sorted(self.topics) if request.all_topics else [*request.topics, *named]:
            reported = answer.topics.add(name=name)
            topic = self.topics.get(name)
            if topic is None:
                reported.error.CopyFrom(
                    to_proto(UnknownTopicOrPartition(f"there is no topic {name!r}: create it first"))
                )
                continue
            reported.topic_id = topic.topic_id.bytes
            reported.configs.update(topic.configs)
            for index, partition in enumerate(topic.partitions):
                reported.partitions.add(
                    partition=index, leader=partition.leader, leader_epoch=partition.leader_epoch, replicas=[0], isr=[0]
                )
        return answer


def _refused(error: TidelogError) -> admin_pb2.ChangedTopic:
    return admin_pb2.ChangedTopic(error=to_proto(error))


@asynccontextmanager
async def memory_cluster(nodes: int = 1, tls: ListenerTls | None = None) -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster(nodes)
    cluster.tls = tls
    try:
        for node in cluster.nodes:
            await node.start()
        yield cluster
    finally:
        for node in cluster.nodes:
            await node.stop()


@contextmanager
def cluster_in_a_thread(tls: ListenerTls | None = None) -> Iterator[MemoryCluster]:
    """Two nodes on a loop in a thread of their own: for callers without a loop, and for other processes."""
    thread = LoopThread("memory cluster")
    context = memory_cluster(2, tls)
    try:
        cluster = thread.run(context.__aenter__())
        yield cluster
        thread.run(context.__aexit__(None, None, None))
    finally:
        thread.stop()
