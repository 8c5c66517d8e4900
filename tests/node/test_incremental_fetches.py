"""Fetches of incremental fetch sessions (KIP-227) at a leader: what has nothing new is not mentioned, and costs
nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from node.api.fetch import NEW_SESSION, NO_SESSION, FetchRequest, PartitionFetch, SessionFetch
from node.replicas.waiting_fetch import AT_ONCE
from node.requests import incremental_fetches
from node.requests.context import RequestContext
from node.requests.fetch_session import FetchSession
from node.requests.incremental_fetches import AGAIN_MAX, AGAIN_MS, RACK_LENGTH_MAX, REOPEN_MS, SUSPEND_MS
from node.runtime.memory_budget import AnswerCharge, Kind
from node.security.authorizer import Authorizer
from tests.fakes.log_start import delete_records
from tests.node.marker_requests import batch as transactional
from tests.node.wires import CALLER, TOPIC, Cluster, batch
from tidelog.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from tidelog.record_exchange import FetchAnswer
from tidelog.types import Isolation, NodeId, Offset

MANY = 40
WAIT_MS = 500


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1, partitions=MANY)
    for index in range(MANY):
        cluster.set(index, leader=NodeId(1), publish=False)
    cluster.publish()
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


@dataclass
class Client:
    """A consumer with a session, as Java's and franz-go's: it names what has changed since the last answer."""

    cluster: Cluster
    offsets: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(MANY), 0))
    session_id: int = 0
    epoch: int = NEW_SESSION
    named: dict[int, int] = field(default_factory=dict)
    """The offsets that the node knows."""
    read: dict[int, bytes] = field(default_factory=dict)
    caller: RequestContext = CALLER
    max_wait_ms: int = WAIT_MS
    fields: dict[str, Any] = field(default_factory=dict)
    topic: bytes = TOPIC.bytes

    def request(self, *, offsets: dict[int, int] | None = None, forgotten: tuple[int, ...] = ()) -> FetchRequest:
        changed = {each: at for each, at in self.offsets.items() if self.named.get(each) != at}
        asked = changed if offsets is None else offsets
        gone = [each for each in self.named if each not in self.offsets]
        return FetchRequest(
            None,
            self.max_wait_ms,
            self.fields.get("min_bytes", 1),
            self.fields.get("isolation", Isolation.READ_UNCOMMITTED),
            [
                PartitionFetch(self.topic, each, Offset(at), max_bytes=self.fields.get("partition_max_bytes", 1 << 20))
                for each, at in asked.items()
            ],
            rack=self.fields.get("rack", ""),
            max_bytes=self.fields.get("max_bytes", 1 << 20),
            session=SessionFetch(
                self.session_id, self.epoch, by_id=True, forgotten=[(self.topic, each) for each in (*gone, *forgotten)]
            ),
        )

    async def send(self, **changes: Any) -> FetchAnswer:
        answer: FetchAnswer = await self.cluster.data(1).fetch(self.request(**changes), self.caller)
        return answer

    def begin(self, **changes: Any) -> asyncio.Task[FetchAnswer]:
        """Send the next request, and let it wait."""
        task = self.cluster.loop.create_task(self.send(**changes))
        self.cluster.run(0.001)
        return task

    def take(self, answer: FetchAnswer, batch_bytes: int | None = None) -> list[int]:
        """Use an answer. Returns the partitions that it mentions. batch_bytes: of each batch, which has one record;
        None: the answer has all records of its partitions."""
        self.named = dict(self.offsets)
        self.session_id, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        if not answer.session_id:
            self.named.clear()
        for each in answer.partitions:
            if each.records:
                self.read[each.partition] = self.read.get(each.partition, b"") + bytes(each.records)
                if batch_bytes is None:
                    self.offsets[each.partition] = int(each.high_watermark)
                else:
                    self.offsets[each.partition] += len(each.records) // batch_bytes
        return [each.partition for each in answer.partitions]

    def fetch(self, **changes: Any) -> list[int]:
        """Send the next request and use its answer. Returns the partitions that it mentions."""
        return self.take(self.cluster.wait(self.send(**changes)))


@pytest.fixture
def client(cluster: Cluster) -> Client:
    """With a session that knows everything."""
    client = Client(cluster)
    assert client.fetch() == [*range(MANY)], "a full answer has every partition"
    assert client.fetch() == []
    return client


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions for which a fetch is opened, one number each time."""
    numbers: list[int] = []
    open_one = FetchSession._open_one

    def recorded(session: FetchSession, item: PartitionFetch, *rest: Any) -> None:
        numbers.append(item.partition)
        open_one(session, item, *rest)

    monkeypatch.setattr(FetchSession, "_open_one", recorded)
    return numbers


