"""Some rounds of `make chaos`, so that it works when it is wanted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration import chaos
from tests.integration.load import Load

pytestmark = pytest.mark.integration


@pytest.mark.deep
def test_random_faults_lose_nothing(tmp_path: Path) -> None:
    """A short run of `make chaos`: faults come one after the other."""
    said: list[str] = []
    counts = asyncio.run(chaos.run(tmp_path, nodes=3, seconds=15, seed=3, say=said.append))
    assert counts["rounds"] >= 1
    assert counts["read"] >= counts["acknowledged"] > 0
    assert len(said) == counts["rounds"] + 2


async def test_a_lost_record_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="1 of 1 acknowledged records are gone"):
        load = Load("127.0.0.1:1", "orders", 1)
        load.acknowledged[0, 0] = b"0-0-"

        async def nothing() -> dict[tuple[int, int], bytes]:
            return {}

        load.read_all = nothing  # type: ignore[method-assign]
        await load.check()
