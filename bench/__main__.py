"""`python -m bench SUITE` runs a suite and prints each figure.

Standard output has only the result: a table, or with `--json` one JSON object per line. Progress goes to standard
error. The exit code reports whether the measurement succeeded, not whether targets are met.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench import report, suites
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
    options = parser.parse_args(arguments)
    try:
        chosen = suites.load(options.suite)
    except LookupError as unknown:
        parser.error(str(unknown))
    for name, suite in chosen.items():
        with tempfile.TemporaryDirectory(prefix=f"tidelog-bench-{name}-") as scratch:
            figures = []
            for figure in measure(suite, Run(Path(scratch), quick=options.quick)):
                figures.append(figure)
                if options.json:
                    print(figure.to_json(), flush=True)
        if not options.json:
            Console(width=None if sys.stdout.isatty() else 140).print(report.table(name, figures))
        if options.plot:
            print(f"saved {report.plot(name, figures, options.plot)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
