"""What damage in a log means for its replica: it stops and leaves both sets, or continues as the only possible leader.

Invariant: a damaged replica stays offline until the metadata has removed it from both sets, the in-sync and the
eligible one (docs/rules.md, rule 6), and the leader epoch in which it was last used has ended. Exception: no other
replica is eligible as leader.
Not here: checks of logs (own_log_check.py, the scrub), unclean elections of damaged replicas (salvaging.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from node.replicas.isr_proposer import IsrProposer
from node.replicas.replica import Replica
from node.replicas.replica_registry import ReplicaRegistry
from replication.controller.elections import electable
from replication.controller.events import DamagedReplica
from replication.controller.image import ClusterImage, PartitionState
from replication.partition.leader_events import ProposeIsr
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.errors import CorruptLog, TidelogError
from tidelog.types import NodeId, PartitionKey

_log = logging.getLogger("node.replicas")


class ReplicaDamage:
    """The damaged replicas of one node."""

    def __init__(
        self,
        me: NodeId,
        registry: ReplicaRegistry,
        proposer: IsrProposer,
        *,
        image: Callable[[], ClusterImage],
        wake_soon: Callable[[], None],
        apply: Callable[[PartitionKey], None],
    ) -> None:
        """image: returns the image that was applied last. wake_soon: requests a tick. apply: applies the image to one
        partition."""
        self._me, self._registry, self._proposer = me, registry, proposer
        self._image, self._wake_soon, self._apply = image, wake_soon, apply
        self._damaged_leaders: dict[Replica, Damage] = {}
        """Replicas that lead although they are damaged, because no other replica can."""

    @property
    def waits(self) -> bool:
        """True if a damaged replica leads until another one can."""
        return bool(self._damaged_leaders)

    def review(self) -> None:
        """Stop the damaged leaders that another replica can replace by now."""
        for replica, damage in list(self._damaged_leaders.items()):
            self.found(replica.log, damage)

    def forget(self, replica: Replica) -> None:
        """Forget a replica that was removed or replaced."""
        self._damaged_leaders.pop(replica, None)

    def known(self, log: Log, error: TidelogError) -> None:
        """Take a replica whose log has recorded damage offline, unless no other replica can lead the partition."""
        replica = self._registry.of_log(log)
        if replica is None:
            return
        if replica.offline is not None or not self._serves_on(replica):
            self._stop(replica, error)
        elif replica not in self._damaged_leaders and log.damage is not None:
            self._continue_as_leader(replica, log.damage)

    def found(self, log: Log, damage: Damage) -> None:
        """Record damage found by the scrub or a follower, and take the replica offline: it leaves both sets and is
        fetched again. A leader that no other replica can replace continues; each review tries again."""
        replica = self._registry.of_log(log)
        if replica is None or replica.offline is not None:
            return
        log.lost.note(damage)
        if self._must_stay(replica):
            if replica not in self._damaged_leaders:
                self._continue_as_leader(replica, damage)
            self._wake_soon()
            return
        self._stop(replica, CorruptLog(f"its log lost {damage}"))
        if self._image().partition(replica.key) is not None:
            self._apply(replica.key)

    def reconsider(self, replica: Replica, state: PartitionState, damage: Damage) -> bool:
        """Apply new metadata to a damaged replica. Returns True if it was offline and may have a role again."""
        if replica.offline is None:
            self.known(replica.log, CorruptLog(f"its log lost {damage}"))
            return False
        # Until a later partition epoch, this node's own proposal to leave the sets may still take effect.
        if not self._serves_on(replica) or state.partition_epoch <= replica.proposed_on:
            return False
        # The controller elected it, or made it the last member, before it knew of the damage: nobody else has the rest.
        replica.accept_loss()
        self._continue_as_leader(replica, damage)
        replica.directory.keep_damage(replica.log, accepted=True)
        return True

    def _serves_on(self, replica: Replica) -> bool:
        """True if a damaged replica leads, its log takes appends, and no other replica is eligible as leader."""
        return replica.directory.offline is None and replica.log.lost.takes_appends and self._must_stay(replica)

    def _must_stay(self, replica: Replica) -> bool:
        """True if this node leads and no other member of the in-sync or eligible set is electable."""
        image = self._image()
        state = image.partition(replica.key)
        if state is None:
            return True
        others = (node for node in (*state.isr, *state.elr) if node != self._me)
        return state.leader == self._me and not any(electable(image, state, node) for node in others)

    def _continue_as_leader(self, replica: Replica, damage: Damage) -> None:
        _log.error(
            "%s: continues as leader without lost records: no other replica is eligible; its log lost %s. Start the "
            "nodes of the other replicas, or restore the file from a copy",
            replica,
            damage,
        )
        self._damaged_leaders[replica] = damage
        self._wake_soon()

    def _stop(self, replica: Replica, error: TidelogError) -> None:
        self._damaged_leaders.pop(replica, None)
        _log.error("%s: offline until fetched again from another leader: %s. Check the disk", replica, error.message)
        replica.go_offline(error)
        replica.directory.keep_damage(replica.log, accepted=False)

    def resign(self, key: PartitionKey) -> None:
        """Ask the controller for another leader of a partition that this node cannot serve."""
        image, replica = self._image(), self._registry.by_key.get(key)
        state, nodes = image.partition(key), image.nodes
        if state is None or state.leader != self._me:
            return
        others = tuple(
            (node, nodes[node].node_epoch) for node in sorted(state.isr) if node != self._me and node in nodes
        )
        if others or state.elr:  # else the partition would lose its last leader
            if replica is not None:
                replica.proposed_on = max(replica.proposed_on, state.partition_epoch)
            name = f"{image.topics[key.topic_id].name}-{key.partition}"
            proposal = ProposeIsr(state.leader_epoch, state.partition_epoch, others)
            self._proposer.propose(key, name, proposal)  # if it fails, the next review repeats it

    def reports(self) -> list[DamagedReplica]:
        """Replicas that are offline because their logs are damaged."""
        return [
            DamagedReplica(replica.key, str(replica.log.damage), replica.used_in)
            for replica in self._registry.by_key.values()
            if replica.log.damage and replica.offline is not None and replica.directory.offline is None
        ]
