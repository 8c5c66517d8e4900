"""Examples for a state machine: the choice of steps, their order and their arguments, all derived from a seed.

Invariants: the same seed gives the same example on every machine, whatever else is loaded or has run before.
(Hypothesis also draws from the constants of all loaded modules.) A failing example is shortened before it is reported.
Not here: the steps and the conditions after them (crash_machine.py), the kinds of machines (test_crash_points.py)."""

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
"""Runs of a failing example to shorten it; each takes some tenths of a second."""


class Machine:
    """A machine with steps: methods marked as rules. points: crash points checked by all examples of the class."""

    points: ClassVar[int] = 0
    rng: random.Random
    """Random choices of the machine within a step; seeded again before each step."""

    def teardown(self) -> None:
        """The example has ended without an error."""


class Rule(NamedTuple):
    """The condition under which a step may run, and the strategies for its arguments."""

    name: str
    when: Callable[[Any], bool]
    draws: dict[str, Draw]


class Step(NamedTuple):
    """A rule with its arguments. fate: seed of the choices that the machine makes in it."""

    rule: Rule
    arguments: dict[str, Any]
    fate: int

    def __str__(self) -> str:
        return f"{self.rule.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"

    def take(self, machine: Machine) -> None:
        machine.rng = random.Random(self.fate)
        getattr(machine, self.rule.name)(**self.arguments)


class Example(NamedTuple):
    """The steps that ran, and the error of the last one."""

    steps: Sequence[Step]
    error: BaseException | None


def rule(*, when: Callable[[Any], bool] = lambda _: True, **draws: Draw) -> Callable[[F], F]:
    """Mark a method as a step that may run if `when` holds, with arguments drawn from these strategies."""

    def mark(method: F) -> F:
        vars(method)["rule"] = Rule(method.__name__, when, draws)
        return method

    return mark


# --- what arguments are drawn from ------------------------------------------------------------------------------------


def integers(least: int, most: int) -> Draw:
    """Both bounds are included."""
    return lambda rng: rng.randint(least, most)


def floats(least: float, most: float) -> Draw:
    """A number between 0 and 1; one draw in ten is 0 or 1."""
    return lambda rng: rng.choice((least, most)) if rng.random() < 0.1 else rng.uniform(least, most)


def booleans() -> Draw:
    return lambda rng: rng.random() < 0.5


def one_of(*values: object) -> Draw:
    return lambda rng: rng.choice(values)


def lists(of: Draw, least: int, most: int) -> Draw:
    """A list whose length is between the two bounds, both included."""
    return lambda rng: [of(rng) for _ in range(rng.randint(least, most))]


# --- running ----------------------------------------------------------------------------------------------------------


def run_until(machine: type[Machine], points: int, *, first_seed: int | None = None, name: str = "") -> str:
    """Run examples until this many crash points are checked. Returns a digest of them. CRASH_REPLAY is the seed of a
    failed example: only that one runs. name: name of the test, for the replay command."""
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
    """The example of a seed, a different one for each machine. Each example leaves out some rules, so that the others
    occur together more often."""
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
    """Run steps up to the first one that fails."""
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
    """The example without the steps that are not needed for a failure, possibly a different failure."""
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
