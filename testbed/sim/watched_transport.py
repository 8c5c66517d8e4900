"""The transport of a real client, with the rules of groups and transactions watching its requests and answers.

Committed offsets have their rules (watched_offsets.py). What is answered as decided must be in the committed log. A new
producer epoch fences the older instances of its transactional id.

Invariants: nothing that the client can see is changed, except the metadata text of committed offsets. Not here: the
rules (coordination.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.sim.commit_attempts import Place
from testbed.sim.coordinated_transactions import Instance
from testbed.sim.coordination import Coordination
from testbed.sim.loop import SimLoop
from testbed.sim.watched_offsets import WatchedOffsets
from tidelog.protocol import methods
from tidelog.protocol.network import MessageStream, Transport
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.types import Endpoint


class WatchedTransport:
    """See tidelog/protocol/network.py.

    name: of the client. given_to: up to which offset its application was given a partition, for an offset that it
    commits; None: not known. instance: of a transactional producer. resets: it is an operator's tool, which sets
    offsets to any value.
    """

    def __init__(
        self,
        inner: Transport,
        loop: SimLoop,
        coordination: Coordination,
        *,
        name: str,
        given_to: Callable[[Place, int], int | None] = lambda place, offset: None,
        instance: Instance | None = None,
        resets: bool = False,
    ) -> None:
        self._inner, self._loop, self._coordination = inner, loop, coordination
        self._name, self._given_to, self._instance, self._resets = name, given_to, instance, resets
        self._offsets = WatchedOffsets(coordination, loop, name)

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        sent_us, message = self._loop.now_us, self._sending(request)
        answer = await self._inner.call(to, method, message, timeout_ms=timeout_ms)
        if method == methods.GROUPS_OFFSET_FETCH:
            self._fetched(message, answer, sent_us)
        elif method in (methods.GROUPS_OFFSET_COMMIT, methods.GROUPS_TXN_OFFSET_COMMIT):
            self._committed(message, answer)
        elif method == methods.TRANSACTIONS_INIT_PRODUCER_ID:
            self._identified(answer)
        elif method == methods.TRANSACTIONS_END_TXN:
            self._ended(message)
            self._identified(answer)
        return answer

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        return await self._inner.open_stream(to, method)

    async def close(self) -> None:
        await self._inner.close()

    # --- requests ---

    def _sending(self, request: Any) -> Any:
        attempts = self._coordination.attempts
        match request:
            case groups_pb2.OffsetCommitRequest() | groups_pb2.TxnOffsetCommitRequest():
                return self._committing(request)
            case groups_pb2.OffsetDeleteRequest():
                for each in request.partitions:
                    attempts.may_delete(request.group_id, (each.topic, each.partition))
            case groups_pb2.DeleteGroupsRequest():
                for group_id in request.group_ids:
                    attempts.may_delete(group_id)
        return request

    def _committing(self, request: Any) -> Any:
        message = type(request)()
        message.CopyFrom(request)
        for each in message.partitions:
            place = each.topic, each.partition
            each.metadata = self._offsets.sending(
                request.group_id,
                place,
                each.offset,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                given_to=self._given_to(place, each.offset),
                resets=self._resets,
            )
        return message

    # --- answers ---

    def _fetched(self, request: Any, answer: Any, sent_us: int) -> None:
        for each in answer.partitions:
            if not each.HasField("error"):
                self._offsets.fetched(request.group_id, (each.topic, each.partition), each.offset, sent_us)

    def _committed(self, request: Any, answer: Any) -> None:
        for asked, each in zip(request.partitions, answer.partitions, strict=True):
            if not each.HasField("error"):
                place = asked.topic, asked.partition
                self._offsets.committed(request.group_id, place, asked.offset, asked.metadata)

    def _ended(self, request: Any) -> None:
        """What is answered as decided is in the committed log. Each transaction has an epoch of its own (KIP-890)."""
        decision = self._coordination.decisions.of((request.producer_id, request.producer_epoch + 1))
        if decision is not request.committed:
            self._offsets.report(
                f"{self._name} was told that {request.transactional_id} in epoch {request.producer_epoch} is "
                f"{'committed' if request.committed else 'aborted'}, and its log says {decision}"
            )

    def _identified(self, answer: Any) -> None:
        assert isinstance(answer, transactions_pb2.InitTransactionalProducerResponse | transactions_pb2.EndTxnResponse)
        if self._instance is not None:
            producer = answer.producer_id, answer.producer_epoch
            self._coordination.transactions.began(self._instance, producer, self._loop.now_us)
