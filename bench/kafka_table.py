"""`python -m bench.kafka_table RUN PAGE`: the table of a saved run of the suite `kafka` (`--save RUN`) in a page.

The table replaces what stands between the two markers of the page; above it are the date, the machine and the versions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.report import number

BEGIN: Final = "<!-- figures: make bench SUITE=kafka -->"
END: Final = "<!-- figures: end -->"

_GROWTH: Final = ": growth / "
"""A figure that compares Tidelog with itself."""
_PEER: Final = " / Kafka"
"""Its baseline is Kafka's value."""

_MET: Final = {True: "met", False: "**missed**"}


def render(run: Mapping[str, Any]) -> str:
    """The lines between the markers."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    figures = [each for each in run["figures"] if _GROWTH not in each["figure"]]
    targets = [each["met"] for each in figures if each["met"] is not None]
    where = f"{run['date']}, {run['machine']}; {versions}; other programs took {run['others']:.2f} cores meanwhile."
    lines = (
        f"{where} {sum(targets)} of {len(targets)} targets are met.",
        "",
        "| | unit | Tidelog | Kafka | ratio | target |",
        "|---|---|---|---|---|---|",
        *(_row(each) for each in figures if _PEER in each["figure"]),
        "",
        "librdkafka through the listener beside Tidelog's client by gRPC, at the same nodes:",
        "",
        "| | unit | librdkafka | Tidelog's client | ratio |",
        "|---|---|---|---|---|",
        *(_own_row(each) for each in figures if _PEER not in each["figure"]),
    )
    return "\n".join(lines)


def _row(figure: Mapping[str, Any]) -> str:
    name, _, _ = figure["figure"].partition(" / ")
    target = "" if figure["target"] is None else f"{number(figure['target'])}, {_MET[figure['met']]}"
    return f"| {name} | {figure['unit']} | {_numbers(figure)} | {target} |"


def _own_row(figure: Mapping[str, Any]) -> str:
    name = figure["figure"].partition(" / ")[0].replace(", librdkafka through the listener", "")
    return f"| {name} | {figure['unit']} | {_numbers(figure)} |"


def _numbers(figure: Mapping[str, Any]) -> str:
    return f"{number(figure['value'])} | {number(figure['baseline'])} | {figure['ratio']:.2f}"


def replaced(page: str, table: str) -> str:
    """The page with this between its markers. Raises ValueError if it lacks one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} behind it: add both where the table belongs")
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_table", description="Put a saved run into a page.")
    parser.add_argument("run", type=Path, help="what `python -m bench kafka --save RUN` has written")
    parser.add_argument("page", type=Path, help="a Markdown file with both markers")
    options = parser.parse_args(arguments)
    table = render(json.loads(options.run.read_text(encoding="utf-8")))
    options.page.write_text(replaced(options.page.read_text(encoding="utf-8"), table), encoding="utf-8")
    print(f"wrote {options.page}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
