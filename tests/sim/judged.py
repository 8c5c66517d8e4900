"""Runs one random world and reports a failure. A separate module because worker processes cannot import __main__.py."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.plan import Plan, make_plan
from tests.sim.random_world import Outcome, run
from tests.sim.shrink import shrink


def plan_of(seed: int, nodes: int | None) -> Plan:
    """The plan of a seed; with a given number of nodes, one with three voters."""
    plan = make_plan(seed, nodes)
    return plan if nodes is None else replace(plan, voters=min(nodes, 3))


def run_one(seed: int, nodes: int | None) -> tuple[Outcome, str]:
    """Run the world of a seed. Returns its outcome and the report of a failure."""
    plan = plan_of(seed, nodes)
    outcome = run(plan)
    if outcome.failure is None:
        return outcome, ""
    dropped = shrink(plan, outcome.failure)
    return outcome, report(outcome, plan, dropped, nodes)


def report(outcome: Outcome, plan: Plan, dropped: frozenset[int], nodes: int | None) -> str:
    """The report of a failure: the faults that it needs, and the command that replays it with these alone."""
    kept = [f"  {number:3d} {fault}" for number, fault in enumerate(plan.faults) if number not in dropped]
    size = "" if nodes is None else f" --nodes {nodes}"
    without = f" --without {','.join(map(str, sorted(dropped)))}" if dropped else ""
    return (
        f"\nseed {outcome.seed} FAILED: {outcome.failure}\nneeds {len(kept)} of {len(plan.faults)} faults:\n"
        + "\n".join(kept)
        + f"\nreplay it with: python -m tests.sim --seed {outcome.seed}{size}{without}\n"
    )
