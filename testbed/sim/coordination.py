"""The rules of groups and transactions over a whole world: they follow what is committed to all logs.

Each committed batch of an internal topic is replayed (group_log.py, transaction_log.py); each marker is compared with
its coordinator's decision and with the transactions of the clients.

Not here: the rules themselves, and what clients are given (owners.py, member_readings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from replication.coordination.group_records import GROUP_RECORDS
from replication.coordination.transaction_records import TRANSACTION_RECORDS
from testbed.sim.commit_attempts import CommitAttempts, Place
from testbed.sim.coordinated_transactions import CoordinatedTransactions
from testbed.sim.exactly_once import ExactlyOnce
from testbed.sim.group_log import GroupLog
from testbed.sim.ledger import Ledger, is_commit
from testbed.sim.transaction_log import Decisions, Marker, TransactionLog
from testbed.sim.workload import Sent
from tidelog.records import RecordBatch

GROUPS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
SCRIPTED_FROM: Final = 1_000_000_000
"""Producer ids from here on belong to scripted coordinators (transactions.py), which have no log."""


def place_of(name: str) -> Place:
    """The partition with that name."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


class Coordination:
    """All coordinators of a world, as the committed logs have them.

    topic_name, exists: of the newest metadata. has_marker: whether a marker is committed in a partition, or the
    partition does not exist. now_us: the virtual time.
    """

    def __init__(
        self,
        *,
        topic_name: Callable[[UUID], str | None] = lambda topic_id: None,
        exists: Callable[[Place], bool] = lambda place: True,
        has_marker: Callable[[Place, Marker], bool] = lambda place, marker: True,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self.attempts = CommitAttempts()
        self.decisions = Decisions()
        self.transactions = CoordinatedTransactions()
        self.pipelines: list[ExactlyOnce] = []
        self.group_logs: dict[str, GroupLog] = {}
        self.transaction_logs: dict[str, TransactionLog] = {}
        self._topic_name, self._exists, self._has_marker, self._now_us = topic_name, exists, has_marker, now_us

    def committed(self, ledger: Ledger, batch: RecordBatch, decided: Sequence[int], sent: Iterable[Sent]) -> None:
        """A batch is committed. decided: the offsets of the transaction that it ends, of which clients sent `sent`.
        Raises Violation."""
        topic = place_of(ledger.name)[0]
        if batch.is_control:
            self._marked(ledger, batch, decided, list(sent))
        elif topic == GROUPS:
            records = [GROUP_RECORDS.decode(record.key, record.value) for record in batch.records()]
            producer_id = int(batch.producer_id) if batch.is_transactional else None
            self.group_log(ledger.name).replayed(int(batch.base_offset), records, producer_id)
        elif topic == TRANSACTIONS:
            log = self.transaction_log(ledger.name)
            for record in batch.records():
                log.replayed(TRANSACTION_RECORDS.decode(record.key, record.value))

    def _marked(self, ledger: Ledger, batch: RecordBatch, decided: Sequence[int], sent: list[Sent]) -> None:
        committed, producer_id = is_commit(batch), int(batch.producer_id)
        if self.transaction_logs and producer_id < SCRIPTED_FROM:
            marker = producer_id, int(batch.producer_epoch)
            self.decisions.written(place_of(ledger.name), marker, committed=committed)
        self.transactions.decided(ledger, sent, committed=committed)
        if committed:
            for pipeline in self.pipelines:
                pipeline.decided(ledger, decided)
        if ledger.name in self.group_logs:
            self.group_logs[ledger.name].ended(producer_id, committed=committed)

    def group_log(self, name: str) -> GroupLog:
        """The replay of a partition of `__consumer_offsets`."""
        found = self.group_logs.get(name)
        if found is None:
            found = self.group_logs[name] = GroupLog(
                name, self.attempts, topic_name=self._topic_name, exists=self._exists, now_us=self._now_us
            )
        return found

    def transaction_log(self, name: str) -> TransactionLog:
        """The replay of a partition of `__transaction_state`."""
        found = self.transaction_logs.get(name)
        if found is None:
            found = self.transaction_logs[name] = TransactionLog(name, self.decisions, has_marker=self._has_marker)
        return found

    def log_of(self, group: str) -> GroupLog | None:
        """The log that has the group; None if none has it yet."""
        return next((log for log in self.group_logs.values() if group in log.groups), None)
