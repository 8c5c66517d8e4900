"""A metadata quorum without nodes: cores, logs as lists of records, and messages that arrive when a test delivers them.

Checked after every step: one leader per epoch, log matching, leader completeness, committed records never change, high
watermarks never decrease. A crash of a replica drops what was not synced. A vote is durable at once, because the real
driver executes no effect after a `Persist` until the vote is durable."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from replication.common_events import ClockTicked, Report
from replication.raft.log_view import MetadataLogView
from replication.raft.quorum import Quorum
from replication.raft.quorum_events import (
    Activate,
    Announce,
    Answer,
    BeginEpoch,
    BelowLogStart,
    Commit,
    ConfirmLeader,
    Effect,
    EndEpoch,
    Event,
    Fetch,
    FetchAnswered,
    LeaderAndEpoch,
    LeaderReported,
    LogsAgree,
    LogsDiverge,
    MetadataLogChanged,
    NewRecords,
    OpenEpoch,
    Persist,
    Requested,
    SendVote,
    StopLeading,
    TakeRecords,
    TakeSnapshot,
    TruncateMetadataLog,
    VoteAnswer,
    VoteAnswered,
    VoteRequest,
)
from replication.raft.roles import QuorumState, Role
from replication.raft.timeouts import QuorumTimes
from replication.raft.voters import ReplicaKey, VoterSet
from tidelog.errors import TidelogError
from tidelog.types import DirectoryId, EpochStart, LeaderEpoch, Millis, NodeId, Offset

TIMES = QuorumTimes()


def key(node: int, directory: int = 0) -> ReplicaKey:
    return ReplicaKey(NodeId(node), DirectoryId(UUID(int=100 * (directory + 1) + node)))


def voters(*nodes: int) -> VoterSet:
    return VoterSet(tuple(key(node) for node in nodes))


@dataclass(frozen=True)
class Entry:
    """One record: its epoch, its value, and the voters that it names, if any."""

    epoch: int
    value: object
    voters: VoterSet | None = None


@dataclass
class Replica:
    """One node: the contents of its disk and, while it runs, its core."""

    me: ReplicaKey
    initial: VoterSet
    entries: list[Entry] = field(default_factory=list)
    durable_offset: int = 0
    high_watermark: int = 0
    state: QuorumState = field(default_factory=QuorumState)
    core: Quorum | None = None
    active: bool = False
    moved: bool = False
    incarnation: int = 0

    def view(self) -> MetadataLogView:
        starts = [
            EpochStart(LeaderEpoch(entry.epoch), Offset(offset))
            for offset, entry in enumerate(self.entries)
            if offset == 0 or self.entries[offset - 1].epoch != entry.epoch
        ]
        named = [(offset + 1, entry.voters) for offset, entry in enumerate(self.entries) if entry.voters is not None]
        *_, (_, before), (end, newest) = (0, VoterSet()), (0, self.initial), *named
        return MetadataLogView(
            log_end=Offset(len(self.entries)),
            durable_offset=Offset(self.durable_offset),
            high_watermark=Offset(self.high_watermark),
            epochs=tuple(starts),
            voters=newest,
            voters_end=Offset(end),
            voters_before=before,
        )


Message = Callable[[], None]


class QuorumCluster:
    """Nodes 0..N-1, the first ones voters. Messages wait in `wire` until they are delivered or dropped."""

    def __init__(self, nodes: int = 3, *, voting: int | None = None, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.now = 10_000
        initial = voters(*range(nodes if voting is None else voting))
        self.replicas = {node: Replica(key(node), initial) for node in range(nodes)}
        self.disconnected: set[tuple[int, int]] = set()
        self.wire: list[tuple[int, int, Message]] = []
        self.fetching: set[int] = set()
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.matching: dict[tuple[int, int], Entry] = {}
        self.reports: list[str] = []
        self.slow_disks: set[int] = set()
        self._answers: dict[int, Callable[[Answer], None]] = {}
        for node in self.replicas:
            self.start(node)

    # --- start and stop ---

    def start(self, node: int) -> None:
        replica = self.replicas[node]
        assert replica.core is None
        replica.incarnation += 1
        replica.core = Quorum(
            replica.me, replica.state, replica.view(), times=TIMES, rng=random.Random(self.rng.random()), at=self._at()
        )

    def kill(self, node: int, *, keeps: float = 0.0) -> None:
        """The machine loses power. keeps: share of the unsynced records that the disk has, oldest first."""
        replica = self.replicas[node]
        replica.core, replica.active = None, False
        kept = replica.durable_offset + int(keeps * (len(replica.entries) - replica.durable_offset))
        del replica.entries[kept:]
        replica.durable_offset = len(replica.entries)  # recovery syncs what it keeps
        replica.high_watermark = 0
        self.fetching.discard(node)

    def empty(self, node: int) -> None:
        """The volume is replaced by an empty one with another directory id."""
        old = self.replicas[node]
        assert old.core is None
        me = ReplicaKey(NodeId(node), DirectoryId(UUID(int=old.me.directory_id.int + 100)))
        self.replicas[node] = Replica(me, VoterSet(), incarnation=old.incarnation)

    # --- steps ---

    def tick(self, ms: int = 10) -> None:
        self.now += ms
        for node in self.running():
            self.give(node, ClockTicked(self._at()))
            self.fetch(node)

    def sync(self, node: int) -> None:
        """The disk of a node has written all records."""
        replica = self.replicas[node]
        if replica.core is not None and replica.durable_offset < len(replica.entries):
            replica.durable_offset = len(replica.entries)
            self.give(node, MetadataLogChanged(self._at(), replica.view()))

    def run(self, ms: int) -> None:
        """Let time pass. Messages arrive in order, and disks sync at once."""
        for _ in range(ms // 10):
            self.tick()
            self.settle()

    def run_late(self, ms: int, least_ms: int, most_ms: int) -> None:
        """Let time pass on starved cores: each message arrives so many milliseconds after it was sent."""
        arrives: dict[int, int] = {}
        for _ in range(ms // 10):
            self.tick()
            index = 0
            while index < len(self.wire):
                sent = id(self.wire[index])
                if arrives.setdefault(sent, self.now + self.rng.randint(least_ms, most_ms)) > self.now:
                    index += 1
                    continue
                del arrives[sent]
                self.deliver(index)
                self.sync_all()

    def settle(self) -> None:
        while self.wire:
            self.deliver(0)
            self.sync_all()
        self.sync_all()

    def sync_all(self) -> None:
        for node in self.running():
            if node not in self.slow_disks:
                self.sync(node)

    def deliver(self, index: int) -> None:
        source, target, message = self.wire.pop(index)
        if (source, target) not in self.disconnected and self.replicas[target].core is not None:
            message()
            self.check()

    def running(self) -> list[int]:
        return [node for node, replica in self.replicas.items() if replica.core is not None]

    def isolate(self, node: int) -> None:
        for other in self.replicas:
            if other != node:
                self.disconnected |= {(node, other), (other, node)}

    def heal(self) -> None:
        self.disconnected.clear()

    def run_until(self, reached: Callable[[], object], ms: int = 20_000) -> None:
        deadline = self.now + ms
        while not reached():
            assert self.now < deadline, f"not within {ms} ms; {self.describe()}"
            self.run(10)

    def describe(self) -> str:
        return "; ".join(
            f"{node}: {self.core(node).role.name} in {self.core(node).epoch}, log {self.replicas[node].view().position}"
            for node in self.running()
        )

    # --- queries ---

    def core(self, node: int) -> Quorum:
        core = self.replicas[node].core
        assert core is not None, f"node {node} does not run"
        return core

    def role(self, node: int) -> Role:
        return self.core(node).role

    def active(self) -> int | None:
        """The active leader of the newest epoch."""
        found = [node for node in self.running() if self.replicas[node].active]
        return max(found, key=lambda node: self.core(node).epoch, default=None)

    def wait_leader(self, *, but: int = -1) -> int:
        self.run_until(lambda: self.active() not in (None, but))
        leader = self.active()
        assert leader is not None
        return leader

    def append(self, node: int, value: object, named: VoterSet | None = None) -> None:
        """The controller of a leader appends a record."""
        replica = self.replicas[node]
        assert self.core(node).leads
        replica.entries.append(Entry(self.core(node).epoch, value, named))
        self.give(node, MetadataLogChanged(self._at(), replica.view()))

    def values(self) -> list[object]:
        return [entry.value for entry in self.committed]

    # --- effects ---

    def give(self, node: int, event: Event) -> None:
        replica, core = self.replicas[node], self.core(node)
        due = core.due
        effects = core.handle(event)
        if isinstance(event, ClockTicked) and (due is None or event.at < due):
            assert effects == [], f"a tick before it was due made {effects}"
        for effect in effects:
            self._execute(node, replica, effect)
        if replica.moved:  # as the driver does: once all effects are carried out
            replica.moved = False
            self.give(node, MetadataLogChanged(self._at(), replica.view()))
        self.check()

    def _execute(self, node: int, replica: Replica, effect: Effect) -> None:
        match effect:
            case Persist(state):
                replica.state = state
            case SendVote(request):
                self._send_vote(node, request)
            case Announce():
                self._announce(node, effect.to, effect.request)
            case ConfirmLeader(asked):
                self._confirm_leader(node, int(asked))
            case Answer(request_id, _):
                self._answers.pop(request_id)(effect)
            case OpenEpoch(epoch, _):
                replica.entries.append(Entry(epoch, f"epoch {epoch}"))
                replica.moved = True
            case Commit(offset):
                self._commit(replica, offset)
                replica.moved = True
            case Activate(epoch):
                assert replica.high_watermark > 0
                assert self.core(node).epoch == epoch
                replica.active = True
            case StopLeading():
                replica.active = False
            case TakeRecords() | TruncateMetadataLog() | TakeSnapshot():
                raise AssertionError("only the answer to a fetch has this effect")
            case Report(text):
                self.reports.append(text)

    def _commit(self, replica: Replica, offset: int) -> None:
        assert offset <= len(replica.entries)
        replica.high_watermark = max(replica.high_watermark, offset)
        for position in range(len(self.committed), offset):
            self.committed.append(replica.entries[position])

    def _send(self, source: int, target: int, message: Message) -> None:
        self.wire.append((source, target, message))

    def _ask(self, target: int, make: Callable[[int], Event], answered: Callable[[Answer], None]) -> None:
        number = self.rng.getrandbits(60)
        self._answers[number] = answered
        self.give(target, make(number))

    def _send_vote(self, node: int, request: VoteRequest) -> None:
        target, incarnation = int(request.voter.node_id), self.replicas[node].incarnation

        def answered(answer: Answer) -> None:
            assert isinstance(answer.answer, VoteAnswer)
            reply = answer.answer
            self._send(
                target, node, lambda: self._give_if_running(node, incarnation, VoteAnswered(self._at(), request, reply))
            )

        self._send(node, target, lambda: self._ask(target, lambda n: Requested(n, self._at(), request), answered))

    def _announce(self, node: int, to: ReplicaKey, request: BeginEpoch | EndEpoch) -> None:
        target, incarnation = int(to.node_id), self.replicas[node].incarnation

        def answered(answer: Answer) -> None:
            leader = answer.answer
            assert isinstance(leader, LeaderAndEpoch)
            self._report_leader(target, node, incarnation, leader)

        self._send(node, target, lambda: self._ask(target, lambda n: Requested(n, self._at(), request), answered))

    def _confirm_leader(self, node: int, target: int) -> None:
        incarnation = self.replicas[node].incarnation
        if target not in self.replicas:
            return

        def reply() -> None:
            core = self.core(target)
            self._report_leader(target, node, incarnation, LeaderAndEpoch(core.epoch, core.leader_id))

        self._send(node, target, reply)

    def _report_leader(self, source: int, node: int, incarnation: int, leader: LeaderAndEpoch) -> None:
        """Send a node the leader that another node knows."""

        def arrive() -> None:
            self._give_if_running(
                node, incarnation, LeaderReported(self._at(), leader.epoch, leader.leader_id, NodeId(source))
            )

        self._send(source, node, arrive)

    def _give_if_running(self, node: int, incarnation: int, event: Event) -> None:
        replica = self.replicas[node]
        if replica.core is not None and replica.incarnation == incarnation:
            self.give(node, event)

    # --- fetching ---

    def fetch(self, node: int, target: int | None = None) -> None:
        """Fetch from the leader, or from any node while none is known."""
        core, replica = self.core(node), self.replicas[node]
        if core.leads or node in self.fetching:
            return
        if target is None:
            others = [other for other in self.replicas if other != node]
            target = int(core.leader_id) if core.leader_id >= 0 else self.rng.choice(others)
        if self.replicas[target].core is None or {(node, target), (target, node)} & self.disconnected:
            return
        view, asked = replica.view(), target
        request = Fetch(replica.me, core.epoch, view.log_end, view.last_epoch, view.durable_offset)
        self.fetching.add(node)
        sent = (self._at(), replica.incarnation)

        def answered(answer: Answer) -> None:
            leader = self.replicas[asked]
            records = leader.entries[request.offset :] if isinstance(answer.answer, LogsAgree) else []
            hint = LeaderAndEpoch(self.core(asked).epoch, self.core(asked).leader_id)
            mark = leader.high_watermark
            if isinstance(answer.answer, LogsAgree) and not answer.answer.is_voter:
                records = leader.entries[request.offset : mark]
            self._send(asked, node, lambda: self._take(node, asked, sent, request, answer, records, hint, mark))

        self._send(node, asked, lambda: self._ask(asked, lambda n: Requested(n, self._at(), request), answered))

    def _take(
        self,
        node: int,
        asked: int,
        sent: tuple[Millis, int],
        request: Fetch,
        answer: Answer,
        records: list[Entry],
        hint: LeaderAndEpoch,
        mark: int,
    ) -> None:
        self.fetching.discard(node)
        replica = self.replicas[node]
        asked_at, incarnation = sent
        if replica.core is None or replica.incarnation != incarnation:
            return
        match answer.answer:
            case TidelogError():
                self.give(node, LeaderReported(self._at(), hint.epoch, hint.leader_id, NodeId(asked)))
                return
            case LogsAgree():
                result: NewRecords | LogsDiverge | BelowLogStart = NewRecords(Offset(mark))
            case LogsDiverge() | BelowLogStart():
                result = answer.answer
            case _:
                raise AssertionError(answer)
        event = FetchAnswered(self._at(), asked_at, hint.leader_id, hint.epoch, request.offset, result)
        for effect in replica.core.handle(event):
            match effect:
                case TakeRecords(high_watermark):
                    replica.entries.extend(records)
                    self._commit(replica, min(high_watermark, len(replica.entries)))
                case TruncateMetadataLog(offset):
                    assert offset >= replica.high_watermark, "no committed record is truncated"
                    del replica.entries[offset:]
                    replica.durable_offset = min(replica.durable_offset, offset)
                case _:
                    self._execute(node, replica, effect)
        self.give(node, MetadataLogChanged(self._at(), replica.view()))

    def _at(self) -> Millis:
        return Millis(self.now)

    # --- invariants ---

    def check(self) -> None:
        for node, replica in self.replicas.items():
            core = replica.core
            if core is None:
                continue
            if core.leads:
                first = self.leaders.setdefault(core.epoch, node)
                assert first == node, f"epoch {core.epoch} is led by {first} and by {node}"
            reached = replica.high_watermark
            assert replica.entries[:reached] == self.committed[:reached], "a committed record is missing"
        for replica in self.replicas.values():
            self._matches(replica)
        newest = self.active()
        if newest is not None and self.core(newest).epoch >= max(self.leaders, default=0):
            assert self.replicas[newest].entries[: len(self.committed)] == self.committed, (
                "the leader lacks committed records"
            )

    def _matches(self, replica: Replica) -> None:
        """Log matching: the same epoch at the same offset means the same record, and the same before it."""
        for offset, entry in enumerate(replica.entries):
            known = self.matching.setdefault((offset, entry.epoch), entry)
            assert known == entry, f"two records of epoch {entry.epoch} at offset {offset}: {known}, {entry}"
        assert all(a.epoch <= b.epoch for a, b in pairwise(replica.entries))
