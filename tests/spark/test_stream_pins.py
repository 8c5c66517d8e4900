"""Where a streaming query begins: a pin that is not in the log any more, a pin that is gone, offsets that do not move.

The tests make the calls that Spark makes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.stream_runs import OFTEN, ReaderRun, produce
from tidelog.client.query_notes import EntryNote, parse_note
from tidelog.clock import MachineClock
from tidelog.errors import NoCommittedOffset, OffsetOutOfRange, ProducerFenced
from tidelog.spark.options.query_options import parse_stream_options
from tidelog.spark.streaming import query_group
from tidelog.spark.streaming.query_group import COMMIT_AGE_MS
from tidelog.spark.streaming.stream_offsets import StreamOffset
from tidelog.spark.streaming.stream_session import StreamSession
from tidelog.types import Millis

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("pins"), 1, settings=OFTEN) as cluster:
        cluster.wait_healthy()
        yield cluster


def create(cluster: LocalCluster, topic: str) -> None:
    """A topic with one record, of which only the active segment is kept."""
    cluster.create_topic(topic, 1, 1, segment_bytes="20000", segment_index_bytes="16384", retention_bytes="1")
    produce(cluster, topic, ["before"])


def age_out(cluster: LocalCluster, topic: str) -> int:
    """Write records of which each fills a segment, and wait until one of them is left. Returns its offset."""

    async def bounds() -> list[int]:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            key = [(topic, 0)]
            return [
                *(await admin.list_offsets(key, "earliest")).values(),
                *(await admin.list_offsets(key, "latest")).values(),
            ]

    for _ in range(4):
        produce(cluster, topic, ["x" * 15_000])
    last = asyncio.run(bounds())[1] - 1
    cluster.wait_until(lambda: asyncio.run(bounds())[0] == last, within_s=30, what="records aged out")
    return last


def forget(cluster: LocalCluster, group_id: str) -> None:
    """Delete a group, as its expiry does."""

    async def change() -> None:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.delete_groups([group_id])

    asyncio.run(change())


def values(run: ReaderRun) -> list[bytes | None]:
    return [value for _, value in run.rows]


def test_queries_of_the_same_options_begin_at_pins_of_their_own(cluster: LocalCluster) -> None:
    """The first batch of each fails, with records written before, between and after: its restart finds the start by the
    lineage in the logged end of the batch. Before, the second query got the pin of the first one and stopped it."""
    create(cluster, "own")
    runs = []
    for value in ("a", "b"):
        runs.append(ReaderRun(cluster, subscribe="own", startingOffsets="latest"))
        runs[-1].run(fails=True)
        produce(cluster, "own", [value])
    for run in (*runs, *runs):
        run.run()
    assert [values(run) for run in runs] == [[b"a", b"b"], [b"b"]]


def test_queries_of_one_topic_do_not_stop_each_other_unless_they_have_one_identity(cluster: LocalCluster) -> None:
    """Two queries with the same options; then one that continues at the checkpoint of the first, and two of one name.
    All are open at once, as on drivers of their own."""
    create(cluster, "shared")
    given = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "shared", "startingOffsets": "earliest"}

    async def opened(sessions: AsyncExitStack, **more: str) -> StreamSession:
        session = StreamSession(parse_stream_options({**given, **more}))
        sessions.push_async_callback(session.close)
        await session.start()
        return session

    async def step(session: StreamSession, start: StreamOffset | None = None) -> StreamOffset:
        return await session.advance(start or await session.initial(), None, may_wait=False)

    async def story() -> None:
        async with AsyncExitStack() as sessions:
            first, second = await opened(sessions), await opened(sessions)
            reached = [await step(first), await step(second)]
            assert [await step(first, reached[0]), await step(second, reached[1])] == reached
            again = await opened(sessions)
            await step(again, reached[0])
            with pytest.raises(ProducerFenced, match="same checkpoint or a copy of it"):
                await step(first, reached[0])
            await step(second, reached[1])
            named = {"tidelog.group.id": "of-shared"}
            older = await opened(sessions, **named)
            position = await step(older)
            await step(await opened(sessions, **named), position)
            with pytest.raises(ProducerFenced, match=r"the same option .tidelog\.group\.id"):
                await step(older, position)

    asyncio.run(story())


def test_a_start_that_cannot_be_chosen_matters_to_no_batch_that_is_logged(cluster: LocalCluster) -> None:
    """Nothing says to the first call of a restart that a batch is logged."""
    cluster.create_topic("fixed", 1, 1)
    produce(cluster, "fixed", ["a", "b"])
    run = ReaderRun(cluster, subscribe="fixed")
    run.run(fails=True)
    run.options["startingOffsets"] = '{"fixed": {"0": 7}}'
    with pytest.raises(OffsetOutOfRange, match="is to start at 7"):
        ReaderRun(cluster, **run.options).run()
    with pytest.raises(NoCommittedOffset, match="not pinned"):
        run.run()  # of other options
    run.options["failOnDataLoss"] = "false"
    run.run()
    assert run.rows == [], "the batch is left out"


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_new_checkpoint_does_not_begin_at_a_pin_that_aged_out(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """Before, each new checkpoint got the same pin and failed; with `failOnDataLoss=false` it read old records though
    it asked for the latest ones."""
    topic = f"stale-{fails}"
    options = {"subscribe": topic, "startingOffsets": "latest", "failOnDataLoss": fails, "tidelog.group.id": topic}
    create(cluster, topic)
    old = ReaderRun(cluster, **options)
    old.run(fails=True)
    age_out(cluster, topic)
    new = ReaderRun(cluster, **options)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        new.run()
    assert f"where it is not in the log any more: {topic}-0: aged out: offsets 1 to" in caplog.text
    assert new.rows == []
    produce(cluster, topic, ["after"])
    new.run()
    assert values(new) == [b"after"]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_only_partitions_whose_pinned_position_is_lost_move(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """Before, all moved to the present end: records that were still in the log were not read, and nobody was told."""
    old, kept = f"part-{fails}-old", f"part-{fails}-kept"
    options = {"subscribe": f"{old},{kept}", "startingOffsets": "latest", "failOnDataLoss": fails}
    options["tidelog.group.id"] = f"part-{fails}"
    create(cluster, old)
    create(cluster, kept)
    ReaderRun(cluster, **options).run(fails=True)
    produce(cluster, kept, ["kept"])
    last = age_out(cluster, old)
    new = ReaderRun(cluster, **options)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        new.run(fails=True)
        new.run()
    assert values(new) == [b"kept"]
    (said,) = [each for each in caplog.messages if "chosen again" in each]
    assert said.endswith(f"Moved: {old}-0 from offset 1 to offset {last + 1}")


def test_a_loss_in_a_partition_that_is_not_pinned_moves_no_pin(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that appears later is read from its start, and what is missing there is told or skipped."""
    options = {"subscribePattern": "later-.*", "startingOffsets": "latest", "tidelog.group.id": "later"}
    create(cluster, "later-1")
    ReaderRun(cluster, **options).run(fails=True)
    produce(cluster, "later-1", ["kept"])
    create(cluster, "later-2")
    last = age_out(cluster, "later-2")
    new = ReaderRun(cluster, **options)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        with pytest.raises(OffsetOutOfRange, match=f"in 1 partitions.*later-2-0: aged out: offsets 0 to {last - 1}"):
            new.run()
        new.options["failOnDataLoss"] = "false"
        new.run()
    assert sorted(offset for offset, _ in new.rows) == [1, last]
    assert b"kept" in values(new)
    assert "chosen again" not in caplog.text


