"""How often the metadata log is fetched when answers change nothing: a round of fetches ends, and a pause follows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from node.metadata.metadata_log import MetadataLog
from node.quorum.handlers import QuorumHandlers
from tests.node.metadata_world import MetadataWorld
from tidelog.errors import OffsetOutOfRange
from tidelog.protocol import methods
from tidelog.protocol.v1 import quorum_pb2

SECONDS = 3
Fetches = Counter[int]
"""By the node that fetched."""


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    counts: Fetches = Counter()
    fetch = QuorumHandlers.fetch_metadata

    async def counted(self: QuorumHandlers, request: Any, context: Any) -> Any:
        counts[request.node_id] += 1
        return await fetch(self, request, context)

    monkeypatch.setattr(QuorumHandlers, "fetch_metadata", counted)
    return counts


def test_false_ends_of_the_epoch_do_not_make_a_follower_fetch_without_a_pause(fetches: Fetches) -> None:
    """A stranger ends the leader's epoch at a follower every 5 ms."""
    with MetadataWorld(3, voters=3) as world:
        world.begin()
        sides = {number: world.side(number) for number in range(3)}
        leader = next(number for number, side in sides.items() if side.view.leads)
        node, epoch = next(number for number in sides if number != leader), sides[leader].view.leader_epoch
        end = quorum_pb2.EndQuorumEpochRequest(
            cluster_id=world.image().cluster_id,
            leader_id=leader,
            epoch=epoch,
            successors=[world.key(node)],
            receiver=world.key(node),
        )

        fetches.clear()
        began = world.loop.time()
        for number in range(SECONDS * 200):
            world.asking(node, methods.QUORUM_END_QUORUM_EPOCH, end)
            world.run_until(lambda: world.loop.time() >= began + number / 200)  # noqa: B023 - called in this round
        assert fetches[node] < 100 * SECONDS
        world.create("after")
        world.run_until(lambda: world.image(node).topic("after") is not None, what="the follower has the topic")
        assert sides[leader].view.leads and sides[leader].view.leader_epoch == epoch


def test_a_snapshot_that_the_leader_cannot_read_is_not_asked_for_without_a_pause(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emptied node needs the snapshot. Until the leader can read it, the node asks again after pauses; then it has
    all topics."""
    with MetadataWorld(3) as world:
        world.snapshot_bytes = 2_000
        world.begin()
        world.kill(2)
        world.empty(2)
        for number in range(40):
            world.create(f"t{number}", replicas=1)
        began = world.loop.time()
        world.run_until(lambda: world.loop.time() > began + 2, what="snapshots are written and the log begins later")

        def unreadable(self: MetadataLog, *_: object) -> Any:
            raise OffsetOutOfRange("the snapshot is gone")

        with monkeypatch.context() as patched:
            patched.setattr(MetadataLog, "read_snapshot", unreadable)
            fetches.clear()
            world.start(2)
            world.run_until(lambda: world.loop.time() > began + 2 + SECONDS, what="it has asked for some time")
            assert 3 < fetches[2] < 50 * SECONDS
        world.run_until(lambda: world.side(2).image.topic("t39") is not None, what="it has all topics")
