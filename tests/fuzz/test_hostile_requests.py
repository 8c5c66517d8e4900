"""Hostile requests against real nodes over real gRPC, a bounded number; `make fuzz` sends thousands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.callers import WAYS
from tests.fuzz.requests import Maker, assault, assault_as, assault_on_refusal
from tests.node.hostile_epochs import EPOCHS
from tidelog.protocol import methods


@pytest.mark.parametrize(("seed", "nodes", "count"), [(1, 1, 500), (2, 1, 500), (3, 3, 400)])
def test_no_request_is_a_defect_or_ends_a_node(seed: int, nodes: int, count: int, tmp_path: Path) -> None:
    """Hundreds of requests of every kind, some of which make topics of many partitions; then each node restarts."""
    found = asyncio.run(assault(tmp_path, count=count, nodes=nodes, seed=seed))
    assert found == [], f"replay: python -m tests.fuzz.requests --seed {seed} --nodes {nodes} --count {count}"


def test_a_caller_who_may_nothing_changes_nothing(tmp_path: Path) -> None:
    """Each message of each request and stream passes the authorizer before its handler."""
    assert asyncio.run(assault_on_refusal(tmp_path, count=600, seed=4)) == []


@pytest.mark.parametrize("way", WAYS)
def test_clients_change_and_see_only_what_they_may(way: str, tmp_path: Path) -> None:
    """Over TLS, half of the requests from a client without any permission, the others with one for a single topic."""
    assert asyncio.run(assault_as(tmp_path, way=way, count=700, seed=6, round_requests=350)) == []


def test_every_field_of_every_request_is_given_its_extremes() -> None:
    """The makers know each RPC by its descriptor alone, and reach the values that ended a cluster once."""
    maker = Maker(Random(1), {})
    seen: set[tuple[str, int]] = set()
    for _ in range(400):
        begin = maker.message(methods.QUORUM_BEGIN_QUORUM_EPOCH.request)
        seen.add((begin.cluster_id, begin.epoch))
    assert ("", max(EPOCHS)) in seen
    for method in methods.ALL:
        made = [maker.bytes_of(method) for _ in range(20)]
        assert len(set(made)) > 1 or not method.request.FromString(b"").SerializeToString()
