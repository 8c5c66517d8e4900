"""Runs one random world and reports a failure. A separate module because worker processes cannot import __main__.py."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tests.sim.plan import Plan, make_plan
from tests.sim.random_world import Outcome, run
from tests.sim.shrink import shrink


class Selected(NamedTuple):
    """Kinds of worlds selected on the command line. nodes: with a number, three voters; None: as the seed has it.
    coordinated: whether they have coordinators; None: as the seed has it. tiered: with a remote tier, if possible."""

    nodes: int | None = None
    coordinated: bool | None = None
    tiered: bool = False

    @property
    def options(self) -> str:
        """The options that select them again."""
        nodes = "" if self.nodes is None else f" --nodes {self.nodes}"
        coordinated = {None: "", True: " --coordinators", False: " --no-coordinators"}[self.coordinated]
        return nodes + coordinated + (" --tier" if self.tiered else "")


def plan_of(seed: int, selected: Selected) -> Plan:
    """The plan of a seed in the selected kind of world."""
    plan = make_plan(seed, selected.nodes, coordinated=selected.coordinated, tiered=selected.tiered)
    return plan if selected.nodes is None else replace(plan, voters=min(selected.nodes, 3))


def run_one(seed: int, selected: Selected) -> tuple[Outcome, str]:
    """Run the world of a seed. Returns its outcome and the report of a failure."""
    plan = plan_of(seed, selected)
    outcome = run(plan)
    if outcome.failure is None:
        return outcome, ""
    dropped = shrink(plan, outcome.failure)
    return outcome, report(outcome, plan, dropped, selected)


def report(outcome: Outcome, plan: Plan, dropped: frozenset[int], selected: Selected) -> str:
    """The report of a failure: the faults that it needs, and the command that replays it with these alone."""
    kept = [f"  {number:3d} {fault}" for number, fault in enumerate(plan.faults) if number not in dropped]
    without = f" --without {','.join(map(str, sorted(dropped)))}" if dropped else ""
    return (
        f"\nseed {outcome.seed} FAILED: {outcome.failure}\nneeds {len(kept)} of {len(plan.faults)} faults:\n"
        + "\n".join(kept)
        + f"\nreplay it with: python -m tests.sim --seed {outcome.seed}{selected.options}{without}\n"
    )