def test_only_partitions_with_records_are_mentioned_and_opened_again(
    cluster: Cluster, client: Client, opened: list[int]
) -> None:
    waiting = client.begin()
    cluster.produce(1, batch(b"a"), index=7)
    assert client.take(cluster.wait(waiting)) == [7]
    assert client.read[7] == cluster.contents(1, 7)
    assert client.fetch() == []
    assert opened == [7], "at its next offset"


def test_a_request_is_answered_at_its_deadline_with_nothing(cluster: Cluster, client: Client) -> None:
    began = cluster.loop.time()
    assert client.fetch() == []
    assert WAIT_MS <= (cluster.loop.time() - began) * 1_000 < WAIT_MS + 100
    client.max_wait_ms = 0
    began = cluster.loop.time()
    assert client.fetch() == []
    assert cluster.loop.time() - began < 0.01


def test_what_comes_between_two_requests_is_in_the_next_answer(cluster: Cluster, client: Client) -> None:
    for index in (3, 30, 12):
        cluster.produce(1, batch(b"a"), index=index)
    assert client.fetch() == [3, 30, 12], "what was ready first comes first: no partition starves"
    assert client.fetch() == []


def test_an_answer_is_limited_and_the_rest_follows(cluster: Cluster, client: Client) -> None:
    size = len(batch(b"x" * 1_000))
    for index in range(10):
        cluster.produce(1, batch(b"x" * 1_000), index=index)
    client.fields["max_bytes"] = 3 * size + 10
    while (before := len(client.read)) < 10:
        client.fetch()
        assert before < len(client.read) <= before + 3
    assert all(client.read[index] == cluster.contents(1, index) for index in range(10))


