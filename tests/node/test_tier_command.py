"""`tidelog tier describe`: operators see what of a topic is in the object store."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.fake_object_store import FakeObjectStore, StoreCall
from tests.node.real_nodes import real_nodes
from tests.node.shell import Shell
from tests.node.tiered_nodes import (
    COORDINATORS,
    TIERED,
    TOPIC,
    bootstrap,
    closed_left,
    elect_unclean,
    leader,
    of_store,
    produce,
)
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.tiering.remote_errors import ObjectStoreUnavailable

pytestmark = pytest.mark.usefixtures("quick_tier")


async def test_the_remote_segments_of_a_topic_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        tidelog = Shell(nodes, capsys)
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
            await admin.create_topic("local", partitions=2, replication_factor=1)
            await produce(nodes, 0, 12)
            await nodes.wait_until(closed_left(nodes))
            [(place, remote)] = (await admin.describe_remote_segments(TOPIC)).items()
        assert str(place) == f"{TOPIC}-0"
        assert remote.store_url == store.url
        ends = [(each.start_offset, each.end_offset) for each in remote.segments]
        assert ends[0][0] == 0
        assert ends[-1][1] >= leader(nodes).log.local_log_start_offset
        assert all(before[1] == behind[0] for before, behind in pairwise(ends)), "without a gap"

        [document] = await tidelog.json("tier", "describe", TOPIC)
        documents = document["segments"]
        assert document["lost"] == []
        assert [(each["start_offset"], each["end_offset"]) for each in documents] == ends
        assert {each["object"] for each in documents} <= store.objects.keys()
        shown = await tidelog("tier", "describe", TOPIC)
        assert f"{TOPIC}: {len(ends)} remote segments" in shown
        assert documents[0]["object"] in shown
        assert "lost" not in shown + tidelog.err
        [offsets] = await tidelog.json("topic", "offsets", TOPIC, "local")
        at = leader(nodes).log
        assert offsets[0] == {
            "topic": TOPIC,
            "partition": 0,
            "start": 0,
            "end": 12,
            "earliest_local": at.local_log_start_offset,
            "latest_tiered": at.copied_end - 1,
        }
        assert 0 < at.local_log_start_offset <= at.copied_end
        assert [sorted(each) for each in offsets[1:]] == [["end", "partition", "start", "topic"]] * 2, "without a tier"
        shown = await tidelog("topic", "offsets", TOPIC, "local")
        assert "earliest-local" in shown and "latest-tiered" in shown
        assert "earliest-local" not in await tidelog("topic", "offsets", "local")
        assert "no remote segments: it has no remote tier" in await tidelog("tier", "describe", "local")
        await tidelog("tier", "describe", "other", code=1)
        assert "topic 'other' does not exist" in tidelog.err


async def test_what_an_unclean_election_has_lost_is_listed_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only replica loses its log, and an operator elects it: the history is in the store, and is not read."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        tidelog = Shell(nodes, capsys)
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(
                TOPIC, partitions=1, replication_factor=1, configs={**TIERED, "retention.ms": "-1"}
            )
            await produce(nodes, 0, 12)
            await nodes.wait_until(closed_left(nodes))
            [before] = await tidelog.json("tier", "describe", TOPIC)
            await nodes.stop(0)
            shutil.rmtree(tmp_path / "node-0" / f"{TOPIC}-0")
            await nodes.start(0)
            await elect_unclean(nodes, admin)
            [document] = await tidelog.json("tier", "describe", TOPIC)
        assert (document["segments"], len(document["lost"])) == ([], len(before["segments"]))
        for lost, copied in zip(document["lost"], before["segments"], strict=True):
            assert {**lost, **copied} == lost, "the same segments"
            assert lost["epochs"] == [copied["copied_in"]]
            assert lost["deleted_at_ms"] - lost["since_ms"] == pytest.approx(604_800_000, abs=1_000), "seven days later"
            assert "elect --unclean orders-0" in lost["next_step"]
        shown = await tidelog("tier", "describe", TOPIC)
        assert f"{TOPIC}: 0 remote segments, 0 bytes in {store.url}" in shown
        assert f"{len(before['segments'])} segments of leader epochs that an unclean election has lost" in shown
        assert before["segments"][0]["object"] in shown
        assert "orders-0: if the unclean election was intended, do nothing" in tidelog.err


async def test_copies_that_fail_are_told_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The store is away, and comes back."""
    store = FakeObjectStore()

    def be_away(_call: StoreCall) -> None:
        raise ObjectStoreUnavailable("the store does not answer; look at it")

    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        tidelog = Shell(nodes, capsys)
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        [document] = await tidelog.json("tier", "describe", TOPIC)
        nothing = {"waiting_segments": 0, "waiting_bytes": 0, "failure": "", "failing_since_ms": -1}
        assert document["copies"] == [{"partition": 0, **nothing}]
        store.on_call = be_away
        await produce(nodes, 0, 6)
        await nodes.wait_until(lambda: leader(nodes).copy_failure is not None)
        [document] = await tidelog.json("tier", "describe", TOPIC)
        [copies] = document["copies"]
        assert copies["failure"] == "ObjectStoreUnavailable: the store does not answer; look at it"
        assert copies["waiting_segments"] >= 1 and copies["waiting_bytes"] >= 1_000 * copies["waiting_segments"]
        assert 0 < copies["failing_since_ms"] <= MachineClock().wall_ms()
        shown = await tidelog("tier", "describe", TOPIC)
        assert "1 partition whose copies fail: what waits stays on the nodes" in shown
        assert "ObjectStoreUnavailable: the store does not answer; look at it" in shown
        store.on_call = lambda _call: None
        await nodes.wait_until(lambda: leader(nodes).copy_failure is None)
        await nodes.wait_until(closed_left(nodes))
        [document] = await tidelog.json("tier", "describe", TOPIC)
        assert document["copies"] == [{"partition": 0, **nothing}]
        assert "copies fail" not in await tidelog("tier", "describe", TOPIC)
