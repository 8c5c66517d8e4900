"""Any sequence of events keeps the controller's promises: a state machine drives it, an independent eye watches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replication.controller.controller import PRODUCER_ID_BLOCK
from replication.controller.elections import electable
from replication.controller.events import (
    AllocateProducerIds,
    AlterCordon,
    DeleteTopic,
    ElectionType,
    ElectLeaders,
    ProducerIdBlock,
)
from replication.controller.image import EMPTY, ClusterImage, NodeRegistration, PartitionState, apply
from replication.controller.metadata_records import LOST_DIRECTORY, PartitionChangeRecord, PartitionRecord
from replication.controller.node_state import NodeState, node_state_of
from tests.replication.controlled import Controlled, directory
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE, DirectoryId, LeaderEpoch, NodeEpoch, NodeId, PartitionKey

NODES = (1, 2, 3, 4)
nodes = st.sampled_from(NODES)


@dataclass(eq=False)
class Volume:
    """A log directory's bytes: its id and the registration numbers written into it. A copy put back is another one."""

    directory_id: DirectoryId
    numbers: list[int] = field(default_factory=lambda: [-1])

    def copy(self) -> Volume:
        """As it was before the last registration was written into it."""
        return Volume(self.directory_id, self.numbers[:-1])


FIRST, SECOND = 0, 1
"""Each node has two volumes. The first one holds the metadata log: a node without it ends."""
which = st.sampled_from([FIRST, SECOND])


