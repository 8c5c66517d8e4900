"""The group of a streaming query: its pin, its progress, and that no other query has the same identity.

Offsets are committed in transactions of the query's transactional id. The newest query with an identity gets it, which
fences an older one: a restart need not wait for the end of a query that has crashed. Progress is committed beside the
query, since nothing depends on it; what is seen later is only that the query was fenced.
Not here: what the entries say (query_identity.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.machine import start_root_task
from tidelog.client.producer import Producer
from tidelog.client.query_notes import EntryKind, transactional_id_of
from tidelog.client.transaction import Transaction
from tidelog.clock import Clock, MachineClock
from tidelog.errors import ProducerFenced, TidelogError, TransactionalIdNotFound, TransactionOutcomeUnknown
from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.streaming.query_identity import group_entries, pinned_offset
from tidelog.spark.streaming.stream_cluster import StreamAdmin
from tidelog.spark.streaming.stream_offsets import StreamOffset
from tidelog.types import TopicPartition

_log = logging.getLogger("tidelog.spark")

TRANSACTION_TIMEOUT_MS: Final = 30_000
"""A transaction contains offsets only and ends at once."""
OUTCOME_EPOCHS: Final = 1
"""By how much the end of a transaction raises the epoch of its producer (KIP-890)."""
TURN_S: Final = 1
"""How long a call waits for a transaction, which usually takes some milliseconds."""
CLOSE_S: Final = 5
"""How long the last progress may take when the query ends."""
PAUSE_S: Final = 1
"""Between two commits: small batches take a fraction of it, and each transaction takes time of three nodes."""
COMMIT_AGE_MS: Final = 86_400_000
"""An offset that does not move is committed again after a day: nodes forget it after `offsets.retention.minutes`."""


class QueryGroup:
    """The committed offsets of one running query. Use it on one event loop."""

    def __init__(
        self,
        admin: StreamAdmin,
        connection: ConnectionOptions,
        cluster_id: str,
        group_id: str,
        digest: str,
        clock: Clock | None = None,
    ) -> None:
        self.group_id = group_id
        self._admin, self._connection = admin, connection
        self._cluster_id, self._digest = cluster_id, digest
        self._clock: Clock = clock or MachineClock()
        self._producer: Producer | None = None
        self._last: Transaction | None = None
        """The last transaction: it knows the identity of the producer."""
        self._turn = asyncio.Lock()
        """Held by the transaction that is under way."""
        self._is_settled = True
        """Whether the producer knows its identity: the last transaction did not fail."""
        self._is_unknown = False
        """Whether the outcome of the last transaction is unknown: its producer cannot continue."""
        self._fenced: ProducerFenced | None = None
        self._wanted: tuple[StreamOffset, EntryKind] | None = None
        """What is to be committed."""
        self._noted: tuple[StreamOffset, EntryKind] | None = None
        self._noted_at = self._clock.monotonic_ms()
        self._is_wanted = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over the identity: a query that has it is fenced, and a transaction that it left open is aborted."""
        await self._take_over()
        self._task = start_root_task(self._run(), name="tidelog stream progress")

    async def find_pin(self) -> StreamOffset | None:
        """The pin of an earlier attempt that made no progress; None if there is none. Raises ProducerFenced."""
        self._ensure_owner()
        entries = await self._admin.list_group_offsets(self.group_id)
        return pinned_offset(entries, self._digest, self._cluster_id)

    async def pin(self, chosen: StreamOffset) -> None:
        """Commit where the query begins. Raises ProducerFenced; TransactionOutcomeUnknown and others if it cannot be
        committed."""
        self._ensure_owner()
        async with self._turn:
            await self._commit(chosen, "pinned")
        self._noted, self._noted_at = (chosen, "pinned"), self._clock.monotonic_ms()

    def note_progress(self, offset: StreamOffset) -> None:
        """The query has processed everything below this offset: commit it beside the query. Raises ProducerFenced."""
        self._note(offset, "progress")

    def keep_pin(self, offset: StreamOffset) -> None:
        """The query still waits at its pin. Raises ProducerFenced."""
        self._note(offset, "pinned")

    def _note(self, offset: StreamOffset, kind: EntryKind) -> None:
        """Commit the offset beside the query if it is another one, or before the nodes forget it."""
        self._ensure_owner()
        now = self._clock.monotonic_ms()
        if (offset, kind) != self._noted or now - self._noted_at >= COMMIT_AGE_MS:
            self._noted, self._noted_at = (offset, kind), now
            self._wanted = (offset, kind)
            self._is_idle.clear()
            self._is_wanted.set()

    async def check_owner(self) -> None:
        """Raises ProducerFenced if another query has taken over the identity. A transaction that takes long is not
        waited for: it finds it out by itself."""
        self._ensure_owner()
        try:
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            return
        try:
            await self._check_owner()
        finally:
            self._turn.release()

    async def flush(self) -> None:
        """Wait for the progress that was noted, at most for some seconds: the query ends."""
        self._is_ending.set()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._is_idle.wait()
        except TimeoutError:
            _log.warning("group %r: the last progress is not committed yet", self.group_id)

    async def close(self) -> None:
        """End; progress that is not committed within some seconds is left out."""
        if self._task is not None:
            await self.flush()
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._producer is not None:
            await self._producer.close()

    def _ensure_owner(self) -> None:
        if self._fenced is not None:
            raise ProducerFenced(self._fenced.message) from self._fenced

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                await self._commit_beside(*wanted)
            if self._wanted is None:
                self._is_idle.set()
            if wanted is not None and wanted[1] == "pinned":
                continue  # progress replaces it at once
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await self._is_ending.wait()

    async def _commit_beside(self, offset: StreamOffset, kind: EntryKind) -> None:
        async with self._turn:
            try:
                if not self._is_settled:
                    await self._settle()
                await self._commit(offset, kind)
            except ProducerFenced:
                return  # `_fenced` says it to the next call
            except TidelogError as error:
                self._is_settled = False
                self._is_unknown = self._is_unknown or isinstance(error, TransactionOutcomeUnknown)
                _log.warning(
                    "group %r: progress was not committed, and the lag shows too much until the next batch: %s",
                    self.group_id,
                    error.message,
                )

    async def _commit(self, offset: StreamOffset, kind: EntryKind) -> None:
        entries = group_entries(offset, kind, self._digest, self._clock.wall_ms())
        if entries:
            await self._transact(entries)

    async def _transact(self, entries: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit entries in a transaction; an empty one asks for the identity of the producer if it has none."""
        assert self._producer is not None, "the group is started"
        try:
            async with self._producer.transaction() as self._last:
                await self._last.send_offsets(dict(list(entries.items())), self.group_id)
        except TidelogError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, ProducerFenced):
                cause = cause.__cause__
            if cause is None:
                raise
            raise self._note_fenced() from error

    async def _take_over(self) -> None:
        connection = self._connection
        self._producer = Producer(
            connection.bootstrap,
            transactional_id=transactional_id_of(self.group_id),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            **connection.of_client,
        )
        await self._producer.start()
        await self._transact({})

    async def _check_owner(self) -> None:
        """Ask the coordinator whether the producer is the newest one of its transactional id."""
        if not self._is_settled:
            await self._settle()
            return
        assert self._last is not None, "the group is started"
        name = transactional_id_of(self.group_id)
        producer_id, epoch = self._last.identity
        found = (await self._admin.describe_transactions([name]))[name]
        if isinstance(found, TransactionalIdNotFound):
            return  # it has expired: it was not used for days
        if isinstance(found, TidelogError):
            _log.warning(
                "group %r: it is not known whether another query has taken over: %s", self.group_id, found.message
            )
        elif (found.producer_id, found.producer_epoch) > (producer_id, epoch):
            raise self._note_fenced()

    async def _settle(self) -> None:
        """After a transaction that failed: get the identity of the producer again, which only the newest one can. After
        one with an unknown outcome only a new producer can, and it would fence a newer query; so it is created unless
        the coordinator already knows of one."""
        assert self._producer is not None and self._last is not None, "the group is started"
        try:
            if self._is_unknown:
                name = transactional_id_of(self.group_id)
                producer_id, epoch = self._last.identity
                found = (await self._admin.describe_transactions([name]))[name]
                if isinstance(found, TidelogError):
                    raise found
                if (found.producer_id, found.producer_epoch) > (producer_id, epoch + OUTCOME_EPOCHS):
                    raise self._note_fenced()
                await self._producer.close()
                await self._take_over()
            else:
                await self._transact({})
        except ProducerFenced:
            raise
        except TidelogError as error:
            _log.warning("group %r: its transactions cannot continue yet: %s", self.group_id, error.message)
        else:
            self._is_settled, self._is_unknown = True, False

    def _note_fenced(self) -> ProducerFenced:
        self._fenced = ProducerFenced(
            f"another query with the identity {self.group_id!r} has started and continues; this one ends. It runs with "
            'the same checkpoint or a copy of it, or sets the same option "tidelog.group.id": give each query its own'
        )
        return self._fenced
