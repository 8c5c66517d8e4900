"""The controller: decides on node membership, topics, leaders and in-sync sets.

A function of committed metadata records: its state is the image of the log, plus sessions and waiting requests, which
it may forget at any time.

Invariants:
  1. It decides on everything it has appended, committed or not, and answers only what is committed.
  2. The changes of one event are one atomic batch per node or request.
  3. A node is fenced when its session ends, or when two other nodes report that its address refuses connections. It
     leads and joins nothing until it has applied the log beyond its registration and its fencing, and reported that
     it is ready.

Not here: appending, syncing and replicating the log, publishing committed images
(node/controller/controller_driver.py).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Final, assert_never

from replication.common_events import ClockTicked, Report
from replication.controller import (
    alter_partition,
    elections,
    events,
    features,
    moved_replicas,
    node_removal,
    reassignment,
    registration,
    unclean,
    voter_changes,
)
from replication.controller.administration import Batch, ConfigCheck, GroupConfigCheck, begin_wave, decide, state_of
from replication.controller.explain import some_of
from replication.controller.image import EMPTY, NodeRegistration, PartitionState
from replication.controller.metadata_records import (
    MetadataRecord,
    NodeChangeRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    VotersRecord,
)
from replication.controller.move_queue import wave_ms
from replication.controller.node_state import NodeCause, NodeState, moved, node_state_of
from replication.controller.partition_limits import PartitionLimits
from replication.controller.refusals import Refusals, RefusedNode
from replication.controller.sessions import Sessions
from replication.raft.voters import ReplicaKey, Voter
from tidelog.errors import (
    ElectionNotNeeded,
    NodeIdNotRegistered,
    NotController,
    RequestTimedOut,
    StaleNodeEpoch,
    TidelogError,
    VoterChangePending,
)
from tidelog.types import NO_NODE, Millis, NodeEpoch, NodeId, Offset, PartitionKey, ProducerId
from tidelog.values import dataclass

REVIEW_MS: Final = 1_000
"""Interval of the review for partitions that can proceed: reassignments to complete, unclean elections to hold. Also of
the look for queued moves while none can begin."""

PRODUCER_ID_BLOCK: Final = 1_000
"""Producer ids allocated to a node at a time, as in Kafka: one request of the node per this many producers."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of the controller. Times in milliseconds."""

    session_ms: int
    drain_ms_max: int
    """After this long a draining node may stop even if it leads partitions."""
    voters: int
    """The size to which the metadata quorum is extended."""
    imbalance_check_ms: int
    """Interval of electing preferred leaders if other nodes have more than `imbalance_percent` of a node's preferred
    leaderships; 0: only on command."""
    imbalance_percent: int
    limits: PartitionLimits = field(default_factory=PartitionLimits)
    moves_per_node: int = 5
    """Queued moves begin while each of their new nodes fetches fewer partitions than this."""


@dataclass(slots=True)
class _Drain:
    """A node that is being stopped: since when, and the log end after the last record that moved something away from
    it."""

    since: Millis
    moved_at: Offset


