"""Examples for a machine of steps: which ones, in which order, with which arguments. A seed says it all.

Kept true: the same seed is the same example on every machine, whatever else is loaded or has run before. (Hypothesis
draws from the constants of all loaded modules too.) An example that fails is made shorter before it is told.
Left to others: what the steps do and what must hold behind them (crash_machine.py), which machines
(test_crash_points.py).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., None])
Draw = Callable[[random.Random], Any]
STEPS_MAX = 45
REPLAYS_MAX = 150
"""Of a failing example, to make it shorter; each takes some tenths of a second."""


class Machine:
    """What has steps: methods marked as rules. points: how much was judged, by all examples of the class."""

    points: ClassVar[int] = 0
    rng: random.Random
    """For what the machine decides itself within a step; seeded anew before each."""

    def teardown(self) -> None:
        """The example has ended well."""


class Rule(NamedTuple):
    """When a step may be taken, and what its arguments are drawn from."""

    name: str
    when: Callable[[Any], bool]
    draws: dict[str, Draw]


class Step(NamedTuple):
    """A rule with its arguments. fate: the seed of what the machine decides in it."""

    rule: Rule
    arguments: dict[str, Any]
    fate: int

    def __str__(self) -> str:
        return f"{self.rule.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"

    def take(self, machine: Machine) -> None:
        machine.rng = random.Random(self.fate)
        getattr(machine, self.rule.name)(**self.arguments)


class Example(NamedTuple):
    """The steps that were taken, and what the last of them failed with."""

    steps: Sequence[Step]
    error: BaseException | None


def rule(*, when: Callable[[Any], bool] = lambda _: True, **draws: Draw) -> Callable[[F], F]:
    """Mark a method as a step that may be taken whenever that holds, with arguments drawn from these."""

    def mark(method: F) -> F:
        vars(method)["rule"] = Rule(method.__name__, when, draws)
        return method

    return mark


# --- what arguments are drawn from ------------------------------------------------------------------------------------


def integers(least: int, most: int) -> Draw:
    """Both included."""
    return lambda rng: rng.randint(least, most)


def floats(least: float, most: float) -> Draw:
    """Either end in one of ten."""
    return lambda rng: rng.choice((least, most)) if rng.random() < 0.1 else rng.uniform(least, most)


def booleans() -> Draw:
    return lambda rng: rng.random() < 0.5


def one_of(*values: object) -> Draw:
    return lambda rng: rng.choice(values)


def lists(of: Draw, least: int, most: int) -> Draw:
    """So many, both included."""
    return lambda rng: [of(rng) for _ in range(rng.randint(least, most))]


# --- running ----------------------------------------------------------------------------------------------------------


def run_until(machine: type[Machine], points: int, *, first_seed: int | None = None, name: str = "") -> str:
    """Examples, until so many points have been judged; returns a digest of them. CRASH_REPLAY is the seed of one that
    failed: only that runs. name: of the test, for the command that replays it."""
    machine.points = 0
    digest = blake2b(digest_size=8)
    replay = os.environ.get("CRASH_REPLAY")
    if replay:
        _run_one(machine, int(replay), name, digest.update)
        return digest.hexdigest()
    number = random.Random().randrange(2**32) if first_seed is None else first_seed
    while machine.points < points:
        _run_one(machine, number, name, digest.update)
        number += 1
    return digest.hexdigest()


def _run_one(machine: type[Machine], number: int, name: str, note: Callable[[bytes], None]) -> None:
    steps, error = draw_example(machine, number)
    note(f"{number} {machine.points} {'; '.join(map(str, steps))}\n".encode())
    if error is not None:
        again = f"CRASH_REPLAY={number} make test TESTS=tests/storage/test_crash_points.py::{name}"
        judged = machine.points
        steps, error = shortened(machine, Example(steps, error))
        assert error is not None
        error.add_note("\n".join(["", *(f"state.{step}" for step in steps)]))
        error.add_note(f"after {judged} crash points; to see it again: {again}")
        raise error


def draw_example(machine: type[Machine], number: int) -> Example:
    """The example of that seed, another one for each machine. Each leaves some rules out, so that the others meet more
    often."""
    rng = random.Random(f"{machine.__name__} {number}")
    share = rng.choice((1.0, 1.0, 0.75, 0.5))
    rules = [each for each in rules_of(machine) if rng.random() < share]
    count = rng.randint(5, STEPS_MAX)

    def steps(state: Machine) -> Iterator[Step]:
        for _ in range(count):
            possible = [each for each in rules if each.when(state)]
            if not possible:
                return
            chosen = rng.choice(possible)
            arguments = {name: draw(rng) for name, draw in chosen.draws.items()}
            yield Step(chosen, arguments, rng.getrandbits(32))

    return play(machine, steps)


def rules_of(machine: type[Machine]) -> list[Rule]:
    methods = (getattr(machine, name) for name in sorted(dir(machine)))
    return [vars(method)["rule"] for method in methods if "rule" in getattr(method, "__dict__", {})]


def play(machine: type[Machine], steps: Callable[[Machine], Iterator[Step]]) -> Example:
    """Take steps up to the one that fails."""
    taken: list[Step] = []
    try:
        state = machine()
        for step in steps(state):
            taken.append(step)
            step.take(state)
        state.teardown()
    except Exception as error:  # noqa: BLE001 - whatever a step raises is what the example has found
        return Example(taken, error)
    return Example(taken, None)


def shortened(machine: type[Machine], example: Example) -> Example:
    """The example without steps that it does not need to fail, be it in another way."""
    best, replays = example, 0
    size = max(1, len(best.steps) // 2)
    while size:
        at = 0
        while at < len(best.steps) and replays < REPLAYS_MAX:
            left = [*best.steps[:at], *best.steps[at + size :]]
            shorter = play(machine, lambda state, left=left: _possible(state, left))  # type: ignore[misc]
            replays += 1
            if shorter.error is None:
                at += size
            else:
                best = shorter
        size //= 2
    return best


def _possible(state: Machine, steps: Sequence[Step]) -> Iterator[Step]:
    return (step for step in steps if step.rule.when(state))
