"""The load of other tests notices what it is there for."""

from __future__ import annotations

import pytest

from tests.integration.load import Load


async def test_a_lost_record_is_noticed() -> None:
    with pytest.raises(AssertionError, match="1 of 1 acknowledged records are gone"):
        load = Load("127.0.0.1:1", "orders", 1)
        load.acknowledged[0, 0] = b"0-0-"

        async def nothing() -> dict[tuple[int, int], bytes]:
            return {}

        load.read_all = nothing  # type: ignore[method-assign]
        await load.check()
