"""The states of a waiting fetch: the table, and the real session under random fetches, disks, deadlines and leaders."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node.api.fetch import FetchRequest
from node.listeners.grpc.server import ANSWER_COPIES
from node.replicas.fetch_state import MOVES, READING, FetchCause, FetchState
from node.replicas.waiting_fetch import AT_ONCE, FetchOutbox, WaitingFetch
from node.requests.fetch_session import FetchSession
from node.runtime.memory_budget import Kind, MemoryBudget
from storage.append_info import Origin
from storage.files.disk_executor import InlineExecutor
from storage.isolation import FetchIsolation
from tests.node.wires import CALLER, Cluster, HeldExecutor, as_value, batch, endpoint_of, fetch_request
from tests.record_values import collected
from tidelog.record_exchange import FetchedPartition
from tidelog.types import NO_LEADER_EPOCH, Acks, Millis, NodeId, Offset

TABLE = """
             WAITING  READY    SHORT  QUEUED  CALLED   READING  READ     ENDED
RECORDS      READY    =        =      =       =        =        =        -
DUE          READY    =        READY  =       =        =        =        -
TICK         -        -        READY  -       -        -        -        -
NOTHING      -        WAITING  -      -       WAITING  -        WAITING  -
FEW          -        SHORT    -      -       SHORT    -        SHORT    -
NO_PLACE     -        QUEUED   -      -       -        -        -        -
READ_BEGUN   -        READING  -      -       READING  -        READING  -
PLACE_FREE   -        -        -      CALLED  -        -        -        -
READ_ENDED   -        -        -      -       -        READ     -        -
READ_FAILED  -        -        -      -       -        READY    -        -
END          ENDED    ENDED    ENDED  ENDED   ENDED    ENDED    ENDED    -
"""
"""=: legal, without effect. -: illegal."""

PARTITIONS = 2 * AT_ONCE
MAX_BYTES = 1 << 20
SOME = st.sampled_from([range(1), range(3, 4), range(AT_ONCE + 2), range(2, PARTITIONS), range(PARTITIONS)])


def test_the_table_of_moves_is_complete() -> None:
    states, *rows = [line.split() for line in TABLE.strip().splitlines()]
    expected = {
        (row[0], before): before if after == "=" else after
        for row in rows
        for before, after in zip(states, row[1:], strict=True)
        if after != "-"
    }
    moves = {(cause.name, before.name): after.name for cause in MOVES for before, after in MOVES[cause].items()}
    assert moves == expected
    assert {row[0] for row in rows} == {cause.name for cause in FetchCause}
    assert set(states) == {state.name for state in FetchState}


def test_an_illegal_move_names_the_fetch_its_state_and_the_cause() -> None:
    outbox = FetchOutbox(
        lambda: None, lambda size: MemoryBudget(size).charge(Kind.CONSUMER_FETCH, size), lambda *_: None
    )
    fetch = WaitingFetch(
        outbox,
        17,
        bytes(15) + b"\x05",
        3,
        Offset(0),
        NO_LEADER_EPOCH,
        NO_LEADER_EPOCH,
        MAX_BYTES,
        1,
        Millis(0),
        None,
        FetchIsolation.HIGH_WATERMARK,
        "",
        refused=False,
        request=None,
    )
    with pytest.raises(AssertionError, match=r"^fetch 17 of partition 0+5-3: READ_ENDED in WAITING"):
        outbox.move(fetch, FetchCause.READ_ENDED)


class Fetches(RuleBasedStateMachine):
    """One session after the other, of a consumer or a follower. The test releases the disk's reads one by one."""

    @initialize(is_follower=st.booleans(), is_cold=st.booleans())
    def begin(self, *, is_follower: bool, is_cold: bool) -> None:
        self.is_follower = is_follower
        self.cluster = cluster = Cluster(2 if is_follower else 1, partitions=PARTITIONS)
        cluster.wires.unreachable.add(endpoint_of(1))
        for index in range(PARTITIONS):
            cluster.set(index, leader=NodeId(1), publish=False)
        cluster.publish()
        cluster.run(0.1)
        self.reader = HeldExecutor()
        self.reader.holding = True
        cluster.directory(1).reader = self.reader
        self.fetch_id = 0
        self.open: dict[int, int] = {}
        """The fetches that are to be answered: the partition of each."""
        self.answered: set[int] = set()
        self.session = self.opened()
        self.append(range(PARTITIONS))
        self.use_memory(is_cold=is_cold)

    def opened(self) -> FetchSession:
        self.outboxes = [*getattr(self, "outboxes", ()), (session := self.cluster.sessions(1).open(CALLER)).outbox]
        return session

    @property
    def outbox(self) -> FetchOutbox:
        return self.session.outbox

    def request(self, index: int, offset: int, max_wait_ms: int, min_bytes: int) -> FetchRequest:
        self.fetch_id += 1
        epoch = int(self.cluster.state(index).leader_epoch)
        request = fetch_request(
            offset,
            index=index,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=MAX_BYTES,
            epoch=epoch,
            last_epoch=int(self.cluster.log(1, index).last_epoch) if self.is_follower and offset else -1,
            fetch_id=self.fetch_id,
        )
        if self.is_follower:
            request.partitions[0].durable_offset = offset
            request.replica.node_id, request.replica.incarnation = 2, self.cluster.machines[2].incarnation.bytes
        return as_value(request)

    # --- what happens ---

    @rule(
        indexes=SOME,
        at=st.sampled_from(["start", "start", "end", "end", "beyond"]),
        max_wait_ms=st.sampled_from([0, 200, 2_000]),
        min_bytes=st.sampled_from([1, 1_000, 100_000]),
    )
    def fetch(self, indexes: range, at: str, max_wait_ms: int, min_bytes: int) -> None:
        for index in indexes:
            end = self.cluster.log(1, index).log_end_offset
            offset = {"start": 0, "end": end, "beyond": end + 5}[at]
            for replaced in [each for each, partition in self.open.items() if partition == index]:
                if replaced not in self.unsent():
                    del self.open[replaced]
            request = self.request(index, offset, max_wait_ms, min_bytes)
            self.open[self.fetch_id] = index
            self.session.take(request)

    @rule(indexes=SOME)
    def append(self, indexes: range) -> None:
        before = self.ready()
        for index in indexes:
            self.cluster.partition(1, index).leading_in(NO_LEADER_EPOCH).produce(
                batch(b"x" * 50),
                origin=Origin.CLIENT,
                acks=Acks.LEADER,
                deadline=Millis(1 << 60),
                done=ignore,
            )
        self.assert_order(before)

    @rule(is_cold=st.booleans())
    def use_memory(self, *, is_cold: bool) -> None:
        """The page cache has everything, or nothing."""
        self.cluster.machines[1].disk.is_cold = (lambda path: path.endswith(".log")) if is_cold else None

    @precondition(lambda self: self.reader._waiting)
    @rule(fails=st.booleans())
    def read_one(self, *, fails: bool) -> None:
        before, disk = self.ready(), self.cluster.machines[1].disk
        if fails:
            disk.fail("read", ".log")
        work, done = self.reader._waiting.pop(0)
        InlineExecutor().submit(work, done)
        disk.heal()
        self.assert_order(before)

    @rule(ms=st.sampled_from([60, 250, 2_500]))
    def wait(self, ms: int) -> None:
        before = self.ready()
        self.cluster.run(ms / 1000)
        self.assert_order(before)

    @rule(enough=st.sampled_from([1, 100, 1 << 20]))
    def collect(self, enough: int) -> None:
        """As the next message does: what was read from disk first."""
        if self.outbox.read:
            self.collect_read()
            return
        before = self.ready()
        self.note(collected(self.session, enough), before)
        self.assert_order(before)

    def collect_read(self) -> None:
        before, read = self.ready(), [fetch.correlation_id for fetch in self.outbox.read]
        self.note(collected(self.session, read=True), read)
        assert not [each for each in self.outbox.read if each.correlation_id in read], "all of them were tried"
        self.assert_order(before)

    @rule(index=st.integers(0, PARTITIONS - 1))
    def lead_again(self, index: int) -> None:
        waiting = [each for each, _ in self.session._open.values() if each.index == index]
        self.cluster.set(index, leader=NodeId(1))
        left = {FetchState.WAITING, FetchState.QUEUED, FetchState.READING}  # others are tried again, and rejected then
        assert not any(each.state in left for each in waiting), "a new leadership answers the waiting fetches"

    @rule()
    def close(self) -> None:
        self.cluster.sessions(1).close(self.session)
        assert self.session.idle or self.outbox.answers, "nothing is open"
        self.open.clear()
        self.session = self.opened()

    # --- what holds ---

    def unsent(self) -> set[int]:
        """The fetches whose answers are complete."""
        return {answer.correlation_id for answer in self.outbox.answers if not answer.waits}

    def ready(self) -> list[int]:
        return [fetch.correlation_id for fetch in self.outbox.ready]

    def assert_order(self, before: list[int]) -> None:
        """Those that were ready and still are precede those that became ready."""
        after = self.ready()
        stayed = [each for each in before if each in after]
        assert after[: len(stayed)] == stayed

    def note(self, answers: list[FetchedPartition], tried: list[int]) -> None:
        answers = [answer for answer in answers if not answer.waits]
        for answer in answers:
            assert answer.correlation_id not in self.answered, "answered twice"
            self.answered.add(answer.correlation_id)
            assert self.open.pop(answer.correlation_id) == answer.partition
        order = [answer.correlation_id for answer in answers if answer.correlation_id in tried]
        assert order == [each for each in tried if each in order], "in the order in which they became ready"

    @invariant()
    def each_fetch_is_in_the_queue_of_its_state(self) -> None:
        fetches = [fetch for fetch, _ in self.session._open.values()]
        queues = {
            ("READY", "CALLED"): self.outbox.ready,
            ("SHORT",): self.outbox.short,
            ("READ",): self.outbox.read,
            ("QUEUED",): self.outbox._queue,
        }
        for names, queue in queues.items():
            assert set(queue) == {fetch for fetch in fetches if fetch.state.name in names}
        assert all(fetch.state is not FetchState.ENDED for fetch in fetches)
        assert all((fetch.result is not None) == (fetch.state is FetchState.READ) for fetch in fetches)
        assert {fetch.correlation_id for fetch in fetches} | self.unsent() == set(self.open), "no fetch is lost"

    @invariant()
    def reads_have_places_and_memory(self) -> None:
        states = [fetch.state for fetch, _ in self.session._open.values()]
        outbox = self.outbox
        assert outbox._called == states.count(FetchState.CALLED)
        assert outbox.reads + outbox._called <= AT_ONCE
        assert outbox.is_full or not outbox._queue, "no fetch waits for a free place"
        under_way = len(self.reader._waiting)
        reads = sum(each.reads for each in self.outboxes)
        assert reads == under_way + states.count(FetchState.READ)
        assert under_way >= states.count(READING)
        used = self.cluster.manager(1).memory.figures.used
        kind = Kind.FOLLOWER_FETCH if self.is_follower else Kind.CONSUMER_FETCH
        assert used[kind] == reads * ANSWER_COPIES * MAX_BYTES

    def teardown(self) -> None:
        """With a disk that answers and time that passes, every fetch is answered, and nothing remains."""
        if hasattr(self, "cluster"):
            try:
                self.finish()
            finally:
                self.cluster.close()

    def finish(self) -> None:
        for _ in range(30):
            while self.reader._waiting:
                self.read_one(fails=False)
            self.cluster.run(0.1)
            self.collect(1 << 20)
            if self.is_follower and not self.reader._waiting:
                for index in set(self.open.values()):
                    self.cluster.set(index, leader=NodeId(1))
        self.each_fetch_is_in_the_queue_of_its_state()
        assert not self.open
        assert not any(self.cluster.manager(1).memory.figures.used.values())
        self.cluster.loop.raise_defects()


def ignore(*_outcome: object) -> None: ...


TestFetches = Fetches.TestCase
TestFetches.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
