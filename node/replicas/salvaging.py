"""Damaged replicas that are elected all the same (design, section 4, rule 6): the loss is accepted, and the replica
leads with what can be read of its log.

Kept true: only a replica that the metadata had named as the last known leader, of a partition without a leader, is
accepted so; nothing is removed before a copy of the log is kept and named in the node's log.
Left to others: the election (replication/controller/unclean.py), the files (storage/directory/salvage.py), roles
(replica_manager.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from node.replicas.partition import Partition
from replication.controller.image import ClusterImage, PartitionState
from storage.directory.giving_up import give_up_lost
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.errors import TidelogError
from tidelog.types import NodeId

_log = logging.getLogger("node.replicas")

Reopened: TypeAlias = Callable[[Partition, Log], None]
"""A log was closed, and is open again without what it lost; or closed still, and the same."""


class Salvaging:
    """The damaged replicas of one node that wait for an unclean election, or are being put in order after it."""

    def __init__(self, me: NodeId, reopened: Reopened) -> None:
        self._me, self._reopened = me, reopened
        self._waiting: dict[Partition, None] = {}
        self._busy: dict[Partition, None] = {}

    def __contains__(self, partition: Partition) -> bool:
        """Is its log being put in order?"""
        return partition in self._busy

    @property
    def waits(self) -> bool:
        """May an attempt be due again?"""
        return bool(self._waiting)

    def forget(self, partition: Partition) -> None:
        """The replica is gone, or another has taken its place."""
        self._waiting.pop(partition, None)

    def due(self, image: ClusterImage) -> Iterator[PartitionState]:
        """The partitions that this node has been elected for and does not lead yet."""
        for partition in list(self._waiting):
            state = image.partition(partition.key)
            if state is not None and state.leader == self._me:
                yield state

    def is_accepted(self, partition: Partition, state: PartitionState) -> bool:
        """Was the damaged replica elected, though it was in neither set? An operator, or the topic, takes the loss."""
        if partition.directory.offline is not None:
            return False
        if self._me in state.last_known_elr:
            self._waiting[partition] = None
            return False
        return partition in self._waiting and state.leader == self._me

    def begin(self, partition: Partition, damage: Damage) -> None:
        """Let the replica go on with what can be read: at once where everything can, else once its log is in order."""
        del self._waiting[partition]
        log = partition.log
        _log.error("%s is led uncleanly, what its log lost is given up: %s", partition, damage)
        if damage.readable or log.lost.takes_appends:
            log.lost.takes_appends = True
            partition.offline = None
        else:
            self._busy[partition] = None
            give_up_lost(partition.directory, log, partial(self._ended, partition))

    def _ended(self, partition: Partition, log: Log, outcome: str | TidelogError) -> None:
        del self._busy[partition]
        if isinstance(outcome, TidelogError):
            _log.error("%s: nothing was given up, it is tried again: %s", partition, outcome.message)
            self._waiting[partition] = None
        else:
            log.lost.takes_appends = True
            at = partition, log.log_start_offset, log.log_end_offset, outcome
            _log.error("%s goes on with what could be read from offset %d to %d; its log as it was is kept in %s", *at)
        self._reopened(partition, log)
