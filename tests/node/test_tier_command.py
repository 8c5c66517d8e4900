"""`tidelog tier describe`: operators see what of a topic is in the object store."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import real_nodes
from tests.node.shell import Shell
from tests.node.tiered_nodes import COORDINATORS, TIERED, TOPIC, all_left, bootstrap, leader, of_store, produce
from tidelog.client.admin import Admin


async def test_the_remote_segments_of_a_topic_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        tidelog = Shell(nodes, capsys)
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
            await admin.create_topic("local", partitions=2, replication_factor=1)
            await produce(nodes, 0, 12)
            await nodes.wait_until(all_left(nodes, 12))
            [(place, remote)] = (await admin.describe_remote_segments(TOPIC)).items()
        assert str(place) == f"{TOPIC}-0"
        assert remote.store_url == store.url
        ends = [(each.start_offset, each.end_offset) for each in remote.segments]
        assert ends[0][0] == 0
        assert ends[-1][1] >= leader(nodes).log.local_log_start_offset
        assert all(before[1] == behind[0] for before, behind in pairwise(ends)), "without a gap"

        [documents] = await tidelog.json("tier", "describe", TOPIC)
        assert [(each["start_offset"], each["end_offset"]) for each in documents] == ends
        assert {each["object"] for each in documents} <= store.objects.keys()
        shown = await tidelog("tier", "describe", TOPIC)
        assert f"{TOPIC}: {len(ends)} remote segments" in shown
        assert documents[0]["object"] in shown
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
