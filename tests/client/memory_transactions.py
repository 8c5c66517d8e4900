"""A transaction coordinator in memory, for tests of the client: KIP-890's epochs, without storage or timers.

Markers are written at once, into the logs that all nodes share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from node.coordinators.re2_patterns import compile_pattern
from node.requests.context import RequestContext
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    RequestTimedOut,
    TidelogError,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnreadableCoordinatorRecord,
    UnsupportedVersion,
)
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import groups_pb2
from tidelog.protocol.v1 import transactions_pb2 as pb
from tidelog.records import EndTxnMarker, RecordBatch, control_batch

if TYPE_CHECKING:
    from tests.client.memory_cluster import MemoryCluster, MemoryNode, MemoryPartition


@dataclass
class MemoryTransactionalId:
    """One transactional id: its producer, and its open transaction."""

    producer_id: int
    epoch: int = 0
    former: tuple[int, bool] | None = None
    """Epoch and outcome of the transaction that ended last, until the next producer."""
    timeout_ms: int = 0
    state: str = "Empty"
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Partitions of the open transaction and their first offsets in it."""
    offsets: dict[str, list[groups_pb2.OffsetToCommit]] = field(default_factory=dict)
    """Offsets of the open transaction, by group."""

    @property
    def is_open(self) -> bool:
        return bool(self.partitions or self.offsets)


