"""Unclean elections of damaged replicas (design, section 4, rule 6): the loss is accepted, and the replica leads with
the readable records of its log.

Invariants: a damaged replica is accepted only for a partition without a leader, if it was the last known leader or is
in neither set; nothing is removed from the log before a copy is kept, and its path is in the node's log.
Not here: the election (replication/controller/unclean.py), the files (storage/directory/salvage.py), roles
(replica_manager.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from node.replicas.replica import Replica
from replication.controller.image import ClusterImage, PartitionState
from storage.directory.lost_records import remove_lost_records
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE, NodeId, PartitionKey

_log = logging.getLogger("node.replicas")

Reopened: TypeAlias = Callable[[Replica, Log], None]
"""Called with the log after a repair: a new one without the lost records, or the old one if the repair failed."""


class Salvaging:
    """The damaged replicas of one node that wait for an unclean election, or are under repair after one."""

    def __init__(self, me: NodeId, reopened: Reopened) -> None:
        self._me, self._reopened = me, reopened
        self._waiting: dict[Replica, None] = {}
        self._busy: dict[Replica, None] = {}

    def __contains__(self, replica: Replica) -> bool:
        """True if the log of this replica is under repair."""
        return replica in self._busy

    @property
    def waits(self) -> bool:
        """True if a replica waits for an election or another attempt."""
        return bool(self._waiting)

    def forget(self, replica: Replica) -> None:
        """Forget a replica that was removed or replaced."""
        self._waiting.pop(replica, None)

    def due(self, image: ClusterImage) -> Iterator[PartitionKey]:
        """The partitions for which this node was elected and does not lead yet."""
        for replica in list(self._waiting):
            state = image.partition(replica.key)
            if state is not None and state.leader == self._me:
                yield replica.key

    def is_accepted(self, replica: Replica, state: PartitionState) -> bool:
        """True if the damaged replica was elected although it is in neither set: the loss is accepted."""
        if replica.directory.offline is not None:
            return False
        if self._me in state.last_known_elr or (state.leader == NO_NODE and self._me not in state.counted_on):
            self._waiting[replica] = None
            return False
        return replica in self._waiting and state.leader == self._me

    def begin(self, replica: Replica, damage: Damage) -> None:
        """Let the replica lead with its readable records: at once if all are readable, else after a repair."""
        del self._waiting[replica]
        log = replica.log
        _log.error("%s: unclean election of a damaged replica, which accepts the loss of %s", replica, damage)
        if damage.readable:
            log.lost.takes_appends = True
            if replica.offline is not None:
                replica.accept_loss()
        else:
            self._busy[replica] = None
            remove_lost_records(replica.directory, log, partial(self._ended, replica))

    def _ended(self, replica: Replica, log: Log, outcome: str | TidelogError) -> None:
        del self._busy[replica]
        if isinstance(outcome, TidelogError):
            _log.error("%s: the repair of its log failed and will be repeated: %s", replica, outcome.message)
            self._waiting[replica] = None
        else:
            log.lost.takes_appends = True
            at = replica, log.log_start_offset, log.log_end_offset, outcome
            _log.error("%s: continues with the readable records of offsets %d to %d; a copy of its log is in %s", *at)
        self._reopened(replica, log)