def test_partitions_with_backlogs_take_turns(cluster: Cluster, client: Client) -> None:
    """Also if one fills an answer, and is named again each time. As in Kafka, those with records are the last then."""
    size = len(batch(b"x" * 1_000))
    for index in (1, 2, 3):
        for _ in range(20):
            cluster.produce(1, batch(b"x" * 1_000), index=index)
    client.fields.update(max_bytes=3 * size + size // 2, partition_max_bytes=3 * size + size // 2)
    answered = []
    for _ in range(6):
        answer = cluster.wait(client.send())
        answered.append({each.partition: len(each.records) // size for each in answer.partitions if each.records})
        client.take(answer, batch_bytes=size)
    assert answered == [{1: 3}, {2: 3}, {3: 3}] * 2


def test_a_fetch_that_had_little_room_has_all_of_it_the_next_time(cluster: Cluster, client: Client) -> None:
    """What is left of one answer must not limit the fetches that keep waiting."""
    client.fields.update(max_bytes=200, isolation=Isolation.READ_UNCOMMITTED)
    cluster.produce(1, batch(b"x" * 150), index=1)
    assert client.fetch() == [1]
    cluster.produce(1, *(batch(b"y" * 50) for _ in range(3)), index=2)
    client.fields["max_bytes"] = 1 << 20
    assert client.fetch() == [2]
    assert client.read[2] == cluster.contents(1, 2)


def test_few_bytes_are_answered_together_once_they_are_enough(cluster: Cluster, client: Client) -> None:
    size = len(batch(b"x" * 100))
    client.fields["min_bytes"] = 2 * size
    waiting = client.begin()
    cluster.produce(1, batch(b"x" * 100), index=1)
    cluster.run(0.2)
    assert not waiting.done()
    cluster.produce(1, batch(b"x" * 100), index=2)
    assert client.take(cluster.wait(waiting)) == [1, 2]
    cluster.produce(1, batch(b"x" * 100), index=3)
    assert client.fetch() == [3], "or at the deadline"


@pytest.mark.parametrize("is_cold", [False, True])
def test_without_a_wait_there_is_no_least_number_of_bytes(cluster: Cluster, client: Client, is_cold: bool) -> None:
    """Also for records that are first looked at when the wait is over, as those that come from a disk."""
    client.fields["min_bytes"] = 1_000
    client.max_wait_ms = 0
    assert client.fetch() == []
    for index in (1, 2):
        cluster.produce(1, batch(b"x" * 100), index=index)
    cluster.machines[1].disk.is_cold = lambda path: is_cold and path.endswith(".log")
    while len(client.read) < 2:
        assert client.fetch() != []
    assert client.read[1] == cluster.contents(1, 1)


def test_without_a_least_number_of_bytes_there_is_no_wait(cluster: Cluster, client: Client, opened: list[int]) -> None:
    """Such a client asks all the time: it must not cost all of its partitions each time."""
    client.fields["min_bytes"] = 0
    began = cluster.loop.time()
    assert client.fetch() == []
    assert cluster.loop.time() - began < 0.01
    cluster.produce(1, batch(b"a"), index=7)
    assert client.fetch() == [7]
    for _ in range(3):
        assert client.fetch() == []
    assert opened == [7]


def test_each_request_says_how_many_bytes_are_enough(cluster: Cluster, client: Client, opened: list[int]) -> None:
    """Also of fetches that an earlier request has opened, which are not opened again for that."""
    client.fields["min_bytes"] = 1_000
    waiting = client.begin()
    cluster.produce(1, batch(b"x" * 100), index=1)
    cluster.run(0.2)
    assert not waiting.done()
    assert client.take(cluster.wait(waiting)) == [1], "at the deadline"
    client.fields["min_bytes"] = 1
    waiting = client.begin()
    cluster.produce(1, batch(b"x" * 100), index=2)
    assert client.take(cluster.wait(waiting, within=0.2)) == [2]
    assert opened == [1], "only where it has read"


def test_each_request_says_whether_it_reads_open_transactions(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(incremental_fetches, "REOPENED_MAX", 0)  # the fetches stay those of the first request
        client.fields["isolation"] = Isolation.READ_COMMITTED
        cluster.produce(1, transactional(0))
        assert client.fetch() == [0], "the high watermark"
        assert client.fetch() == []
        assert not client.read
    client.fields["isolation"] = Isolation.READ_UNCOMMITTED
    assert client.fetch() == [0]
    assert client.read[0] == cluster.contents(1, 0)


@pytest.mark.parametrize("why", ["they are old", "another rack"])
def test_a_request_opens_a_part_of_the_fetches_again(
    cluster: Cluster, client: Client, opened: list[int], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """All of a session of 10,000 partitions would stop the node for some 100 ms, every ten seconds."""
    monkeypatch.setattr(incremental_fetches, "REOPENED_MAX", 15)
    client.max_wait_ms = 0
    if why == "they are old":
        cluster.run(REOPEN_MS / 1_000)
    else:
        client.fields["rack"] = "r2"
    for count in (15, 15, MANY - 30, 0):
        opened.clear()
        assert client.fetch() == []
        assert len(opened) == count
    racks = [fetch.rack for index in range(MANY) for fetch in cluster.partition(1, index)._readers]
    assert racks == [client.fields.get("rack", "")] * MANY, "each is open, and once"


def test_a_watermark_or_log_start_that_moved_is_told_without_records(cluster: Cluster, client: Client) -> None:
    """Consumers compute their lag from it. The log start moves under a consumer that is at the end."""
    cluster.produce(1, batch(b"a"), index=5)
    assert client.fetch() == [5]
    assert client.fetch() == []
    delete_records(cluster.log(1, 5), Offset(1))
    cluster.partition(1, 5).log_start_moved()
    answer = cluster.wait(client.send())
    assert [(each.partition, each.log_start_offset, each.records) for each in answer.partitions] == [(5, 1, b"")]
    client.take(answer)
    assert client.fetch() == []


def test_an_error_is_repeated_until_it_is_over(cluster: Cluster, client: Client) -> None:
    """The client does not name the partition again, and must not be left without it."""
    cluster.set(4, leader=NodeId(-1))
    for _ in range(2):
        answer = cluster.wait(client.send())
        assert [(each.partition, type(each.error)) for each in answer.partitions] == [(4, NotLeaderOrFollower)]
        client.take(answer)
    cluster.set(4, leader=NodeId(1))
    answer = cluster.wait(client.send())
    assert [(each.partition, each.error) for each in answer.partitions] == [(4, None)], "that it is over is news"
    client.take(answer)
    cluster.produce(1, batch(b"a"), index=4)
    assert client.fetch() == [4]


def unknown(count: int) -> dict[int, int]:
    """Partitions that the topic does not have."""
    return dict.fromkeys(range(MANY, MANY + count), 0)


def test_an_error_that_the_client_knows_is_told_again_slowly(cluster: Cluster, client: Client) -> None:
    """A client that fetches at once after each answer would otherwise ask without a pause."""
    client.offsets.update(unknown(1))
    began = cluster.loop.time()
    assert client.fetch() == [MANY]
    assert cluster.loop.time() - began < 0.01, "the first time at once"
    for _ in range(3):
        began = cluster.loop.time()
        assert client.fetch() == [MANY]
        assert AGAIN_MS - 1 < (cluster.loop.time() - began) * 1_000 < AGAIN_MS + 50
    waiting = client.begin()
    cluster.produce(1, batch(b"a"), index=7)
    began = cluster.loop.time()
    assert client.take(cluster.wait(waiting)) == [7, MANY]
    assert cluster.loop.time() - began < 0.01, "records are not delayed"


def test_a_small_request_has_no_large_answer(cluster: Cluster, client: Client) -> None:
    """A session may have thousands of partitions with errors. All are told, some in each answer."""
    client.offsets.update(unknown(2 * AGAIN_MAX + 10))
    assert len(client.fetch()) == 2 * AGAIN_MAX + 10, "the request names them"
    told = [client.fetch() for _ in range(3)]
    assert [len(each) for each in told] == [AGAIN_MAX] * 3
    assert {*told[0], *told[1], *told[2]} == {*unknown(2 * AGAIN_MAX + 10)}
    client.max_wait_ms = 0
    assert len(client.fetch()) == AGAIN_MAX
    for each in unknown(2 * AGAIN_MAX + 10):
        del client.offsets[each]
    assert client.fetch() == [], "they are forgotten"


def test_errors_of_a_new_session_are_not_told_at_once_again(cluster: Cluster) -> None:
    client = Client(cluster)
    client.offsets.update(unknown(AGAIN_MAX + 1))
    client.fetch()
    began = cluster.loop.time()
    assert len(client.fetch()) == AGAIN_MAX
    assert (cluster.loop.time() - began) * 1_000 > AGAIN_MS - 1
    cluster.run(SUSPEND_MS / 1_000 + 1)
    assert len(client.fetch()) == AGAIN_MAX


def test_a_partition_is_read_soon_after_its_error_is_over(cluster: Cluster, client: Client) -> None:
    """The client has the right leader, and names it no more. It must not wait as long as for records."""
    for index in range(MANY):
        cluster.set(index, leader=NodeId(-1), publish=False)
    cluster.publish()
    client.max_wait_ms = 60_000
    assert client.fetch() == [*range(MANY)]
    assert sorted(client.fetch()) == [*range(MANY)]
    waiting = client.begin()
    for index in range(MANY):
        cluster.set(index, leader=NodeId(1), publish=False)
    cluster.publish()
    cluster.produce(1, batch(b"a"), index=9)
    assert sorted(client.take(cluster.wait(waiting, within=0.2))) == [*range(MANY)]
    assert 9 in client.take(cluster.wait(client.send(), within=0.2))


def test_an_error_ends_the_wait(cluster: Cluster, client: Client) -> None:
    waiting = client.begin()
    cluster.set(4, leader=NodeId(-1))
    assert client.take(cluster.wait(waiting, within=0.2)) == [4]


def test_a_position_out_of_range_is_an_error_of_one_partition(cluster: Cluster, client: Client) -> None:
    client.offsets[2] = 100
    answer = cluster.wait(client.send())
    assert [(each.partition, type(each.error)) for each in answer.partitions] == [(2, OffsetOutOfRange)]


def test_forgotten_partitions_are_not_answered_and_unknown_ones_do_no_harm(cluster: Cluster, client: Client) -> None:
    del client.offsets[6]
    waiting = client.begin(forgotten=(99, -1, 2**31 - 1))
    cluster.produce(1, batch(b"a"), index=6)
    cluster.run(0.1)
    assert not waiting.done()
    cluster.produce(1, batch(b"a"), index=8)
    assert client.take(cluster.wait(waiting)) == [8]
    client.offsets[6] = 0
    assert client.fetch() == [6], "it was added again"


def test_a_session_without_partitions_ends(cluster: Cluster, client: Client) -> None:
    client.offsets.clear()
    assert client.fetch() == []
    assert client.session_id == 0
    assert not cluster.machines[1].fetch_sessions.partitions


def test_a_topic_that_is_gone_is_told_by_its_former_id(cluster: Cluster, client: Client) -> None:
    client.topic = bytes(16)
    answer = cluster.wait(client.send(offsets={3: 0}))
    assert [(each.topic_id, type(each.error)) for each in answer.partitions] == [(bytes(16), UnknownTopicId)]
    with_it = cluster.machines[1].fetch_sessions.partitions
    client.take(answer)
    client.fetch(offsets={}, forgotten=(3,))
    assert cluster.machines[1].fetch_sessions.partitions == with_it - 1


def test_a_later_request_ends_the_one_that_waits(cluster: Cluster, client: Client) -> None:
    """The client has given up waiting: what comes belongs to the later request."""
    earlier = client.begin()
    client.epoch += 1
    later = client.begin()
    cluster.run(0.001)
    assert isinstance(earlier.exception(), InvalidFetchSessionEpoch)
    cluster.produce(1, batch(b"a"), index=7)
    assert client.take(cluster.wait(later)) == [7]


def test_a_request_that_has_waited_for_memory_takes_nothing_from_a_later_one(cluster: Cluster, client: Client) -> None:
    memory = cluster.manager(1).memory
    others = memory.charge(Kind.PRODUCE, memory.limit)
    cluster.produce(1, batch(b"a"), index=7)
    earlier = client.begin()
    client.epoch += 1
    later = client.begin()
    assert memory.figures.waiting[Kind.CONSUMER_FETCH] == 2
    others.release()
    cluster.run(0.001)
    assert isinstance(earlier.exception(), InvalidFetchSessionEpoch)
    answer = cluster.wait(later)
    assert client.take(answer) == [7]
    assert client.read[7] == cluster.contents(1, 7)
    assert isinstance(answer.charge, AnswerCharge)
    answer.charge.release()
    assert not memory.figures.used[Kind.CONSUMER_FETCH]


def test_a_client_that_is_gone_leaves_a_session_that_can_continue(cluster: Cluster, client: Client) -> None:
    waiting = client.begin()
    waiting.cancel()
    cluster.produce(1, batch(b"a"), index=7)
    cluster.run(0.1)
    client.epoch += 1
    assert client.fetch() == [7]


@pytest.mark.parametrize("epoch", [NEW_SESSION, NO_SESSION])
def test_a_full_request_ends_the_session_that_it_names(cluster: Cluster, client: Client, epoch: int) -> None:
    former, next_epoch = client.session_id, client.epoch
    client.epoch, client.named = epoch, {}
    client.max_wait_ms = 0
    assert client.fetch() == [*range(MANY)]
    assert (client.session_id != 0) is (epoch == NEW_SESSION)
    client.session_id, client.epoch = former, next_epoch
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(offsets={})


def test_the_session_of_another_caller_does_not_exist(cluster: Cluster, client: Client) -> None:
    client.caller = replace(CALLER, principal="User:other")
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch()
    client.epoch, mine = NO_SESSION, client.epoch
    client.fetch(offsets={0: 0})
    client.caller, client.epoch = CALLER, mine
    del client.offsets[0]


@dataclass(frozen=True)
class Forbids(Authorizer):
    """Reading, while `now` has an element."""

    now: list[bool] = field(default_factory=list)

    def topic_refusal(self, _caller: Any, _api: Any, _topic: str, *, by_id: bool = False) -> TidelogError | None:
        del by_id
        return TopicAuthorizationFailed("no") if self.now else None


def test_a_permission_that_was_taken_away_is_noticed(cluster: Cluster) -> None:
    """With the next records before they are sent; without any, when the fetches are opened again."""
    rules = Forbids()
    client = Client(cluster, offsets={1: 0, 2: 0}, caller=replace(CALLER, authorizer=rules))
    client.fetch()
    client.fetch()
    rules.now.append(True)
    cluster.produce(1, batch(b"secret"), index=1)
    answer = cluster.wait(client.send())
    assert [(each.partition, type(each.error), each.records) for each in answer.partitions] == [
        (1, TopicAuthorizationFailed, b"")
    ]
    client.take(answer)
    cluster.run(REOPEN_MS / 1_000)
    answer = cluster.wait(client.send())
    assert {each.partition for each in answer.partitions} == {1, 2}


def test_a_session_that_is_not_used_has_no_open_fetches(cluster: Cluster, client: Client, opened: list[int]) -> None:
    assert all(cluster.partition(1, index)._readers for index in range(MANY))
    cluster.run(SUSPEND_MS / 1_000 + 1)
    assert not any(cluster.partition(1, index)._readers for index in range(MANY))
    cluster.produce(1, batch(b"a"), index=9)
    assert client.fetch() == [9]
    assert sorted(opened) == [*range(MANY)]


def test_a_request_may_take_longer_than_a_session_is_kept_without_any(cluster: Cluster, client: Client) -> None:
    """It waits for memory that clients occupy which read slowly."""
    memory = cluster.manager(1).memory
    others = memory.charge(Kind.PRODUCE, memory.limit)
    cluster.produce(1, batch(b"a"), index=7)
    waiting = client.begin()
    cluster.run(SUSPEND_MS / 1_000 + 1)
    others.release()
    assert client.take(cluster.wait(waiting)) == [7]
    cluster.run(SUSPEND_MS / 1_000 + 1)
    assert not any(cluster.partition(1, index)._readers for index in range(MANY))


@pytest.mark.parametrize("stays", [True, False])
def test_records_that_are_read_from_disk_occupy_no_memory_between_requests(
    cluster: Cluster, client: Client, stays: bool
) -> None:
    """Also if the client leaves while the disk reads. What is read for more than one answer is read again."""
    machine = cluster.machines[1]
    for index in range(12):
        cluster.produce(1, batch(b"x" * 10_000), index=index)
    machine.disk.is_cold = lambda path: path.endswith(".log")
    machine.executor.holding = True
    client.fields["max_bytes"] = 25_000
    waiting = client.begin()
    assert len(machine.executor._waiting) == AT_ONCE
    if not stays:
        waiting.cancel()
        cluster.run(0.001)
    machine.executor.release()
    if stays:
        assert len(client.take(cluster.wait(waiting))) >= 2
        del waiting
    else:
        client.epoch += 1
    cluster.run(0.1)
    gc.collect()
    assert not cluster.manager(1).memory.figures.used[Kind.CONSUMER_FETCH]
    while len(client.read) < 12:
        client.fetch()
    assert all(client.read[index] == cluster.contents(1, index) for index in range(12))


@pytest.mark.parametrize(("length", "kept"), [(RACK_LENGTH_MAX, RACK_LENGTH_MAX), (RACK_LENGTH_MAX + 1, 0)])
def test_a_rack_that_no_node_has_is_not_kept(cluster: Cluster, client: Client, length: int, kept: int) -> None:
    """It may be as long as a request, and open fetches stay."""
    client.fields["rack"] = "r" * length
    client.fetch()
    assert {len(fetch.rack) for index in range(MANY) for fetch in cluster.partition(1, index)._readers} == {kept}


def test_a_node_that_stops_ends_the_wait(cluster: Cluster, client: Client) -> None:
    waiting = client.begin()
    cluster.wait(cluster.manager(1).stop())
    cluster.sessions(1).stop()
    cluster.run(0.1)
    assert waiting.done()
    assert isinstance(waiting.exception(), TidelogError) or waiting.result().partitions
