"""Hostile frames against real nodes' listeners of Kafka's protocol: some in each run, 25,000 for each kind in the long
one. More of them: `python -m tests.fuzz.kafka_requests`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.kafka_frames import INTEGERS, VERSIONS, FrameMaker
from tests.fuzz.kafka_requests import Kind, assault

LISTENERS = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)

SHARDS = 2
FRAMES = 25_000
"""Of each kind of listener, in the long form."""


@LISTENERS
def test_no_frame_is_a_defect_or_harms_others(kind: Kind, tmp_path: Path) -> None:
    must_withstand(tmp_path, kind=kind, count=600, seed=1)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
@LISTENERS
def test_no_frame_of_many_is_a_defect_or_harms_others(kind: Kind, shard: int, tmp_path: Path) -> None:
    """25,000 frames for each kind of listener take a minute: a shard has half of them, so that several workers share
    them, and each looks for what grows from round to round."""
    must_withstand(tmp_path, kind=kind, count=FRAMES // SHARDS, seed=100 + shard)


def must_withstand(home: Path, *, kind: Kind, count: int, seed: int) -> None:
    found = asyncio.run(assault(home, count=count, seed=seed, kind=kind))
    assert found == [], (
        f"replay: python -m tests.fuzz.kafka_requests --seed {seed} --count {count} --kind '{kind.value}'"
    )


def test_every_api_and_version_is_made_and_half_of_the_frames_can_be_read() -> None:
    """A frame with one wrong length says nothing about what follows: most must have none."""
    maker = FrameMaker(Random(1), {})
    made = [maker.make(api) for api in VERSIONS for _ in range(200)]
    assert {(each.api, each.version) for each in made} == {
        (api, each) for api, all_ in VERSIONS.items() for each in all_
    }
    assert sum(each.is_whole for each in made) > len(made) * 0.9
    assert len({each.data for each in made}) > len(made) * 0.9
    assert set(INTEGERS) >= {"int8", "int16", "int32", "int64"}
