"""What operators ask real nodes on the command line: settings with their sources, offsets, sizes, measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.real_nodes import real_nodes
from tests.node.shell import Shell


async def test_settings_offsets_and_sizes_are_shown_with_their_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, 2) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("topic", "create", "orders", "returns", "-p", "2", "-r", "2", "-c", "retention.ms=1000000")
        await tidelog("bench", "produce", "orders", "-n", "300", "-s", "50")
        assert "300 records, 15000 bytes" in tidelog.err and "p99" in tidelog.err

        (orders, returns) = await tidelog.json("topic", "describe", "orders", "returns")
        assert (orders["name"], returns["name"]) == ("orders", "returns")
        assert sum(each["end"] - each["start"] for each in orders["partitions"]) == 300
        assert sum(each["bytes"] for each in orders["partitions"]) > 15_000
        assert [each["bytes"] for each in returns["partitions"]] == [0, 0]
        settings = {each["key"]: each for each in orders["settings"]}
        retention = settings["retention.ms"]
        assert (retention["value"], retention["source"], retention["is_override"]) == ("1000000", "topic", True)
        assert retention["otherwise"][-1]["source"] == "default"
        assert settings["segment.bytes"]["source"] == "default"
        table = await tidelog("topic", "describe", "ord.*", "--regex")
        assert "retention.ms" in table and "returns" not in table

        (described,) = await tidelog.json("config", "describe", "--topic", "orders", "--changed")
        assert {each["key"] for each in described["settings"] if each["source"] == "topic"} == {"retention.ms"}
        await tidelog("config", "alter", "-t", "orders", "-t", "returns", "-c", "retention.ms=5", "-d", "segment.bytes")
        found = await tidelog.json("config", "describe", "-t", "orders", "-t", "returns", "--changed")
        assert [{each["key"]: each["value"] for each in of["settings"]}["retention.ms"] for of in found] == ["5", "5"]
        await tidelog("config", "alter", "-t", "orders", "-t", "nothing", "-c", "retention.ms=6", code=1)
        assert "topic 'orders' changed" in tidelog.err and "topic 'nothing' was not changed" in tidelog.err

        (node,) = await tidelog.json("config", "describe", "--node", "1")
        assert node["node"] == "1"
        assert [each["key"] for each in node["settings"] if not each["is_read_only"]] == ["cordoned.log.dirs"]
        await tidelog("config", "describe", "-n", "7", code=1)
        assert "node 7 is not alive" in tidelog.err and "alive are 0, 1" in tidelog.err
        await tidelog("config", "alter", "-n", "1", "-c", "log.retention.ms=1", code=1)
        assert "change its file" in tidelog.err

        (directories,) = await tidelog.json("log-dirs", "--topic", "orders")
        assert {each["node"] for each in directories} == {0, 1}
        assert all(each["bytes"] > 15_000 and each["total_bytes"] > 0 for each in directories)
        assert "orders-0" in await tidelog("log-dirs", "-n", "0", "--logs")

        (offsets,) = await tidelog.json("topic", "offsets", "orders")
        assert sum(each["end"] for each in offsets) == 300
        (offsets,) = await tidelog.json("topic", "offsets", "orders", "--at", "-1h")
        assert [each["offset"] for each in offsets] == [0, 0]

        (read,) = await tidelog.json("bench", "consume", "orders")
        assert (read["records"], read["bytes"]) == (300, 15_000)
        (latency,) = await tidelog.json("bench", "latency", "returns", "-n", "5")
        assert 0 < latency["acknowledged"]["p50_ms"] <= latency["received"]["max_ms"]

        await tidelog("topic", "delete", "orders", "nothing", "returns", code=1)
        assert "topic 'nothing' was not deleted" in tidelog.err
        assert await tidelog.json("topic", "list") == [[]]


async def test_a_misspelt_setting_is_not_reset_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with real_nodes(tmp_path) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("topic", "create", "orders", "-p", "1", "-r", "1", "-c", "retention.ms=5")
        for command in (("topic", "alter", "orders"), ("config", "alter", "-t", "orders")):
            await tidelog(*command, "-d", "retention.sm", code=1)
            assert 'unknown topic setting "retention.sm"; valid settings: ' in tidelog.err
        await tidelog("topic", "alter", "orders", "-d", "retention.ms")
        (described,) = await tidelog.json("config", "describe", "--topic", "orders", "--changed")
        assert described["settings"] == []


async def test_top_shows_rates_and_lag_of_two_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with real_nodes(tmp_path) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("topic", "create", "orders", "-p", "1", "-r", "1")
        await tidelog("bench", "produce", "orders", "-n", "100", "-s", "50")
        await tidelog("group", "reset-offsets", "readers", "-t", "orders", "--to-offset", "40", "--execute")
        first, second = await tidelog.json("top", "--times", "2", "--interval", "0.1")
        assert first["topics"][0]["records_per_second"] is None
        orders = next(each for each in second["topics"] if each["topic"] == "orders")
        assert (orders["records"], orders["records_per_second"]) == (100, 0.0)
        assert [(each["group_id"], each["lag"]) for each in second["groups"]] == [("readers", 60)]
        assert second["problems"] == []
        shown = await tidelog("top", "--times", "1")
        assert all(each in shown for each in ("orders", "readers", "controller"))
        assert "healthy; 0 open transactions" in tidelog.err