class MemoryTransactions:
    """All transactional ids of a cluster in memory. `node` is the coordinator of all.

    wish: called before each request of a producer; it may return an error to answer, or "lose": the request is applied,
    and the answer is RequestTimedOut.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.node = 0
        self.ids: dict[str, MemoryTransactionalId] = {}
        self.wish: Callable[[Any], object] = lambda request: None
        self.asked: list[Any] = []
        self.max_timeout_ms = 0
        """`transaction.max.timeout.ms`, as the nodes tell it; 0: they do not."""
        self.is_damaged = False
        """There is a second coordinator, on node 1, which cannot read its partition."""

    # --- the producer's requests ----------------------------------------------------------------------------------

    def initialize(self, request: pb.InitTransactionalProducerRequest) -> pb.InitTransactionalProducerResponse:
        known = self.ids.get(request.transactional_id)
        is_new = known is None
        if known is None:
            self.cluster.producer_ids += 1
            known = self.ids[request.transactional_id] = MemoryTransactionalId(self.cluster.producer_ids, epoch=-1)
        former = -1 if known.former is None else known.former[0]
        if not is_new and request.producer_epoch >= 0 and request.producer_epoch not in (known.epoch, former):
            raise ProducerFenced(f"epoch {request.producer_epoch} is over, it is {known.epoch}")
        if known.is_open:
            self.end_by_itself(request.transactional_id)
            raise ConcurrentTransactions("the open transaction is being aborted")
        known.epoch, known.former, known.state = known.epoch + 1, None, "Empty"
        known.timeout_ms = request.transaction_timeout_ms
        return pb.InitTransactionalProducerResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def end_txn(self, request: pb.EndTxnRequest) -> pb.EndTxnResponse:
        known = self.ids.get(request.transactional_id)
        if known is None or known.producer_id != request.producer_id:
            raise InvalidProducerIdMapping("another producer has the transactional id")
        if known.former is not None and known.former[0] == request.producer_epoch:
            if known.former[1] is not request.committed:
                raise TransactionAbortable("aborted") if request.committed else InvalidTxnState("committed")
        elif known.epoch != request.producer_epoch:
            raise ProducerFenced(f"epoch {request.producer_epoch} is over, it is {known.epoch}")
        elif request.committed and not known.is_open:
            raise InvalidTxnState("nothing was written")
        else:
            self._end(known, committed=request.committed)
        return pb.EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def end_by_itself(self, transactional_id: str) -> None:
        """Abort the open transaction, as after its timeout."""
        self._end(self.ids[transactional_id], committed=False)

    def _end(self, known: MemoryTransactionalId, *, committed: bool) -> None:
        known.former, known.epoch = (known.epoch, committed), known.epoch + 1
        known.state = "CompleteCommit" if committed else "CompleteAbort"
        end = EndTxnMarker(committed=committed, coordinator_epoch=0)
        for (topic, index), first in known.partitions.items():
            partition = self.cluster.topics[topic].partitions[index]
            partition.append(
                control_batch(
                    end, timestamp=1, producer_id=known.producer_id, producer_epoch=known.epoch, base_offset=0
                )
            )
            if not committed:
                partition.aborted.append((known.producer_id, first))
        if committed:
            for group, offsets in known.offsets.items():
                stored = self.cluster.groups.groups[group].offsets
                stored.update({(each.topic, each.partition): each for each in offsets})
        touched = [self.cluster.topics[topic].partitions[index] for topic, index in known.partitions]
        known.partitions, known.offsets = {}, {}
        for partition in touched:
            starts = [
                first
                for each in self.ids.values()
                for (topic, index), first in each.partitions.items()
                if self.cluster.topics[topic].partitions[index] is partition
            ]
            partition.open_since = min(starts, default=None)

    def verify(self, transactional_id: str, partition: MemoryPartition, records: Any) -> None:
        """A leader is about to append a batch. Raises the reason of a rejection."""
        batch = RecordBatch(records)
        known = self.ids[transactional_id]
        assert batch.is_transactional
        if batch.producer_epoch != known.epoch:
            raise ProducerFenced(f"epoch {batch.producer_epoch} is over, it is {known.epoch}")
        key = next(
            (name, index)
            for name, topic in self.cluster.topics.items()
            for index, each in enumerate(topic.partitions)
            if each is partition
        )
        known.partitions.setdefault(key, partition.end)
        known.state = "Ongoing"
        if partition.open_since is None:
            partition.open_since = partition.end

    def commit_offsets(self, request: groups_pb2.TxnOffsetCommitRequest) -> groups_pb2.TxnOffsetCommitResponse:
        known = self.ids[request.transactional_id]
        error = self.cluster.groups.committer_error(request)
        answer = groups_pb2.TxnOffsetCommitResponse()
        for each in request.partitions:
            result = answer.partitions.add(topic=each.topic, partition=each.partition)
            if error is not None:
                result.error.CopyFrom(to_proto(error))
            elif known.epoch != request.producer_epoch:
                result.error.CopyFrom(to_proto(ProducerFenced("the epoch is over")))
        if error is None:
            known.offsets.setdefault(request.group_id, []).extend(request.partitions)
        return answer


class MemoryTransactionsService:
    """The service of one node."""

    def __init__(self, node: MemoryNode) -> None:
        self._node = node

    @property
    def _transactions(self) -> MemoryTransactions:
        return self._node.cluster.transactions

    async def _serve(self, request: Any, handle: Callable[[Any], Any]) -> Any:
        transactions = self._transactions
        if transactions.node != self._node.node_id:
            raise NotCoordinator(f"node {self._node.node_id} is not the coordinator")
        transactions.asked.append(request)
        wish = transactions.wish(request)
        if isinstance(wish, TidelogError):
            raise wish
        answer = handle(request)
        if wish == "lose":
            raise RequestTimedOut("the answer is lost")
        return answer

    async def init_producer_id(self, request: Any, context: RequestContext) -> Any:
        return await self._serve(request, self._transactions.initialize)

    async def end_txn(self, request: Any, context: RequestContext) -> Any:
        return await self._serve(request, self._transactions.end_txn)

    async def list_transactions(self, request: pb.ListTransactionsRequest, context: RequestContext) -> Any:
        is_here = self._transactions.node == self._node.node_id
        known = self._transactions.ids if is_here else {}
        coordinators = [groups_pb2.ListedCoordinator()] if is_here else []
        if self._transactions.is_damaged and self._node.node_id == 1:
            unreadable = to_proto(UnreadableCoordinatorRecord("the record at offset 3 is malformed"))
            coordinators.append(groups_pb2.ListedCoordinator(partition=1, error=unreadable))
        matches = compile_pattern(request.transactional_id_pattern)
        return pb.ListTransactionsResponse(
            transactions=[
                pb.ListedTransaction(
                    transactional_id=name, producer_id=each.producer_id, state=each.state, start_ms=_start_of(each)
                )
                for name, each in sorted(known.items())
                if (not request.states or each.state in request.states)
                and (not request.producer_ids or each.producer_id in request.producer_ids)
                and (not request.transactional_id_pattern or matches(name))
            ],
            coordinators=coordinators,
            partition_count=1 + self._transactions.is_damaged,
            max_timeout_ms=self._transactions.max_timeout_ms,
        )

    async def describe_transactions(self, request: pb.DescribeTransactionsRequest, context: RequestContext) -> Any:
        answer = pb.DescribeTransactionsResponse()
        for name in request.transactional_ids:
            described = answer.transactions.add(transactional_id=name)
            known = self._transactions.ids.get(name)
            if self._transactions.node != self._node.node_id:
                described.error.CopyFrom(to_proto(NotCoordinator("elsewhere")))
            elif known is None:
                described.error.CopyFrom(to_proto(TransactionalIdNotFound(f"there is no transactional id {name!r}")))
            else:
                described.state, described.producer_id, described.producer_epoch = (
                    known.state,
                    known.producer_id,
                    known.epoch,
                )
                described.transaction_timeout_ms, described.start_ms = known.timeout_ms, _start_of(known)
                for topic, index in known.partitions:
                    described.partitions.add(topic=topic, partition=index)
        return answer

    def __getattr__(self, name: str) -> Any:
        async def refuse(request: Any, context: RequestContext) -> Any:
            raise UnsupportedVersion(f"a coordinator in memory does not do {name}")

        return refuse


def _start_of(known: MemoryTransactionalId) -> int:
    return 1_700_000_000_000 if known.is_open else -1
