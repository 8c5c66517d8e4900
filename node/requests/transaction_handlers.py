"""Handlers of the Transactions service: requests to the transaction coordinators of this node.

Not here: the coordinators (node/coordinators/transactions, replication/coordination/transactions), their lookup
(coordinator_handlers.py), markers and verification by leaders (marker_handlers.py, transactional_entries.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from node.api.table import (
    TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS,
    TRANSACTIONS_ADD_PARTITIONS_TO_TXN,
    TRANSACTIONS_DESCRIBE_TRANSACTIONS,
    TRANSACTIONS_HOLD_COMMITS,
)
from node.coordinators.node_listing import all_of, list_coordinators
from node.coordinators.re2_patterns import compile_pattern
from node.coordinators.transactions.transaction_coordinators import TransactionCoordinators
from node.requests.context import RequestContext
from node.requests.group_checks import (
    ensure_continues,
    ensure_distinct,
    ensure_group_id,
    ensure_producer,
    ensure_regex,
    ensure_short,
    ensure_transaction_version,
    ensure_transactional_id,
)
from node.requests.permitted import described, refused_topics
from node.runtime.limits import DESCRIBED_MAX, ensure_few
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import CommittedPartition, CommittedPartitions, NamedPartition
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddOrVerifyPartitions,
    AddOrVerifyPartitionsAnswer,
    AddPartitionsToTxn,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsAnswer,
    EndTxn,
    HeldCoordinator,
    HoldCommits,
    HoldCommitsAnswer,
    InitTransactionalProducer,
    ListTransactions,
    ListTransactionsAnswer,
    LocalHeld,
    LocalHold,
)
from tidelog.errors import NotCoordinator, OperationNotAttempted, TidelogError
from tidelog.security.acls import AclOperation, ResourceType
from tidelog.types import PartitionIndex

Answer = TypeVar("Answer")


class TransactionHandlers:
    """One method for each API of the Transactions service."""

    def __init__(
        self, coordinators: TransactionCoordinators, ensure_offsets_topic: Callable[[], Awaitable[object]]
    ) -> None:
        """ensure_offsets_topic: creates the internal topic of groups if it is missing; may raise
        CoordinatorNotAvailable, UnsupportedVersion."""
        self._coordinators, self._ensure_offsets_topic = coordinators, ensure_offsets_topic

    # --- producers ---

    async def init_producer_id(
        self, request: InitTransactionalProducer, context: RequestContext
    ) -> TransactionalProducer:
        """The producer id and epoch of a transactional id; fences the former producer."""
        ensure_transactional_id(request.transactional_id)
        ensure_transaction_version(request.transaction_version)
        ensure_continues(request)
        return await self._located(request.transactional_id, context, self._coordinators.next_producer(request))

    async def add_partitions_to_txn(self, request: AddPartitionsToTxn, context: RequestContext) -> CommittedPartitions:
        """Add partitions to the transaction: all of them, or none (version 1)."""
        ensure_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        ensure_few(request.partitions, "partitions")
        ensure_distinct(request.partitions)
        refused = refused_topics(context, TRANSACTIONS_ADD_PARTITIONS_TO_TXN, request.partitions)
        if refused:
            return CommittedPartitions(
                tuple(
                    CommittedPartition(each.topic, each.partition, refused.get(each.topic) or _not_attempted(each))
                    for each in request.partitions
                )
            )
        answer: CommittedPartitions = await self._ask(request.transactional_id, request, context)
        return answer

    async def add_offsets_to_txn(self, request: AddOffsetsToTxn, context: RequestContext) -> AddOffsetsToTxnAnswer:
        """Add the partition of a group's offsets to the transaction (version 1)."""
        ensure_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        ensure_group_id(request.group_id)
        # A producer may be the first that names the group: it looks the group's coordinator up only afterwards.
        await self._ensure_offsets_topic()
        answer: AddOffsetsToTxnAnswer = await self._ask(request.transactional_id, request, context)
        return answer

    async def end_txn(self, request: EndTxn, context: RequestContext) -> TransactionalProducer:
        """Commit or abort the transaction. The answer follows the commit of the decision, the markers come later."""
        ensure_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        ensure_transaction_version(request.transaction_version)
        return await self._located(request.transactional_id, context, self._coordinators.next_producer(request))

    # --- tools (KIP-664) ---

    async def list_transactions(self, request: ListTransactions, context: RequestContext) -> ListTransactionsAnswer:
        """The transactional ids that this node coordinates and that the caller may describe, with the coordinators that
        are listed and those that are not. Raises InvalidRegularExpression."""
        ensure_few(request.states, "states")
        ensure_few(request.producer_ids, "producer ids")
        for state in request.states:
            ensure_short(state, "state")
        matches = _matcher(request.transactional_id_pattern)
        listing = await list_coordinators(self._coordinators.runtime, request)
        shown = [
            each
            for answer in listing.answers
            for each in answer.transactions
            if matches(each.transactional_id) and _may_describe(context, each.transactional_id)
        ]
        shown.sort(key=lambda each: each.transactional_id)
        return ListTransactionsAnswer(
            tuple(shown), listing.coordinators, listing.partition_count, self._coordinators.max_timeout_ms
        )

    async def describe_transactions(
        self, request: DescribeTransactions, context: RequestContext
    ) -> DescribeTransactionsAnswer:
        """The state of transactional ids; an error in the place of those that have none here."""
        ensure_few(request.transactional_ids, "transactional ids", DESCRIBED_MAX)
        found = {each: await self._described(each, context) for each in dict.fromkeys(request.transactional_ids)}
        return DescribeTransactionsAnswer(tuple(found[each] for each in request.transactional_ids))

    async def _described(self, transactional_id: str, context: RequestContext) -> DescribedTransaction:
        try:
            ensure_transactional_id(transactional_id)
            refusal = context.authorizer.resource_refusal(
                context,
                TRANSACTIONS_DESCRIBE_TRANSACTIONS,
                AclOperation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transactional_id,
            )
            if refusal is not None:
                raise refusal
            asked = DescribeTransactions((transactional_id,))
            answer: DescribeTransactionsAnswer = await self._ask(transactional_id, asked, context)
        except TidelogError as error:
            return DescribedTransaction(transactional_id, error)
        [found] = answer.transactions
        return replace(found, partitions=described(context, found.partitions))

    # --- leaders ---

    async def add_or_verify_partitions(
        self, request: AddOrVerifyPartitions, context: RequestContext
    ) -> AddOrVerifyPartitionsAnswer:
        """Add partitions to transactions before their first batch, or confirm that they were added. Every error is that
        of a partition."""
        context.ensure_for_nodes(TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS)
        ensure_few([each for entry in request.transactions for each in entry.partitions], "partitions")
        return await self._coordinators.add_or_verify(request)

    async def hold_commits(self, request: HoldCommits, context: RequestContext) -> HoldCommitsAnswer:
        """Hold the commits of transactions with these topics, for a topic snapshot. Every error is that of a
        coordinator."""
        context.ensure_for_nodes(TRANSACTIONS_HOLD_COMMITS)
        ensure_few(request.partitions, "partitions")
        return HoldCommitsAnswer(tuple(await all_of(self._held(each, request) for each in request.partitions)))

    async def _held(self, partition: PartitionIndex, request: HoldCommits) -> HeldCoordinator:
        step = LocalHold(request.hold_id, request.step, request.topics, request.hold_ms)
        try:
            coordinator = self._coordinators.runtime.coordinator(partition)
            answer: LocalHeld = await coordinator.submit(step)
        except TidelogError as error:
            return HeldCoordinator(partition, error)
        return HeldCoordinator(partition, None, coordinator.leader_epoch, answer.held, answer.completing)

    # --- coordinators ---

    async def _ask(self, transactional_id: str, request: Any, context: RequestContext) -> Any:
        """The answer of the coordinator. NotCoordinator names the node of the coordinator, if it is known."""
        return await self._located(transactional_id, context, self._coordinators.submit(transactional_id, request))

    async def _located(self, transactional_id: str, context: RequestContext, work: Awaitable[Answer]) -> Answer:
        try:
            return await work
        except NotCoordinator as error:
            partition = self._coordinators.location.partition_of(transactional_id)
            raise self._coordinators.runtime.with_leader(error, partition, context.listener) from None


def _not_attempted(partition: NamedPartition) -> OperationNotAttempted:
    return OperationNotAttempted(
        f"{partition.topic}-{partition.partition} was not added to the transaction, because the caller may not write "
        "to another topic of the request"
    )


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a transactional id matches as a whole; an empty pattern matches all. Raises InvalidRegularExpression."""
    if not pattern:
        return lambda _transactional_id: True
    ensure_regex(pattern, "transactional ids")
    return compile_pattern(pattern)


def _may_describe(context: RequestContext, transactional_id: str) -> bool:
    return context.authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
