"""When which fault strikes which node: a seed becomes rounds of one or two faults.

Pure: nothing here looks at a clock or touches a node. Invariants: at most two faults at once, on different nodes; a
fault that takes data away never beside one that keeps another node out of the in-sync sets, since the node that is out
may be the only other one that has a record; each kind comes once before any comes twice; all faults end in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

WARM_UP_S: Final = 4.0
"""Before the first fault: every worker is at work, and what it does without faults is in the picture too."""
QUIET_S: Final = (5.0, 8.0)
"""Between two rounds: what follows is the effect of one round alone."""
TWO_AT_ONCE: Final = 0.4
"""The share of the rounds for which a second fault is looked for."""
EVERY_NODE: Final = 0
"""`Kind.victims` of a fault that strikes all nodes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, as far as the schedule must know it."""

    name: str
    seconds: tuple[float, float]
    """The shortest and the longest time between its begin and its end."""
    victims: int = 1
    """How many nodes it strikes; EVERY_NODE: all."""
    takes_out: bool = False
    """Its nodes may leave the in-sync sets."""
    takes_data: bool = False
    """Its node loses data that other replicas must have: the round begins when every replica is in sync."""
    weight: int = 1
    """How often it comes, compared with the others, once each kind has come."""


@dataclass(frozen=True, slots=True)
class Band:
    """One fault: what, where, from when until when (seconds since the begin of the run)."""

    kind: str
    nodes: tuple[int, ...]
    """In an order by chance: a fault between two nodes starts at the first."""
    begin: float
    end: float
    seed: int
    """For what the fault chooses itself (which file, which bit)."""


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that overlap, after which all is quiet for a while."""

    bands: tuple[Band, ...]
    needs_in_sync: bool

    @property
    def begin(self) -> float:
        return min(band.begin for band in self.bands)

    @property
    def end(self) -> float:
        return max(band.end for band in self.bands)

    @property
    def name(self) -> str:
        return " + ".join(band.kind for band in self.bands)


def plan(seed: int, seconds: float, nodes: int, kinds: Sequence[Kind]) -> tuple[Round, ...]:
    """The rounds of one run of so many seconds. Raises ValueError if there is no kind that so many nodes can have."""
    possible = [kind for kind in kinds if max(kind.victims, 1) <= nodes]
    if not possible:
        raise ValueError(f"no fault is possible with {nodes} nodes: name others")
    rng = Random(seed)
    deck = _shuffled(rng, possible, weighted=False)
    rounds: list[Round] = []
    at = WARM_UP_S
    while True:
        if not deck:
            deck = _shuffled(rng, possible, weighted=True)
        first = deck.pop()
        chosen = [first]
        if rng.random() < TWO_AT_ONCE and (second := _partner(first, deck, nodes)) is not None:
            deck.remove(second)
            chosen.append(second)
        new = _round(rng, at, chosen, nodes)
        if new.end > seconds:
            return tuple(rounds)
        rounds.append(new)
        at = new.end + rng.uniform(*QUIET_S)


def may_overlap(one: Kind, other: Kind, nodes: int) -> bool:
    """Whether two faults may be active at once, on different nodes."""
    if EVERY_NODE in (one.victims, other.victims) or one.victims + other.victims > nodes:
        return False
    # Were both a loss of data, or one a loss and the other an absence, the last copy of a record could be lost.
    return not (one.takes_data and (other.takes_data or other.takes_out)) and not (other.takes_data and one.takes_out)


def _shuffled(rng: Random, kinds: Sequence[Kind], *, weighted: bool) -> list[Kind]:
    deck = [kind for kind in kinds for _ in range(kind.weight if weighted else 1)]
    rng.shuffle(deck)
    return deck


def _partner(first: Kind, deck: Sequence[Kind], nodes: int) -> Kind | None:
    return next((kind for kind in reversed(deck) if kind != first and may_overlap(first, kind, nodes)), None)


def _round(rng: Random, at: float, kinds: Sequence[Kind], nodes: int) -> Round:
    order = rng.sample(range(nodes), nodes)
    bands: list[Band] = []
    for kind in kinds:
        count = kind.victims or nodes
        victims, order = tuple(order[:count]), order[count:]
        # The second begins while the first lasts.
        begin = at if not bands else at + rng.uniform(0, (bands[0].end - at) * 0.8)
        bands.append(Band(kind.name, victims, begin, begin + rng.uniform(*kind.seconds), rng.getrandbits(32)))
    return Round(tuple(bands), any(kind.takes_data for kind in kinds))
