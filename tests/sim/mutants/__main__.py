"""Plants each known bug in its story and in random worlds.

    python -m tests.sim.mutants --worlds 20 --jobs 2       all, with at most 20 random worlds each
    python -m tests.sim.mutants --worlds 0 NAME            one, its story alone
    python -m tests.sim.mutants --table rows.md            and the rows of docs/planted-bugs.md

The exit code is 1 if nothing notices a bug, or if its story ends with another violation than the expected one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.sim.mutants import MUTANTS
from tests.sim.mutants.examined import Found, examine


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of planted bugs (all)")
    parser.add_argument("--worlds", type=int, default=20, help="random worlds for each, at most (20)")
    parser.add_argument("--first", type=int, default=1, help="seed of the first world (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel processes (one for each core)")
    parser.add_argument("--table", type=Path, help="write the outcomes into this file, as rows of Markdown")
    given = parser.parse_args(arguments)
    wanted = [number for number, each in enumerate(MUTANTS) if not given.names or each.name in given.names]
    examine_one = partial(examine, seeds=range(given.first, given.first + given.worlds))
    found: list[Found] = []
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=5) as pool:
        for one in pool.imap_unordered(examine_one, wanted):
            found.append(one)
            print(f"{len(found):3}/{len(wanted)} {line(one)}", flush=True)
    if given.table is not None:
        given.table.write_text("".join(map(row, sorted(found))), encoding="utf-8")
    survivors = sorted(MUTANTS[one.number].name for one in found if not one.by_story and one.noticed is None)
    wrong = sorted(str(MUTANTS[one.number]) for one in found if not one.by_story)
    in_worlds = sum(one.noticed is not None for one in found)
    print(
        f"{len(found)} planted bugs: {sum(one.by_story for one in found)} caught by their stories, {in_worlds} by "
        f"at most {given.worlds} random worlds; survived: {', '.join(survivors) or 'none'}"
    )
    if wrong:
        print(f"not noticed by their story: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def line(found: Found) -> str:
    mutant = MUTANTS[found.number]
    story = f"{mutant.story.__name__}: {found.violation or 'no violation'}"
    if found.tried == 0:
        world = ""
    elif found.noticed is None:
        world = f"\n        not in {found.tried} random worlds"
    else:
        world = f"\n        in random world {found.tried}: {found.noticed[:200]}"
    return f"{'caught  ' if found.by_story else 'SURVIVED'} {mutant.name} ({mutant.rule})\n        {story[:240]}{world}"


def row(found: Found) -> str:
    mutant = MUTANTS[found.number]
    story = f"`{mutant.story.__name__}`" if found.by_story else "**no**"
    world = str(found.tried) if found.noticed is not None else f"not in {found.tried}"
    return f"| `{mutant.name}` | {mutant.rule} | {story} | {world} |\n"


if __name__ == "__main__":
    sys.exit(main())
