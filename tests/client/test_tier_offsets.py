"""`tidelog topic offsets` of topics with a remote tier whose leaders know more or less about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, MemoryNode, cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.errors import CorruptLog, TidelogError
from tidelog.protocol.status import to_proto
from tidelog.types import EARLIEST_LOCAL, LATEST_TIERED

TIERED = {"remote.storage.enable": "true"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


def answer_of_tier(monkeypatch: pytest.MonkeyPatch, copied: int | TidelogError) -> None:
    """The nodes know where their local logs begin, and this of what is copied."""
    list_offsets = MemoryNode.list_offsets

    async def listed(self: MemoryNode, request: Any, context: Any) -> Any:
        answer = await list_offsets(self, request, context)
        for asked, found in zip(request.partitions, answer.partitions, strict=True):
            if asked.timestamp_ms == EARLIEST_LOCAL:
                found.offset = 0
            elif asked.timestamp_ms == LATEST_TIERED:
                if isinstance(copied, int):
                    found.offset = copied
                else:
                    found.error.CopyFrom(to_proto(copied))
        return answer

    monkeypatch.setattr(MemoryNode, "list_offsets", listed)


def test_nothing_is_copied_yet(cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_of_tier(monkeypatch, -1)
    cluster.create("orders", 1, TIERED)
    cluster.create("returns", 1)
    assert tidelog("topic", "offsets", "orders", "--json") == 0
    [found] = tidelog.json
    assert (found["earliest_local"], found["latest_tiered"]) == (0, -1), "as Admin.list_offsets, and Kafka"
    assert tidelog("topic", "offsets", "orders", "returns") == 0
    rows = [line.replace("│", " ").split() for line in tidelog.out.decode().splitlines()]
    assert ["orders-0", "0", "0", "0", "none"] in rows
    assert ["returns-0", "0", "0", "-", "-"] in rows


def test_start_and_end_are_shown_while_a_leader_does_not_know_its_tier(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_of_tier(monkeypatch, CorruptLog("an index is damaged"))
    cluster.create("orders", 1, TIERED)
    assert tidelog("topic", "offsets", "orders", "--json") == 0
    assert tidelog.json == [{"topic": "orders", "partition": 0, "start": 0, "end": 0, "earliest_local": 0}]
    assert "what is copied of orders-0 is not known: an index is damaged" in tidelog.err