class ControllerMachine(RuleBasedStateMachine):
    """Nodes come and go, directories fail, are lost or put back, commits lag, the controller changes."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = Controlled(seed)
        self.run_numbers = dict.fromkeys(NODES, 0)
        self.volumes = {node: [Volume(directory(node)), Volume(directory(50 + node))] for node in NODES}
        self.named: dict[int, list[Volume]] = {}  # the volumes with which the process of a node registered
        self.failed: set[int] = set()  # nodes whose second volume has failed under the process that is registered
        self.reported: dict[tuple[int, DirectoryId], NodeEpoch] = {}  # the registration in which it was reported
        self.holders: dict[tuple[PartitionKey, int], Volume | None] = {}  # on which volume a member held all
        self.leaders: dict[tuple[PartitionKey, LeaderEpoch], tuple[NodeId, int]] = {}
        self.seen: ClusterImage = self.world.image
        self.checked, self.walked = 0, EMPTY
        self.counted, self.before = 0, EMPTY
        self.placed, self.unplaced = 0, EMPTY
        self.complete: dict[PartitionKey, set[NodeId]] = {}
        for node in NODES:
            self.restart(node, reboot=False, without_second=False)
            self.heartbeat(node, ready=True, drain=False)
        self.create("a", partitions=4, replicas=3, durable=True, minimum=2)

    # --- what happens to nodes ---

    @rule(node=nodes, reboot=st.booleans(), without_second=st.booleans())
    def restart(self, node: int, reboot: bool, without_second: bool = False) -> None:
        """without_second: that one cannot be read when it starts, as if it were not there."""
        self.restart_on(node, self.volumes[node], reboot=reboot, without_second=without_second)

    @rule(node=nodes, which=which)
    def restart_with_an_empty_directory(self, node: int, which: int = FIRST) -> None:
        volumes = list(self.volumes[node])
        volumes[which] = Volume(directory(100 * node + 1_000 * which + self.run_numbers[node]))
        self.restart_on(node, volumes)

    @rule(node=nodes, which=which)
    def restart_with_a_copy(self, node: int, which: int = FIRST) -> None:
        volumes = list(self.volumes[node])
        if len(volumes[which].numbers) > 1:
            volumes[which] = volumes[which].copy()
            self.restart_on(node, volumes)

    def restart_on(
        self, node: int, volumes: list[Volume], *, reboot: bool = False, without_second: bool = False
    ) -> None:
        """The process before it is gone only once the registration is accepted."""
        run_number = self.run_numbers[node] = self.run_numbers[node] + 1
        boot = f"boot {run_number}".encode() if reboot else b"boot"
        named = volumes[:SECOND] if without_second else volumes
        numbers = {volume.directory_id: volume.numbers[-1] for volume in named}
        self.world.register(node, run_number=run_number, directories=numbers, boot=boot)
        if self.world.node(node).incarnation.int == node * 1_000 + run_number:
            self.volumes[node], self.named[node] = volumes, named
            self.failed.discard(node)

    @rule(node=nodes, ready=st.booleans(), drain=st.sampled_from([False, False, False, True]))
    def heartbeat(self, node: int, ready: bool, drain: bool) -> None:
        number = self.world.numbers.get(NodeId(node))
        if number is None:
            return
        working = self.working(node)
        if ready and not drain and self.world.node(node).node_epoch == number:
            if node in self.failed and self.volumes[node][SECOND].numbers[-1] != number:
                return  # it failed before the number was in it: the node ends
            for volume in working:  # fsynced before it says that it is ready
                if volume.numbers[-1] != number:
                    volume.numbers.append(number)
        offline = [volume.directory_id for volume in self.named[node] if volume not in working]
        answer = self.world.beat(node, ready=ready, drain=drain, offline=offline)
        if not isinstance(answer, TidelogError):
            self.reported |= {(node, directory_id): number for directory_id in offline}

    def working(self, node: int) -> list[Volume]:
        """The volumes that the process of a node named, and that have not failed since."""
        return self.named[node][:SECOND] if node in self.failed else self.named[node]

    @rule(node=nodes)
    def second_directory_fails(self, node: int) -> None:
        """The node reports it at once. The replicas in its first directory are not affected."""
        entry = self.world.node(node)
        if len(self.named[node]) == 1:
            return
        self.failed.add(node)
        failed = self.volumes[node][SECOND].directory_id
        elsewhere = [
            state
            for state in self.world.image.partitions()
            if node not in state.replicas or state.directory_of(NodeId(node)) != failed
        ]
        self.heartbeat(node, ready=True, drain=False)
        if node_state_of(entry) is NodeState.SERVING:
            assert [self.world.image.partition(state.key) for state in elsewhere] == elsewhere

    @rule(ms=st.integers(1, 3_000), alive=st.sets(nodes))
    def time_passes(self, ms: int, alive: set[int]) -> None:
        self.world.pass_time(ms, *sorted(node for node in alive if NodeId(node) in self.world.numbers))

    # --- what clients, leaders and the quorum do ---

    @rule(
        name=st.sampled_from("ab"),
        partitions=st.integers(1, 3),
        replicas=st.integers(1, 4),
        durable=st.booleans(),
        minimum=st.integers(1, 3),
    )
    def create(self, name: str, partitions: int, replicas: int, durable: bool, minimum: int = 2) -> None:
        configs = {"durability": "fsync" if durable else "page-cache", "min_insync_replicas": str(minimum)}
        self.world.create(name, partitions=partitions, replicas=replicas, **configs)

    @rule(name=st.sampled_from("ab"), minimum=st.integers(1, 4))
    def another_minimum(self, name: str, minimum: int) -> None:
        self.world.alter(name, min_insync_replicas=str(minimum))

    @precondition(lambda self: any(True for _ in self.world.image.partitions()))
    @rule(data=st.data())
    def reassign(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(list(self.world.image.partitions())))
        target = data.draw(st.none() | st.lists(nodes, min_size=1, unique=True))
        self.world.reassign(state.key, target)

    @rule()
    def elect_preferred(self) -> None:
        self.world.ask(ElectLeaders(ElectionType.PREFERRED))

    @rule(name=st.sampled_from("ab"))
    def delete(self, name: str) -> None:
        self.world.ask(DeleteTopic(name))

    @rule(node=nodes, cordoned=st.booleans())
    def cordon(self, node: int, cordoned: bool) -> None:
        self.world.ask(AlterCordon(NodeId(node), cordoned))

    @rule(node=nodes, cordoned=st.booleans(), data=st.data())
    def cordon_a_directory(self, node: int, cordoned: bool, data: st.DataObject) -> None:
        entry = self.world.image.nodes.get(NodeId(node))
        if entry is not None and entry.directories:
            named = data.draw(st.sampled_from(entry.directories)).directory_id
            self.world.ask(AlterCordon(NodeId(node), cordoned, (named,)))

    @rule(node=nodes)
    def allocate_producer_ids(self, node: int) -> None:
        number = self.world.numbers.get(NodeId(node))
        if number is not None:
            self.world.ask(AllocateProducerIds(NodeId(node), number))

    @precondition(lambda self: any(state.leader != NO_NODE for state in self.world.image.partitions()))
    @rule(data=st.data())
    def propose(self, data: st.DataObject) -> None:
        led = [state for state in self.world.image.partitions() if state.leader != NO_NODE]
        state = data.draw(st.sampled_from(led))
        members = data.draw(st.sets(st.sampled_from(state.replicas), min_size=1))
        self.world.propose(
            *sorted(members),
            by=state.leader,
            state=state,
            partition_epoch=state.partition_epoch - data.draw(st.sampled_from([0, 0, 0, 1])),
            epochs={node: self.world.numbers.get(node, -1) for node in members},
        )

    @precondition(lambda self: any(state.leader != NO_NODE for state in self.world.image.partitions()))
    @rule(data=st.data())
    def last_member_dies_and_returns(self, data: st.DataObject) -> None:
        """Random steps come here too seldom: a leader is alone in its set, falls silent, and comes back somehow."""
        state = data.draw(
            st.sampled_from([state for state in self.world.image.partitions() if state.leader != NO_NODE])
        )
        last = state.leader
        self.world.propose(last, state=state, epochs={last: self.world.image.nodes[last].node_epoch})
        self.time_passes(3_000, set(NODES) - {last})
        returns = data.draw(st.sampled_from([self.restart_with_a_copy, self.restart_with_an_empty_directory]))
        returns(last, data.draw(which))
        self.heartbeat(last, ready=True, drain=False)

    @rule(hold=st.booleans())
    def commits(self, hold: bool) -> None:
        self.world.hold_commits = hold
        if not hold:
            self.world.commit()

    @rule(node=nodes)
    def another_controller(self, node: int) -> None:
        self.world.activate(node, incarnation=node * 1_000 + self.run_numbers[node])

    # --- what must hold ---

    @invariant()
    def no_producer_id_is_given_twice(self) -> None:
        blocks = [reply for reply in self.world.replies.values() if isinstance(reply, ProducerIdBlock)]
        firsts = sorted(block.first_producer_id for block in blocks)
        assert all(later - first >= PRODUCER_ID_BLOCK for first, later in itertools.pairwise(firsts))
        assert all(first + PRODUCER_ID_BLOCK <= self.world.image.next_producer_id for first in firsts)

    @invariant()
    def replayed_is_live(self) -> None:
        assert self.world.replayed() == self.world.image

    @invariant()
    def members_are_replicas_and_leaders_are_members(self) -> None:
        for state in self.world.image.partitions():
            assert state.isr or state.leader == NO_NODE
            assert set(state.isr) <= set(state.replicas)
            assert not set(state.isr) & set(state.elr)
            assert len(state.directories) == len(state.replicas)
            assert state.counted_on, "somebody is waited for"
            assert state.counted_on <= set(state.replicas)
            assert not state.last_known_elr or not state.isr
            if state.leader != NO_NODE:
                assert state.leader in state.isr
                assert not self.world.image.nodes[state.leader].fenced

    @invariant()
    def fenced_and_draining_nodes_are_in_no_set_that_others_carry_on(self) -> None:
        for state in self.world.image.partitions():
            for member in state.isr:
                node = self.world.image.nodes[member]
                assert not node.fenced or state.isr == (member,)
                assert not node.draining or state.isr == (member,) or state.leader == member

    @invariant()
    def the_leader_has_the_bytes(self) -> None:
        """The very directory that the metadata names, on the very volume on which it was in sync."""
        for state in self.world.image.partitions():
            for member in state.counted_on:
                self.holders.setdefault((state.key, member), self.volume_of(state, member))
            for replica in set(state.replicas) - state.counted_on:
                self.holders.pop((state.key, replica), None)
            if state.leader != NO_NODE:
                mine = state.directory_of(state.leader)
                durable_on = self.holders[state.key, state.leader]
                assert durable_on is not None and durable_on is self.volume_of(state, state.leader)
                assert mine != LOST_DIRECTORY
                assert mine in {named.directory_id for named in self.world.image.nodes[state.leader].directories}

    def volume_of(self, state: PartitionState, node: NodeId) -> Volume | None:
        """The node's volume that the metadata name for this replica, None where it has no such one."""
        mine = state.directory_of(node)
        return next((volume for volume in self.volumes[node] if volume.directory_id == mine), None)

    @invariant()
    def no_replica_leads_or_follows_in_a_failed_directory(self) -> None:
        """Until its node registers again (KIP-858). The last member of a set stays, and does not lead."""
        for state in self.world.image.partitions():
            for replica in state.replicas:
                number = self.reported.get((replica, state.directory_of(replica)))
                if number is not None and number == self.world.image.nodes[replica].node_epoch:
                    assert state.leader != replica
                    assert replica not in state.isr or state.isr == (replica,)

    @invariant()
    def only_directories_that_have_failed_are_offline(self) -> None:
        for node in self.world.image.nodes.values():
            offline = {each.directory_id for each in node.offline_directories}
            reported = {
                place for (node_id, place), number in self.reported.items() if (node_id, number) == _registered(node)
            }
            assert offline == reported
            assert not offline & {each.directory_id for each in node.directories}

    @invariant()
    def leaders_and_eligible_replicas_have_all_that_can_be_committed(self) -> None:
        """KIP-966: a set of sufficient size may commit without all others, from the batch on that made it; a replica
        that joins it has all records by then. Only the last known leader may lack some."""
        for batch in self.world.batches[self.counted :]:
            after = apply(self.before, batch)
            for state in after.partitions():
                old = self.before.partition(state.key)
                had = self.complete.get(state.key, set(state.isr))
                is_new = old is not None and old.leader != state.leader and state.leader != NO_NODE
                if is_new and old is not None and old.last_known_elr != (state.leader,):
                    assert state.leader in had | set(state.isr if old.leader != NO_NODE else ())
                assert set(state.elr) <= had | set(state.isr)
                enough = len(state.isr) >= after.min_insync(state)
                self.complete[state.key] = (
                    set(state.isr) if enough and state.leader != NO_NODE else had | set(state.isr)
                )
            self.before = after
        self.counted = len(self.world.batches)

    @invariant()
    def no_replica_is_placed_on_a_cordoned_node_or_directory(self) -> None:
        for batch in self.world.batches[self.placed :]:
            for offset, record in batch:
                before = self.unplaced
                self.unplaced = apply(before, [(offset, record)])
                if isinstance(record, PartitionRecord | PartitionChangeRecord):
                    state, old = self.unplaced.partition(record.key), before.partition(record.key)
                    assert state is not None
                    new = set(state.replicas) - set(() if old is None else old.replicas)
                    assert not any(before.nodes[node].gets_no_replicas for node in new)
                    assert not any(state.directory_of(node) in before.nodes[node].cordoned_directories for node in new)
        self.placed = len(self.world.batches)

    @invariant()
    def one_leader_and_one_life_of_it_per_epoch(self) -> None:
        for state in self.world.image.partitions():
            if state.leader != NO_NODE:
                node = self.world.image.nodes[state.leader]
                leads = (state.leader, node.node_epoch)
                assert self.leaders.setdefault((state.key, state.leader_epoch), leads) == leads

    @invariant()
    def epochs_only_grow(self) -> None:
        for state in self.world.image.partitions():
            before = self.seen.partition(state.key)
            if before is not None and before != state:
                assert state.partition_epoch > before.partition_epoch
                assert state.leader_epoch >= before.leader_epoch
                assert state.leader == before.leader or state.leader_epoch > before.leader_epoch
        self.seen = self.world.image

    @invariant()
    def leaders_come_from_the_set(self) -> None:
        """Checks what was appended since the last call: a new leader was in sync, or was proposed by the old leader;
        otherwise it was eligible, or, if both sets were empty, was the last leader."""
        for batch in self.world.batches[self.checked :]:
            for offset, record in batch:
                if isinstance(record, PartitionChangeRecord) and record.leader not in (None, NO_NODE):
                    before = self.walked.partition(record.key)
                    assert before is not None
                    assert record.leader in (before.isr if record.isr is None else record.isr)
                    if record.leader not in before.isr and before.leader == NO_NODE:
                        assert record.leader in before.counted_on
                        assert not any(electable(self.walked, before, member) for member in before.isr)
                self.walked = apply(self.walked, [(offset, record)])
        self.checked = len(self.world.batches)


def _registered(node: NodeRegistration) -> tuple[int, NodeEpoch]:
    return node.node_id, node.node_epoch


TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
