"""Random worlds from the command line.

python -m tests.sim --seeds 200                that many new worlds on all cores, with progress
  python -m tests.sim --seed 4711                one world, with its plan and its trace
  python -m tests.sim --seed 4711 --without 3,5  the same world without some of its faults
  python -m tests.sim --seeds 200 --nodes 5      worlds of that size, with three voters
  python -m tests.sim --seeds 200 --coordinators worlds with groups and transactions
  python -m tests.sim --seeds 200 --tier         worlds with a remote tier, where a topic can have one

The exit code is 1 if a world failed. Each failure is shown with as few faults as it needs, and with the command that
replays it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial

from tests.sim.judged import Selected, plan_of, run_one
from tests.sim.random_world import Outcome, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="number of worlds (50)")
    parser.add_argument("--first", type=int, help="seed of the first world (random)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds in parallel (one for each core)")
    parser.add_argument("--seed", type=int, help="replay this world with its trace")
    parser.add_argument("--without", default="", help="with --seed: leave out these faults of the plan, by number")
    parser.add_argument("--nodes", type=int, help="nodes of every world; with 5 there are three voters")
    parser.add_argument(
        "--coordinators",
        action=argparse.BooleanOptionalAction,
        help="all worlds have coordinators with groups and transactions, or none has (as their seeds have it)",
    )
    parser.add_argument("--tier", action="store_true", help="worlds have a remote tier, where a topic can have one")
    given = parser.parse_args(arguments)
    selected = Selected(given.nodes, given.coordinators, given.tier)
    if given.seed is not None:
        return replay(given.seed, frozenset(int(number) for number in given.without.split(",") if number), selected)
    first = int.from_bytes(os.urandom(4)) if given.first is None else given.first  # noqa: TID251 - new worlds
    return run_many(range(first, first + given.seeds), given.jobs, selected)


def replay(seed: int, dropped: frozenset[int], selected: Selected) -> int:
    """Run one world and show everything."""
    plan = plan_of(seed, selected)
    print(f"seed {seed}: {plan.nodes} nodes, topics {', '.join(map(str, plan.topics))}")
    if plan.coordinators is not None:
        print(f"  {plan.coordinators}")
    for number, fault in enumerate(plan.faults):
        print(f"  {number:3d} {'(left out) ' if number in dropped else ''}{fault}")
    outcome = run(plan.without(dropped), show=print)
    print(f"\n{describe(outcome)}\ndigest {outcome.digest}")
    if outcome.failure is not None:
        print(f"\nFAILED: {outcome.failure.splitlines()[0]}")
    return 1 if outcome.failure else 0


def run_many(seeds: range, jobs: int, selected: Selected) -> int:
    """Run all worlds, `jobs` of them in parallel."""
    print(f"{len(seeds)} worlds from seed {seeds.start} on, {jobs} in parallel", file=sys.stderr)
    done: list[Outcome] = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        for outcome, shown in pool.imap_unordered(partial(run_one, selected=selected), seeds):
            done.append(outcome)
            if shown:
                print(shown, flush=True)
            progress(done, len(seeds))
    failed = sorted(outcome.seed for outcome in done if outcome.failure is not None)
    virtual, real = sum(o.virtual_seconds for o in done), sum(o.real_seconds for o in done)
    print(
        f"{len(done)} worlds, {virtual:.0f} virtual seconds at {virtual / real:.1f} per second and core, "
        f"{sum(o.acknowledged for o in done)} records acknowledged, {sum(o.unknown for o in done)} unknown, "
        f"{sum(o.read for o in done)} read; {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))}"
    )
    return 1 if failed else 0


def describe(outcome: Outcome) -> str:
    return (
        f"{outcome.virtual_seconds:.1f} virtual seconds in {outcome.real_seconds:.1f} s, {outcome.callbacks} events, "
        f"{outcome.acknowledged} records acknowledged, {outcome.unknown} unknown, {outcome.read} read"
    )


def progress(done: list[Outcome], total: int) -> None:
    if sys.stderr.isatty() or len(done) % 25 == 0 or len(done) == total:
        failed = sum(outcome.failure is not None for outcome in done)
        end = "\r" if sys.stderr.isatty() and len(done) < total else "\n"
        print(f"{len(done)}/{total} worlds, {failed} failed   ", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
