"""The transactional batches of a produce request, which are verified before they are appended (KIP-890).

Invariants:
  1. The batches of one producer and partition are appended in the order of arrival. If one cannot be verified, the
     following ones of its transaction are refused with the same error.
  2. Batches of other producers and partitions do not wait for them.
  3. A transactional batch is accepted only from a caller with permission to write with its transactional id.
Not here: the request to the coordinator (node/coordinators/transactions/transaction_verifier.py), appends
(produce_session.py). Source: KIP-890; Kafka's KafkaApis.handleProduceRequest and ReplicaManager.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from node.api.table import DATA_PRODUCE
from node.coordinators.transactions.transaction_verifier import TransactionOf, TransactionVerifier
from node.replicas.replica import Replica
from node.requests.context import RequestContext
from node.requests.group_checks import ensure_transaction_version
from replication.coordination.group_requests import NamedPartition
from storage.log.validation import is_transactional
from storage.producers.verification import NOTHING_VERIFIED, UNVERIFIED, VERSION_2, TransactionCheck
from tidelog.errors import InvalidRequest, TidelogError, UnsupportedVersion
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Inspected
from tidelog.records.v2.header import HEADER_BYTES, PRODUCER_AT
from tidelog.security.acls import AclOperation, ResourceType
from tidelog.types import NO_PRODUCER_ID, Acks, Millis, PartitionKey, ProducerId
from tidelog.values import dataclass

_PRODUCER: Final = Struct(">qh")


@dataclass(slots=True)
class EntryToAppend:
    """One batch of a request."""

    partition: Replica
    entry: ProduceBatch
    acks: Acks
    deadline: Millis
    """Time limit of its acknowledgement."""
    inspected: Inspected | None
    """The result of `inspect_sent`; None if the append checks the records itself."""
    transaction: TransactionOf | None = None
    """Set if the batch is transactional and must be verified."""


class TransactionalEntries:
    """The batches of one request that wait to be verified."""

    def __init__(self, context: RequestContext, verifier: TransactionVerifier | None) -> None:
        """verifier: None: no transaction is verified."""
        self._context, self._verifier = context, verifier
        self._request: ProduceRequest | None = None
        self._refusal: TidelogError | None = None
        self.waiting: dict[tuple[PartitionKey, ProducerId], list[EntryToAppend]] = {}
        """By partition and producer, in the order of arrival."""

    def check(self, request: ProduceRequest, item: EntryToAppend) -> TransactionCheck | None:
        """The check with which the batch can be appended now; None if it waits. Raises the reason if it is refused."""
        records = item.entry.records
        transactional = is_transactional(records)
        if transactional:
            self._ensure_permitted(request)
            if self._verifier is None or not self._verifier.asks_before(request.transaction_version):
                return TransactionCheck(request.transaction_version)
        elif not self.waiting:
            return UNVERIFIED
        producer_id, epoch = _PRODUCER.unpack_from(records, PRODUCER_AT) if len(records) >= HEADER_BYTES else (-1, -1)
        if transactional:
            item.transaction = TransactionOf(
                request.transactional_id, producer_id, epoch, request.transaction_version < VERSION_2
            )
        before = self.waiting.get((item.partition.key, producer_id))
        if before is not None and producer_id != NO_PRODUCER_ID:
            before.append(item)
            return None
        if not transactional:
            return UNVERIFIED
        item.partition.leading_in(item.entry.leader_epoch)
        guard = item.partition.log.producers.begin_verification(records)
        if guard is NOTHING_VERIFIED:
            return TransactionCheck(request.transaction_version, guard)
        self.waiting[item.partition.key, producer_id] = [item]
        return None

    def take(self) -> list[list[EntryToAppend]]:
        """The batches that wait, for each partition and producer."""
        waiting, self.waiting = self.waiting, {}
        return list(waiting.values())

    async def verified(self, item: EntryToAppend) -> TransactionCheck:
        """The check with which a batch that waited can be appended at once. Raises the reason if it is refused."""
        if item.transaction is None:
            return UNVERIFIED
        assert self._verifier is not None, "nothing waits without verification"
        name = item.partition.name
        guard = await self._verifier.verify(
            item.transaction,
            NamedPartition(name.topic, name.partition),
            lambda: item.partition.log.producers.begin_verification(item.entry.records),
            item.deadline,
        )
        return TransactionCheck(1 if item.transaction.verify_only else VERSION_2, guard)

    def _ensure_permitted(self, request: ProduceRequest) -> None:
        """Raises TransactionalIdAuthorizationFailed, or InvalidRequest for a request that cannot have transactional
        batches."""
        if request is not self._request:
            self._request, self._refusal = request, self._refusal_of(request)
        if self._refusal is not None:
            raise self._refusal

    def _refusal_of(self, request: ProduceRequest) -> TidelogError | None:
        refusal = self._context.authorizer.resource_refusal(
            self._context, DATA_PRODUCE, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        if refusal is not None or self._verifier is None or not self._verifier.asks_before(request.transaction_version):
            return refusal
        if not request.transactional_id:
            return InvalidRequest(
                "a transactional batch was sent without the transactional id of its producer: set transactional_id, "
                "or send the batch outside of a transaction"
            )
        try:
            ensure_transaction_version(request.transaction_version)
        except UnsupportedVersion as error:
            return error
        return None
