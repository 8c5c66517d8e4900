"""A moment of fuzzing in every run of the tests; `make fuzz` takes longer and is guided by coverage."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz import targets
from tests.fuzz.mutator import mutated
from tidelog.errors import TidelogError
from tidelog.records import iter_batches
from tidelog.types import Codec


@pytest.mark.parametrize("name", targets.TARGETS)
def test_any_bytes_give_a_value_or_the_documented_error(name: str) -> None:
    rng, seeds = Random(name), [*targets.seeds(name), b""]
    for _ in range(150):
        data = mutated(rng, seeds)
        try:
            targets.run(name, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the input is what helps
            pytest.fail(f"{name}: {data.hex()} gives {error!r}")


@pytest.mark.parametrize("name", targets.TARGETS)
def test_the_seeds_are_sound(name: str) -> None:
    """Kafka wrote them: fuzzing begins inside the parser, not at its first refusal."""
    seeds = targets.seeds(name)
    assert seeds
    sound = 0
    for seed in seeds:
        try:
            targets.TARGETS[name](seed)
        except TidelogError:
            continue
        sound += 1
    assert sound


def test_the_seeds_are_of_every_format_and_codec() -> None:
    kinds = {(batch.magic, batch.codec) for data in targets.kafka_batches() for batch in iter_batches(data)}
    assert {magic for magic, _ in kinds} == {0, 1, 2}
    assert {codec for magic, codec in kinds if magic == 2} == set(Codec)
