"""`python -m bench SUITE` runs a suite and prints each figure.

Standard output has only the result: a table, or with `--json` one JSON object per line. Progress goes to standard
error. The exit code reports whether the measurement succeeded, not whether targets are met.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from bench import cluster_parts, coordinator_parts, kafka_parts, machine, report, spark_parts, suites, tiering_parts
from bench.figure import Figure, Run, Suite


def measure(suite: Suite, run: Run) -> Iterator[Figure]:
    """The figures of one suite. Each name must be unique, so that two runs can be compared."""
    seen = set()
    for figure in suite(run):
        assert figure.figure not in seen, f"two figures are named {figure.figure}"
        seen.add(figure.figure)
        yield figure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure, and compare with the raw limit of the machine or a peer."
    )
    parser.add_argument("suite", help=f"one of: all, {', '.join(suites.names())}")
    parser.add_argument("--json", action="store_true", help="one JSON object per figure, alone on standard output")
    parser.add_argument(
        "--plot", nargs="?", const=Path("bench-out"), type=Path, metavar="DIRECTORY", help="save PNG charts"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: its figures are not reliable")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the figures with date and machine, as JSON")
    parts = tuple(
        dict.fromkeys(
            (
                *cluster_parts.PARTS,
                *coordinator_parts.PARTS,
                *spark_parts.PARTS,
                *kafka_parts.PARTS,
                *tiering_parts.PARTS,
            )
        )
    )
    cluster = parser.add_argument_group("suites cluster, coordinators, kafka, spark and tiering")
    cluster.add_argument(
        "--partitions", type=_numbers, default=(6, 300, 1500), metavar="N,N", help="topics of so many (6,300,1500)"
    )
    cluster.add_argument(
        "--peer", type=_names(cluster_parts.PEERS), default=(), metavar="NAME,NAME", help=_choice(cluster_parts.PEERS)
    )
    cluster.add_argument("--only", type=_names(parts), default=(), metavar="PART,PART", help=_choice(parts))
    cluster.add_argument("--gigabytes", type=float, default=2.0, metavar="N", help="of a replaced node's log (2)")
    options = parser.parse_args(arguments)
    try:
        chosen = suites.load(options.suite)
    except LookupError as unknown:
        parser.error(str(unknown))
    for name, suite in chosen.items():
        with tempfile.TemporaryDirectory(prefix=f"tidelog-bench-{name}-") as scratch:
            figures = []
            run = Run(Path(scratch), options.quick, options.partitions, options.peer, options.only, options.gigabytes)
            try:
                for figure in measure(suite, run):
                    figures.append(figure)
                    if options.json:
                        print(figure.to_json(), flush=True)
                    if options.save:  # each time: a run that is interrupted keeps what it has measured
                        _save(options.save, name, figures, run)
            finally:
                if figures and not options.json:
                    Console(width=None if sys.stdout.isatty() else 140).print(report.table(name, figures))
        if options.plot:
            print(f"saved {report.plot(name, figures, options.plot)}", file=sys.stderr)
    return 0


def _save(path: Path, suite: str, figures: Sequence[Figure], run: Run) -> None:
    """One JSON document; `python -m bench.picture` draws it."""
    document = {
        "suite": suite,
        "date": machine.today(),
        "machine": machine.description(),
        "others": statistics.median(run.others) if run.others else 0.0,
        "versions": run.versions,
        "figures": [json.loads(figure.to_json()) for figure in figures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted(int(number) for number in text.split(",")))
    if numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"{numbers[0]} partitions: at least 1")
    return numbers


def _choice(valid: Sequence[str]) -> str:
    return f"one or more of: {', '.join(valid)}"


def _names(valid: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in valid:
                raise argparse.ArgumentTypeError(f"{name!r} is not {_choice(valid)}")
        return names

    return parse


if __name__ == "__main__":
    # The default action would leave the nodes of a suite running; an exit ends them.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sys.exit(main())