@pytest.mark.parametrize("batch", [0, 4])
def test_a_pin_that_aged_out_is_not_chosen_again_for_a_batch_that_began_at_it(
    cluster: LocalCluster, batch: int
) -> None:
    """The first batch is logged, with so many records: what is missing is told, or skipped and counted."""
    topic = f"begun-{batch}"
    create(cluster, topic)
    run = ReaderRun(
        cluster, subscribe=topic, startingOffsets="latest", **({"tidelog.group.id": topic} if batch else {})
    )
    run.run(fails=True)
    if batch:
        run.log.clear()
        produce(cluster, topic, ["of the batch"] * batch)
        run.run(fails=True)
    last = age_out(cluster, topic)
    with pytest.raises(OffsetOutOfRange, match=r"offsets 1 to .*, at most .* records.*use a new checkpoint"):
        run.run()
    run.options["failOnDataLoss"] = "false"
    run.run()
    assert [offset for offset, _ in run.rows] == [last]
    assert run.skipped == last - 1


@pytest.mark.parametrize(("topic", "start", "first"), [("all", "earliest", 0), ("given", '{"given": {"0": 3}}', 3)])
def test_a_start_that_the_options_fix_is_known_without_its_pin(
    cluster: LocalCluster, topic: str, start: str, first: int
) -> None:
    cluster.create_topic(topic, 1, 1)
    produce(cluster, topic, ["x"] * 9)
    run = ReaderRun(cluster, subscribe=topic, startingOffsets=start, **{"tidelog.group.id": topic})
    run.run(fails=True)
    forget(cluster, topic)
    run.run()
    assert [offset for offset, _ in run.rows] == list(range(first, 9))


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_batch_whose_start_is_unknown_is_left_out_and_named(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """With `failOnDataLoss=false`. The earliest offset may have been another one if it is not 0 now."""
    topic = f"unknown-{start}"
    create(cluster, topic)
    run = ReaderRun(cluster, subscribe=topic, startingOffsets=start, **{"tidelog.group.id": topic})
    run.run(fails=True)
    run.log.clear()
    produce(cluster, topic, ["of the batch"] * 4)
    run.run(fails=True)
    if start == "earliest":
        age_out(cluster, topic)
    forget(cluster, topic)
    produce(cluster, topic, ["behind it"])
    with pytest.raises(NoCommittedOffset, match="leave this batch out"):
        run.run()
    run.options["failOnDataLoss"] = "false"
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        run.run()
    assert f"an unknown number of records below offset 5 of {topic}-0" in caplog.text
    assert values(run)[-1] == b"behind it"
    assert b"of the batch" not in values(run)


class ShiftedClock(MachineClock):
    """The machine's clock, ahead by as much as a test likes."""

    ahead = 0

    def wall_ms(self) -> Millis:
        return Millis(super().wall_ms() + self.ahead)

    def monotonic_ms(self) -> Millis:
        return Millis(super().monotonic_ms() + self.ahead)


@pytest.mark.parametrize("kind", ["progress", "pinned"])
def test_an_offset_that_does_not_move_is_committed_again_before_the_nodes_forget_it(
    cluster: LocalCluster, kind: str
) -> None:
    topic, clock = f"idle-{kind}", ShiftedClock()
    cluster.create_topic(topic, 1, 1)
    produce(cluster, topic, ["a"])
    given = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "tidelog.group.id": topic}
    where = "latest" if kind == "pinned" else "earliest"

    async def noted(admin: tidelog.Admin) -> EntryNote:
        (entry,) = (await admin.list_group_offsets(topic)).values()
        assert entry is not None
        note = parse_note(entry.metadata)
        assert note is not None
        return note

    async def story() -> None:
        session = StreamSession(parse_stream_options({**given, "startingOffsets": where}), clock)
        async with tidelog.Admin(cluster.bootstrap) as admin:
            try:
                await session.start()
                at = await session.advance(await session.initial(), None, may_wait=False)
                began = []
                for _ in range(2):
                    assert await session.advance(at, None, may_wait=False) == at
                    await session._progress.flush()
                    began.append(await noted(admin))
                clock.ahead = COMMIT_AGE_MS
                assert await session.advance(at, None, may_wait=False) == at
                await session._progress.flush()
                again = await noted(admin)
            finally:
                await session.close()
        assert began[0] == began[1], "an offset that does not move is not committed each time"
        assert again.kind == began[0].kind == kind
        assert again.at - began[0].at >= COMMIT_AGE_MS

    asyncio.run(story())


def test_progress_that_waits_for_the_next_commit_is_committed_when_the_query_ends(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between two commits is longer than the test: without the end of the query, the second one waits."""
    monkeypatch.setattr(query_group, "PAUSE_S", 3600)
    topic = "ended"
    cluster.create_topic(topic, 1, 1)
    produce(cluster, topic, ["a", "b"])
    given = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "tidelog.group.id": topic}

    async def committed(admin: tidelog.Admin) -> int:
        (entry,) = (await admin.list_group_offsets(topic)).values()
        assert entry is not None
        return entry.offset

    async def story() -> None:
        session = StreamSession(parse_stream_options({**given, "startingOffsets": "earliest"}))
        async with tidelog.Admin(cluster.bootstrap) as admin:
            try:
                await session.start()
                first = await session.advance(await session.initial(), 1, may_wait=False)
                second = await session.advance(first, 1, may_wait=False)
                await session._progress._is_idle.wait()
                assert await committed(admin) == 1
                await session.processed(second)
            finally:
                await session.close()
            assert await committed(admin) == 2

    asyncio.run(story())