class Controller:
    """The controller's state machine. `image` is the state that it decides on."""

    def __init__(
        self,
        *,
        rng: random.Random,
        check_configs: ConfigCheck,
        valid_group_configs: GroupConfigCheck,
        config: ControllerConfig,
    ) -> None:
        """check_configs, valid_group_configs: of the settings of a topic, and of a group."""
        self._rng = rng
        self._check_configs, self._valid_group_configs = check_configs, valid_group_configs
        self._config = config
        self._sessions = Sessions(config.session_ms)
        self._refusals = Refusals()
        self.active = False
        self.image = EMPTY
        self._committed = Offset(0)
        self._voters_end = Offset(0)
        self._waiting: deque[tuple[Offset, events.Reply]] = deque()
        self._applied: dict[NodeId, Offset] = {}
        self._known_levels: dict[NodeId, int] = {}
        """The highest feature level that each node has said it knows."""
        self._drains: dict[NodeId, _Drain] = {}
        self._state_known_at: dict[NodeId, Offset] = {}
        """For each node that is fenced or draining: the log end after the record of that, or a later one."""
        self._elections = unclean.Elections()
        self._review_at = self._wave_at = Millis(0)
        self._rebalance_at = Millis(0)
        self._effects: list[events.Effect] = []

    def handle(self, event: events.Event) -> list[events.Effect]:
        """Process one event. The driver executes the returned effects in order. An exception is a defect and leaves no
        decision behind."""
        before, answers = (self.active, self.image, self._voters_end), len(self._waiting)
        try:
            return self._take(event)
        except Exception:
            self.active, self.image, self._voters_end = before
            while len(self._waiting) > answers:
                self._waiting.pop()
            raise

    def _take(self, event: events.Event) -> list[events.Effect]:
        self._effects = []
        match event:
            case events.Submitted():
                self._decide(event)
            case events.Committed(offset):
                self._committed = max(self._committed, offset)
            case ClockTicked(at):
                self._tick(at)
            case events.LogEndsReported():
                self._elect(event)
            case events.HeartbeatReceived() | events.VotersReviewed() | events.Activated() | events.Resigned():
                self._handle_rare(event)
            case _:
                assert_never(event)
        self._answer_committed()
        return self._effects

    def _handle_rare(
        self, event: events.HeartbeatReceived | events.VotersReviewed | events.Activated | events.Resigned
    ) -> None:
        match event:
            case events.HeartbeatReceived(at, node_id):
                self._sessions.advance(at)
                self._sessions.renew(node_id)
            case events.VotersReviewed(_, caught_up):
                self._review_voters(caught_up)
            case events.Activated():
                self._activate(event)
            case events.Resigned():
                self._resign()
            case _:
                assert_never(event)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _decide(self, event: events.Submitted) -> None:
        """Decide on a request. The answer waits until everything it may depend on is committed."""
        result: events.Result | TidelogError | None
        try:
            if not self.active:
                raise NotController("this node is not the active controller: look it up and retry")
            result = self._result_of(event.request_id, event.at, event.request)
        except TidelogError as refusal:
            result = refusal
        if result is not None:
            self._answer(event.request_id, result)

    def _result_of(self, request_id: int, at: Millis, request: events.Request) -> events.Result | None:
        """None: the result follows later."""
        match request:
            case events.Heartbeat():
                return self._heartbeat(request, at)
            case events.AlterPartition():
                return self._alter_partition(request)
            case events.RegisterNode():
                return self._register(request, at)
            case events.ElectLeaders(type=events.ElectionType.UNCLEAN):
                return self._elect_uncleanly(request_id, request)
            case events.AllocateProducerIds():
                return self._allocate_producer_ids(request)
            case events.RemoveVoter():
                return self._remove_voter(request)
            case events.UnregisterNode():
                return self._unregister(request)
            case _:
                with self._batch(events.ElectionCause.PREFERRED) as batch:
                    return decide(
                        batch,
                        request,
                        rng=self._rng,
                        check_configs=self._check_configs,
                        valid_group_configs=self._valid_group_configs,
                        limits=self._config.limits,
                        known_levels=self._known_levels,
                    )

    def _answer(self, request_id: int, result: events.Result | TidelogError) -> None:
        self._waiting.append((self.image.offset if self.active else Offset(0), events.Reply(request_id, result)))

    def _answer_committed(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._committed:
            self._effects.append(self._waiting.popleft()[1])

    @contextmanager
    def _batch(self, cause: events.ElectionCause = events.ElectionCause.FAILED) -> Iterator[Batch]:
        """A batch that is appended at the end of the block; not if the block raises. cause: of the elections in it,
        except those that complete a reassignment."""
        batch = Batch(self.image)
        yield batch
        if batch.records:
            self.image = batch.image
            elected = tuple(_cause_of(record, cause) for record in batch.records if _elects(record))
            self._effects.append(events.Append(batch.base_offset, tuple(batch.records), elected))

    # --- leading the quorum -----------------------------------------------------------------------------------------

    def _activate(self, event: events.Activated) -> None:
        self.active = True
        self.image = event.image
        self._committed = Offset(0)
        self._voters_end = self.image.offset  # the last voters record is somewhere below
        self._applied = {}
        self._known_levels = {}
        self._refusals = Refusals()
        alive = [node for node in self.image.nodes.values() if not node.fenced]
        self._sessions.begin(event.at, [node.node_id for node in alive])
        self._drains = {node.node_id: _Drain(event.at, self.image.offset) for node in alive if node.draining}
        self._state_known_at = {
            node.node_id: self.image.offset for node in self.image.nodes.values() if node.fenced or node.draining
        }
        self._review_at = self._wave_at = Millis(event.at + REVIEW_MS)
        self._rebalance_at = Millis(event.at + self._config.imbalance_check_ms)
        own = self.image.nodes.get(event.node_id)
        if own is not None and own.incarnation != event.incarnation and not own.fenced:
            self._fence(own, NodeCause.SESSION_ENDED)

    def _review_voters(self, caught_up: tuple[ReplicaKey, ...]) -> None:
        """Change the voters by one, once the last change is committed."""
        if not self.active or self._committed < self._voters_end:
            return
        voters = voter_changes.next_voters(self.image, caught_up, self._config.voters)
        if voters is not None:
            self._change_voters(voters)

    def _remove_voter(self, request: events.RemoveVoter) -> events.VoterRemoved:
        if self._committed < self._voters_end:
            raise VoterChangePending("the last change of the voters is not committed yet: retry after a pause")
        self._change_voters(voter_changes.without_voter(self.image, request.node_id, request.directory_id))
        return events.VoterRemoved()

    def _unregister(self, request: events.UnregisterNode) -> events.NodeUnregistered:
        if self._committed < self._voters_end:
            raise VoterChangePending("the last change of the voters is not committed yet: retry after a pause")
        in_session = self._sessions.alive(request.node_id)
        records = node_removal.records_of(self.image, request.node_id, in_session=in_session)
        with self._batch() as batch:
            batch.add(records)
        voted = any(isinstance(record, VotersRecord) for record in records)
        if voted:
            self._voters_end = self.image.offset
        for known in (self._applied, self._known_levels, self._drains, self._state_known_at):
            known.pop(request.node_id, None)
        self._sessions.forget(request.node_id)
        self._refusals.forget(request.node_id)
        lost_vote = " and no longer a voter of the metadata quorum" if voted else ""
        self._effects.append(Report(f"node {request.node_id} is no longer registered{lost_vote}"))
        return events.NodeUnregistered(voted, self.image.offset)

    def _change_voters(self, voters: tuple[Voter, ...]) -> None:
        with self._batch() as batch:
            batch.add([VotersRecord(voters)])
        self._voters_end = self.image.offset
        names = ", ".join(str(voter.node_id) for voter in voters)
        self._effects.append(Report(f"the voters of the metadata quorum are now nodes {names}"))

    def _resign(self) -> None:
        self.active = False
        for request_id in (*(reply.request_id for _, reply in self._waiting), *self._elections.forget()):
            refusal = RequestTimedOut(
                "this node stopped being the active controller before the change was committed: it may or may not take "
                "effect; check the result before you retry"
            )
            self._effects.append(events.Reply(request_id, refusal))
        self._waiting.clear()

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _tick(self, at: Millis) -> None:
        self._sessions.advance(at)
        if not self.active:
            return
        for node_id in self._sessions.take_ended():
            node = self.image.nodes.get(node_id)
            if node is not None and not node.fenced:
                text = f"node {node_id} is fenced: no heartbeat for {self._config.session_ms} ms; check that node"
                self._effects.append(events.Fenced(node_id, NodeCause.SESSION_ENDED, text))
                self._fence(node, NodeCause.SESSION_ENDED)
        if at >= self._review_at:
            self._review_at = Millis(at + REVIEW_MS)
            self._review()
        if at >= self._wave_at:
            due = self._wave_at + wave_ms(self._config.moves_per_node)
            self._wave_at = Millis(max(due, at) if self._begin_wave() else at + REVIEW_MS)
        if self._config.imbalance_check_ms and at >= self._rebalance_at:
            self._rebalance_at = Millis(at + self._config.imbalance_check_ms)
            with self._batch(events.ElectionCause.PREFERRED) as batch:
                batch.add(elections.rebalance_changes(batch.image, self._config.imbalance_percent))

    def _review(self) -> None:
        """Complete reassignments, and start unclean elections where possible."""
        with self._batch() as batch:
            for state in self.image.partitions():
                self._finish_move(batch, state.key)
                if unclean.wanted(self.image, state):
                    self._ask(state)

    def _begin_wave(self) -> bool:
        """Begin queued moves, and drop those that can never begin. Returns True if there were any."""
        with self._batch() as batch:
            dropped = begin_wave(batch, self._config.moves_per_node, self._config.limits)
        if dropped:  # one line: hundreds a second would hide all others
            count = "a queued move is" if len(dropped) == 1 else f"{len(dropped)} queued moves are"
            self._effects.append(Report(f"{count} dropped: {some_of(dropped, '; ')}"))
        return bool(batch.records)

    def _fence(self, node: NodeRegistration, cause: NodeCause) -> None:
        """End the node's session: it leaves every set that has another member, and leads nothing."""
        self._sessions.forget(node.node_id)
        self._drains.pop(node.node_id, None)
        why = events.ElectionCause.DRAINED if cause is NodeCause.DRAINED else events.ElectionCause.FAILED
        with self._batch(why) as batch:
            batch.add([moved(node, cause)])
            batch.add(elections.fence_changes(batch.image, node.node_id))
        self._state_known_at[node.node_id] = self.image.offset

    def _register(self, request: events.RegisterNode, at: Millis) -> events.Registered:
        self._sessions.advance(at)
        previous = self.image.nodes.get(request.node_id)
        registration.refuse_impossible(self.image, request)
        if previous is not None and previous.incarnation == request.incarnation:
            self._sessions.renew(request.node_id)
            return events.Registered(previous.node_epoch)
        if previous is not None:
            registration.refuse_late(request, previous)
        in_session = previous is not None and self._sessions.alive(request.node_id)
        if previous is not None and in_session and not registration.has_ended(previous, request):
            raise registration.duplicate(previous, self._sessions.remaining_ms(request.node_id))
        with self._batch() as batch:
            batch.add([registration.record_of(request)])
            judged = registration.judge(batch.image, request, previous)
            batch.add(judged.changes)
        self._effects.extend(map(Report, judged.reports))
        self._sessions.renew(request.node_id)
        self._refusals.forget(request.node_id)
        self._drains.pop(request.node_id, None)
        self._applied.pop(request.node_id, None)
        self._known_levels.pop(request.node_id, None)
        self._state_known_at[request.node_id] = self.image.offset
        return events.Registered(self.image.nodes[request.node_id].node_epoch)

    def _heartbeat(self, beat: events.Heartbeat, at: Millis) -> events.HeartbeatAnswer:
        self._sessions.advance(at)
        node = self._current(beat.node_id, beat.node_epoch)
        registration.refuse_future(self.image, beat.node_id, beat.metadata_offset)
        # A process that was fenced, or that stops, may have ended: a heartbeat from before that proves nothing.
        informed = beat.metadata_offset >= self._state_known_at.get(node.node_id, Offset(0))
        withdrawn = informed and node.draining and not beat.want_drain
        if node_state_of(node) is NodeState.STOPPED and not (beat.want_drain or withdrawn):
            return events.HeartbeatAnswer(fenced=True, drained=False)  # a late heartbeat: the node was stopped since
        self._sessions.renew(node.node_id)
        if self._refusals.heard_from(RefusedNode(node.node_id, node.node_epoch), informed=informed):
            self._report_contradiction(node.node_id)
        self._take_refusals(node, beat, at)
        self._applied[node.node_id] = beat.metadata_offset
        self._known_levels[node.node_id] = beat.feature_level_max
        self._take_out_damaged(node, beat)
        node = self._take_directories_offline(node, beat)
        if beat.moved:
            with self._batch() as batch:
                changed = list(moved_replicas.changes_of(batch.image, node, beat.moved))
                batch.add(changed)
                batch.add(elections.changes_after_moves(batch.image, node.node_id, changed))
        if beat.want_drain:
            return self._drain(node, at)
        if withdrawn:
            node = self._end_drain(node)
        if node.fenced and beat.ready and informed:
            with self._batch(events.ElectionCause.RETURNED) as batch:
                batch.add([moved(node, NodeCause.READY)])
                changes = list(elections.return_changes(batch.image, node.node_id))
                batch.add(changes)
            self._report_last_known(changes)
        fenced = self.image.nodes[node.node_id].fenced
        return events.HeartbeatAnswer(
            fenced, drained=False, probe=() if fenced else self._refusals.ask(node.node_id, at)
        )

    def _take_refusals(self, node: NodeRegistration, beat: events.Heartbeat, at: Millis) -> None:
        """Fence the nodes whose processes have ended, by the reports of this heartbeat and of other nodes'. A fenced
        node is no witness: the reason why it is fenced may be that its connections fail."""
        named = () if node.fenced else self._present(beat.refused, but=node.node_id)
        self._refusals.report(node.node_id, named, at)
        for refused in named:
            subject = self.image.nodes[refused.node_id]
            if not self._refusals.is_confirmed(refused, at):
                self._effects.append(events.ProbeNode(subject.node_id))
                continue
            text = (
                f"node {subject.node_id} is fenced: its address refuses the connections of two nodes, so its process "
                "has ended; see the last lines of its log and start it again"
            )
            self._effects.append(events.Fenced(subject.node_id, NodeCause.REFUSED, text))
            self._refusals.fenced(refused)
            self._fence(subject, NodeCause.REFUSED)

    def _present(self, named: Collection[RefusedNode], *, but: NodeId) -> tuple[RefusedNode, ...]:
        """Those of these registrations that are in service, each once; without that of the sender, node `but`."""
        if not named:
            return ()
        nodes = self.image.nodes.values()
        present = {RefusedNode(node.node_id, node.node_epoch) for node in nodes if not node.fenced}
        return tuple(each for each in dict.fromkeys(named) if each in present and each.node_id != but)

    def _report_contradiction(self, node_id: NodeId) -> None:
        self._effects.append(
            Report(
                f"node {node_id} was fenced because its address refuses connections, but its process runs: "
                "check firewalls and the advertised address; until its next start only its session decides"
            )
        )

    def _end_drain(self, node: NodeRegistration) -> NodeRegistration:
        """Another sender requested the drain. Returns the node's entry."""
        self._effects.append(
            Report(f"node {node.node_id} does not stop: a request to drain it came from another sender")
        )
        self._drains.pop(node.node_id, None)
        with self._batch() as batch:
            batch.add([moved(node, NodeCause.DRAIN_WITHDRAWN)])
        return self.image.nodes[node.node_id]

    def _take_directories_offline(self, node: NodeRegistration, beat: events.Heartbeat) -> NodeRegistration:
        """Remove the replicas in failed log directories from their sets and leaderships where another member can take
        over (KIP-858). The first directory is never included: it contains the metadata log, and a node without it
        stops. Returns the node's entry."""
        failed = tuple(
            each.directory_id for each in node.directories[1:] if each.directory_id in beat.offline_directories
        )
        if not failed or self.image.feature_level < features.OFFLINE_DIRECTORIES:
            return node
        for directory_id in failed:
            self._effects.append(
                Report(
                    f"node {node.node_id} lost log directory {directory_id}: its replicas leave every set that "
                    "has another member"
                )
            )
        with self._batch() as batch:
            batch.add([NodeChangeRecord(node.node_id, node.node_epoch, offline_directories=failed)])
            batch.add(elections.fence_changes(batch.image, node.node_id))
        return self.image.nodes[node.node_id]

    def _take_out_damaged(self, node: NodeRegistration, beat: events.Heartbeat) -> None:
        """Remove replicas that lost records from their sets and leaderships where another member can take over. Each
        removal ends the leader epoch of their earlier reports; until it is committed, the replica does nothing."""
        with self._batch() as batch:
            for damage in beat.damaged:
                state = batch.image.partition(damage.key)
                if state is None:
                    continue
                change = elections.taken_out(batch.image, state, node.node_id, damage.leader_epoch)
                if change is not None:
                    name = elections.name_of(self.image, state)
                    self._effects.append(
                        Report(
                            f"node {node.node_id}: its replica of {name} is damaged ({damage.reason}) and leaves "
                            "the in-sync set"
                        )
                    )
                    batch.add([change])

    def _drain(self, node: NodeRegistration, at: Millis) -> events.HeartbeatAnswer:
        """Move everything movable. The node may stop once all other nodes know that, or after the maximum time."""
        if not node.fenced:
            drain = self._drains.get(node.node_id)
            if drain is None:
                drain = self._drains[node.node_id] = _Drain(at, self.image.offset)
            with self._batch(events.ElectionCause.DRAINED) as batch:
                if not node.draining:
                    self._mark_as_draining(node, batch)
                self._move_away(node.node_id, batch, drain)
            overdue = at - drain.since >= self._config.drain_ms_max
            if not overdue and not self._all_have_applied(drain.moved_at, but=node.node_id):
                return events.HeartbeatAnswer(fenced=False, drained=False)
            self._fence(self.image.nodes[node.node_id], NodeCause.DRAINED)
        elif node_state_of(node) is NodeState.FENCED:  # a heartbeat sent since it knows that may be in flight
            with self._batch() as batch:
                self._mark_as_draining(node, batch)
        self._sessions.forget(node.node_id)
        return events.HeartbeatAnswer(fenced=True, drained=True)

    def _mark_as_draining(self, node: NodeRegistration, batch: Batch) -> None:
        batch.add([moved(node, NodeCause.DRAIN_REQUESTED)])
        self._state_known_at[node.node_id] = batch.image.offset

    def _move_away(self, node_id: NodeId, batch: Batch, drain: _Drain) -> None:
        before = len(batch.records)
        batch.add(elections.drain_changes(batch.image, node_id))
        if len(batch.records) > before:
            drain.moved_at = batch.image.offset

    def _all_have_applied(self, offset: Offset, *, but: NodeId) -> bool:
        return all(
            self._applied.get(node.node_id, Offset(0)) >= offset
            for node in self.image.nodes.values()
            if not node.fenced and node.node_id != but
        )

    def _current(self, node_id: NodeId, node_epoch: NodeEpoch) -> NodeRegistration:
        """The registration that a request refers to. Raises an error if it is not the current one."""
        node = self.image.nodes.get(node_id)
        if node is None:
            raise NodeIdNotRegistered(f"node {node_id} is not registered: it must register first")
        if node.node_epoch != node_epoch:
            raise StaleNodeEpoch(
                f"node {node_id} is registered with node epoch {node.node_epoch} now, not {node_epoch}: another "
                "process has replaced it"
            )
        return node

    # --- partitions -------------------------------------------------------------------------------------------------

    def _alter_partition(self, request: events.AlterPartition) -> events.AlteredPartitions:
        node = self._current(request.node_id, request.node_epoch)
        drain = self._drains.get(node.node_id)
        with self._batch(events.ElectionCause.RESIGNED if drain is None else events.ElectionCause.DRAINED) as batch:
            refusals = [self._judge(batch, request.node_id, proposal) for proposal in request.partitions]
            for proposal in request.partitions:
                self._finish_move(batch, proposal.key)
            if drain is not None:  # the replicas just admitted can take over from the draining node
                self._move_away(node.node_id, batch, drain)
        return events.AlteredPartitions(
            tuple(
                events.AlteredPartition(proposal.key, self._accepted(proposal.key) if refusal is None else refusal)
                for proposal, refusal in zip(request.partitions, refusals, strict=True)
            )
        )

    def _accepted(self, key: PartitionKey) -> events.AcceptedIsr:
        state = state_of(self.image, key)
        return events.AcceptedIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr)

    def _judge(self, batch: Batch, leader: NodeId, proposal: events.Proposal) -> TidelogError | None:
        try:
            batch.add([alter_partition.judge(batch.image, leader, proposal)])
        except TidelogError as refusal:
            return refusal
        return None

    def _finish_move(self, batch: Batch, key: PartitionKey) -> None:
        state = batch.image.partition(key)
        if state is not None and (end := reassignment.finished(batch.image, state)) is not None:
            batch.add([end])

    # --- unclean elections ------------------------------------------------------------------------------------------

    def _report_last_known(self, changes: Iterable[PartitionChangeRecord]) -> None:
        """Report where the last known leader leads again: no replica had all records, and it may lack some too."""
        for change in changes:
            if change.last_known_elr == () and change.leader is not None and change.elr is None:
                state = state_of(self.image, change.key)
                text = (
                    f"{elections.name_of(self.image, state)} is led again by its last leader, node {change.leader}: "
                    "every in-sync replica had lost records, those that this one lost are gone"
                )
                self._effects.append(events.UncleanlyElected(change.key, change.leader, text))

    def _elect_uncleanly(self, request_id: int, request: events.ElectLeaders) -> events.PartitionOutcomes | None:
        wanted = [state.key for state in self.image.partitions() if state.leader == NO_NODE]
        order = tuple(dict.fromkeys(request.partitions or wanted))
        command = unclean.Command(request_id, order, request.validate_only)
        for key in command.order:
            try:
                state = state_of(self.image, key)
                if state.leader != NO_NODE:
                    raise ElectionNotNeeded(f"{elections.name_of(self.image, state)} is led by node {state.leader}")
                if not unclean.present(self.image, state):
                    raise unclean.no_eligible_replica(self.image, state)
                self._ask(state, command)
            except TidelogError as refusal:
                command.settle(key, refusal)
        return command.result() if command.done else None

    def _ask(self, state: PartitionState, command: unclean.Command | None = None) -> None:
        question = self._elections.ask(state.key, unclean.present(self.image, state), command)
        if question is not None:
            self._effects.append(question)

    def _elect(self, reported: events.LogEndsReported) -> None:
        query = self._elections.reported(reported)
        if query is None:
            return
        key, commands, validate_only = query
        outcome = self._elect_of(key, reported, validate_only=validate_only)
        for command in commands:
            command.settle(*outcome)
            if command.done:
                self._answer(command.request_id, command.result())

    def _elect_of(
        self, key: PartitionKey, reported: events.LogEndsReported, *, validate_only: bool
    ) -> tuple[PartitionKey, PartitionState | TidelogError, str]:
        try:
            state = state_of(self.image, key)
        except TidelogError as error:
            return key, error, ""
        if state.leader != NO_NODE:
            return key, state, ""  # a complete replica returned in the meantime
        chosen = unclean.choose(self.image, state, reported.ends)
        if chosen is None:
            return key, unclean.no_eligible_replica(self.image, state), ""
        if validate_only:
            batch = Batch(self.image)
            batch.add([chosen.change])
            return key, state_of(batch.image, key), chosen.loss
        with self._batch(events.ElectionCause.UNCLEAN) as batch:
            batch.add([chosen.change])
        self._effects.append(events.UncleanlyElected(key, chosen.leader, chosen.loss))
        return key, state_of(self.image, key), chosen.loss

    # --- producers --------------------------------------------------------------------------------------------------

    def _allocate_producer_ids(self, request: events.AllocateProducerIds) -> events.ProducerIdBlock:
        """No id is allocated twice: a restarted node leaves the rest of its block unused."""
        node = self._current(request.node_id, request.node_epoch)
        first = self.image.next_producer_id
        with self._batch() as batch:
            batch.add([ProducerIdsRecord(node.node_id, node.node_epoch, ProducerId(first + PRODUCER_ID_BLOCK))])
        return events.ProducerIdBlock(first, PRODUCER_ID_BLOCK)


def _elects(record: MetadataRecord) -> bool:
    """True if the partition has another leader after this record, or the same one in a new epoch."""
    return isinstance(record, PartitionChangeRecord) and record.leader not in (None, NO_NODE)


def _cause_of(record: MetadataRecord, cause: events.ElectionCause) -> events.ElectionCause:
    is_move = isinstance(record, PartitionChangeRecord) and record.replicas is not None
    return events.ElectionCause.REASSIGNED if is_move else cause
