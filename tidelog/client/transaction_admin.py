"""Admin calls about transactions: list, describe, find hanging ones, end them (KIP-664).

A transaction hangs if it is open in a partition although its coordinator does not know that: no timeout ends it, and
read_committed consumers wait at its first offset. With transaction version 2 the protocol excludes that; producers of
older versions can cause it.
Source: KIP-664; Kafka's TransactionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.client.admin_calls import AdminCalls
from tidelog.client.coordinator_listing import OnMissing
from tidelog.client.coordinators import CoordinatorKind
from tidelog.client.offset_lookup import ask_leaders
from tidelog.client.options import text, topic_name, topic_partition, topic_partitions, whole_number
from tidelog.client.retries import BACKOFF_MS
from tidelog.client.transaction_core import PreparedTransaction
from tidelog.client.transactions import end_request, init_request
from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import ConcurrentTransactions, InvalidRequest, RequestTimedOut, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.rpc import Method, Request
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import data_pb2, transactions_pb2
from tidelog.types import (
    INT64_MAX,
    NO_NODE,
    TRANSACTIONS_TOPIC,
    Endpoint,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicPartition,
)

MAX_TIMEOUT_MS: Final = 900_000
"""Default of the nodes' `transaction.max.timeout.ms`, for nodes that do not report theirs."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a listing."""

    transactional_id: str
    coordinator: NodeId
    producer_id: ProducerId
    state: str
    start_ms: Millis
    """When the open transaction began (since 1970); -1 if none is open."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its present transaction."""

    transactional_id: str
    coordinator: NodeId
    coordinator_epoch: int
    state: str
    producer_id: ProducerId
    producer_epoch: int
    transaction_timeout_ms: int
    start_ms: Millis
    """When the open transaction began (since 1970); -1 if none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction. A partition of `__consumer_offsets` stands for offsets of groups."""


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """The producers of a partition, by producer id. No transaction is open below the last stable offset."""

    partition: TopicPartition
    last_stable_offset: Offset
    producers: tuple[KnownProducer, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition."""

    partition: TopicPartition
    start_offset: Offset
    producer_id: ProducerId
    producer_epoch: int
    last_write_ms: Millis
    """Timestamp of its last record."""
    description: TransactionDescription | None
    """The transactional id, from its coordinator; None if no coordinator has one with this producer id."""
    is_hanging: bool
    """The coordinator does not know that the transaction is open in this partition."""


class TransactionAdmin(AdminCalls):
    """The part of Admin for transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms_min: int = -1,
        pattern: str = "",
        on_missing: OnMissing | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted. All that existed before the call are included.

        states: only those in one of these states, for example "Ongoing".
        producer_ids: only those of one of these producers.
        duration_ms_min: only those whose transaction has been open for at least this time.
        pattern: only ids that match this regular expression (RE2) as a whole; empty: all.
        on_missing: called with an error for each partition of `__transaction_state` whose ids are missing; the others
        are returned. None: the call fails.
        Raises UnreadableCoordinatorRecord if the ids of a coordinator cannot be read, InvalidRegularExpression; after
        `patience_ms`, at most `request_timeout_ms`, the error of a node that did not answer, or
        CoordinatorNotAvailable.
        """
        request = transactions_pb2.ListTransactionsRequest(
            states=[text("a state", state) for state in states],
            producer_ids=[whole_number("a producer id", each, least=0, most=INT64_MAX) for each in producer_ids],
            duration_ms_min=whole_number("duration_ms_min", duration_ms_min, most=INT64_MAX),
            transactional_id_pattern=text("pattern", pattern) if pattern else "",
        )
        answers = await self._listings(request, on_missing)
        listed = {
            each.transactional_id: read_message(TransactionListing, each, coordinator=node)
            for node, answer in answers.items()
            for each in answer.transactions
        }
        return [listed[transactional_id] for transactional_id in sorted(listed)]

    async def transaction_max_timeout_ms(self) -> int:
        """Return the largest `transaction.max.timeout.ms` of the nodes: transactions that are open for longer hang.
        Raises as `list_transactions`."""
        nothing = transactions_pb2.ListTransactionsRequest(duration_ms_min=INT64_MAX)
        answers = await self._listings(nothing, on_missing=lambda _error: None)
        return max((each.max_timeout_ms for each in answers.values()), default=0) or MAX_TIMEOUT_MS

    async def _listings(
        self, request: transactions_pb2.ListTransactionsRequest, on_missing: OnMissing | None
    ) -> dict[NodeId, transactions_pb2.ListTransactionsResponse]:
        """The answers of all nodes."""
        return await self._list_all(
            TRANSACTIONS_TOPIC, methods.TRANSACTIONS_LIST_TRANSACTIONS, request, on_missing, self._limit_ms
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | TidelogError]:
        """Return the description of each transactional id, or why there is none: TransactionalIdNotFound,
        TransactionalIdAuthorizationFailed, the last error after `request_timeout_ms`."""
        names = [text("a transactional id", name) for name in transactional_ids]
        nodes = {endpoint: node for node, endpoint in (await self._refreshed_nodes()).items()}

        async def ask(to: Endpoint, names: list[str]) -> dict[str, TransactionDescription | TidelogError]:
            request = transactions_pb2.DescribeTransactionsRequest(transactional_ids=names)
            answer = await self._cluster.transport.call(
                to, methods.TRANSACTIONS_DESCRIBE_TRANSACTIONS, request, timeout_ms=self._timeout_ms
            )
            node = nodes.get(to, NO_NODE)
            return {each.transactional_id: _described(each, node) for each in answer.transactions}

        return await self._coordinators.call_each(
            CoordinatorKind.TRANSACTION, names, ask, timeout_ms=min(self._timeout_ms, self._patience_ms)
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, PartitionProducers]:
        """Return the producers that the leaders of these partitions know. Raises UnknownTopicOrPartition,
        TopicAuthorizationFailed; the last error after `request_timeout_ms`."""
        wanted = topic_partitions(partitions)
        found: dict[TopicPartition, PartitionProducers] = {}

        def take(key: TopicPartition, answer: data_pb2.DescribedProducers) -> bool:
            found[key] = read_message(PartitionProducers, answer, partition=key)
            return True

        method, timeout_ms = methods.DATA_DESCRIBE_PRODUCERS, self._limit_ms
        await ask_leaders(self._cluster, wanted, method, lambda _key, _view: {}, take, timeout_ms=timeout_ms)
        return {key: found[key] for key in wanted}

    async def open_transactions(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> list[OpenTransaction]:
        """Return the transactions that are open in these partitions, with the descriptions of their transactional ids,
        sorted by partition and first offset. The first one of a partition begins at its last stable offset."""
        described = await self.describe_producers(partitions)
        active = [
            (key, producer)
            for key, each in described.items()
            for producer in sorted(each.producers, key=lambda producer: producer.transaction_start)
            if producer.transaction_start >= 0
        ]
        ids = sorted({producer.producer_id for _, producer in active})
        listed = await self.list_transactions(producer_ids=ids) if ids else []
        names = {each.producer_id: each.transactional_id for each in listed}
        descriptions = await self.describe_transactions(names.values())
        found = []
        for key, producer in active:
            description = descriptions.get(names.get(producer.producer_id, ""))
            if isinstance(description, TidelogError):
                raise description
            is_known = description is not None and key in description.partitions
            found.append(
                OpenTransaction(
                    key,
                    producer.transaction_start,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_timestamp_ms,
                    description,
                    is_hanging=not is_known,
                )
            )
        return await self._still_open(found)

    async def _still_open(self, found: list[OpenTransaction]) -> list[OpenTransaction]:
        """Leave out transactions that ended while their coordinators were queried: they would look like hanging
        ones."""
        hanging = list(dict.fromkeys(each.partition for each in found if each.is_hanging))
        if not hanging:
            return found
        still = {
            (key, producer.producer_id, producer.transaction_start)
            for key, each in (await self.describe_producers(hanging)).items()
            for producer in each.producers
        }
        return [
            each
            for each in found
            if not each.is_hanging or (each.partition, each.producer_id, each.start_offset) in still
        ]

    async def find_hanging_transactions(
        self, topics: Iterable[str] | None = None, *, max_timeout_ms: int | None = None
    ) -> list[OpenTransaction]:
        """Return the transactions that are open in a partition, had no write for `max_timeout_ms`, and are unknown to
        their coordinator. topics: None for all. max_timeout_ms: None for the nodes' `transaction.max.timeout.ms`."""
        if max_timeout_ms is not None:
            max_timeout_ms = whole_number("max_timeout_ms", max_timeout_ms, least=0)
        wanted = None if topics is None else [topic_name(topic) for topic in topics]
        answer = await self._metadata(all_topics=wanted is None, topics=wanted or ())
        partitions = []
        for topic in answer.topics:
            if error := error_of(topic):
                raise error
            partitions += [
                TopicPartition(topic.name, PartitionIndex(each.partition))
                for each in topic.partitions
                if each.leader >= 0
            ]
        found = await self.open_transactions(sorted(partitions)) if partitions else []
        hanging = [each for each in found if each.is_hanging]
        if max_timeout_ms is None:
            max_timeout_ms = await self.transaction_max_timeout_ms() if hanging else 0
        silent_since = self._clock.wall_ms() - max_timeout_ms
        return [each for each in hanging if each.last_write_ms <= silent_since]

    async def abort_hanging_transaction(
        self, partition: TopicPartition | tuple[str, int], start_offset: int
    ) -> KnownProducer:
        """Abort the transaction that begins at this offset, in this partition only, and return its producer. It must
        hang: if a coordinator knows it, it may be committed in other partitions at the same time.

        Raises InvalidRequest if no transaction begins there; RequestTimedOut or ConnectionLost if the outcome is
        unknown (`describe_producers` shows it).
        """
        key = topic_partition(partition)
        start_offset = whole_number("start_offset", start_offset, least=0, most=INT64_MAX)
        producers = (await self.describe_producers([key]))[key].producers
        chosen = next((each for each in producers if each.transaction_start == start_offset), None)
        if chosen is None:
            begin = sorted(each.transaction_start for each in producers if each.transaction_start >= 0)
            known = f"transactions begin at {begin}" if begin else "none is open"
            raise InvalidRequest(f"no open transaction of {key} begins at offset {start_offset}: {known}")
        endpoint, topic_id = await self._leader_of(key, self._timeout_ms)
        request = data_pb2.AbortTransactionRequest(
            topic_id=topic_id,
            partition=key.partition,
            producer_id=chosen.producer_id,
            producer_epoch=chosen.producer_epoch,
            transaction_start=chosen.transaction_start,
        )
        await self._cluster.transport.call(
            endpoint, methods.DATA_ABORT_TRANSACTION, request, timeout_ms=self._timeout_ms
        )
        return chosen

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction of a transactional id and fence its producer; return the description from before.
        The producer gets ProducerFenced; the application can continue with a new one.

        Raises TransactionalIdNotFound, TransactionalIdAuthorizationFailed; the last error after `request_timeout_ms`.
        """
        name = text("transactional_id", transactional_id)
        before = (await self.describe_transactions([name]))[name]
        if isinstance(before, TidelogError):
            raise before
        request = init_request(name, before.transaction_timeout_ms)
        await self._end(name, methods.TRANSACTIONS_INIT_PRODUCER_ID, request)
        return before

    async def end_prepared_transaction(self, prepared: PreparedTransaction, *, committed: bool) -> None:
        """Commit or abort a transaction that its producer has left open (`Transaction.prepare`). A second, equal call
        has the same outcome as the first one.

        Raises ProducerFenced or InvalidProducerIdMapping if a newer producer has the transactional id: the transaction
        is aborted, unless an earlier call ended it. TransactionAbortable: it was aborted, by its timeout or by a call.
        InvalidTxnState: it was committed, and cannot be aborted. The last error after `request_timeout_ms`: the outcome
        is unknown then.
        """
        request = end_request(prepared, committed=committed)
        await self._end(prepared.transactional_id, methods.TRANSACTIONS_END_TXN, request)

    async def _end(self, transactional_id: str, method: Method[Request, Any], request: Request) -> None:
        """Ask the coordinator to end a transaction; ask again while it is still completing an earlier one."""

        retries = self._cluster.retries(self._limit_ms)
        while True:
            try:
                await self._coordinators.call(
                    CoordinatorKind.TRANSACTION, transactional_id, method, request, timeout_ms=retries.left_ms
                )
                return
            except (ConcurrentTransactions, RequestTimedOut) as error:
                await retries.pause(error)

    async def _leader_of(self, key: TopicPartition, timeout_ms: int) -> tuple[Endpoint, bytes]:
        """Query a node for the leader's address and the topic's id."""
        await self._cluster.wait_topic(key.topic, timeout_ms=timeout_ms)
        endpoint, _ = self._cluster.view.leader(key)
        return endpoint, self._cluster.view.topic(key.topic).topic_id.bytes

    @property
    def _limit_ms(self) -> int:
        return min(self._timeout_ms, max(self._patience_ms, BACKOFF_MS))


def _described(
    each: transactions_pb2.DescribedTransaction, coordinator: NodeId
) -> TransactionDescription | TidelogError:
    partitions = tuple(sorted(read_message(TopicPartition, one) for one in each.partitions))
    return error_of(each) or read_message(TransactionDescription, each, coordinator=coordinator, partitions=partitions)
