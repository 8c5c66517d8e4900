"""`python -m bench.picture FILE SVG`: draws the saved run of the suite `cluster` (`--save FILE`) as one picture.

Bars of Tidelog and of each peer, grouped by figure, panels by unit; below them the date, the machine and the versions.
The picture is plain SVG: a README shows it in light and dark pages.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.report import number

COLOURS: Final = ("#1f6f8b", "#e08e45", "#8a8f98", "#c8553d", "#6b8f71", "#b08ea2")
"""Tidelog first, then the peers in the order in which they appear."""
OURS: Final = "Tidelog"
OTHERS_MIN: Final = 0.1
"""Cores that other programs took during a run: from here on the picture says so."""

WIDTH: Final = 900
LABEL_WIDTH: Final = 300
BAR_WIDTH: Final = 470
BAR: Final = 12
GAP: Final = 10
TITLE: Final = 34


class Panel(NamedTuple):
    """figures: a pattern whose group is the label of a bar group."""

    title: str
    unit: str
    figures: re.Pattern[str]


PANELS: Final = (
    Panel(
        "Produce 100 B, records/s (more is better)",
        "records/s",
        re.compile(r"produce 100 B, page cache, ((?:keyed|no keys), [\d,]+ partitions, (?:new|warm), 1 client)"),
    ),
    Panel(
        "One record at a time, ms (less is better)",
        "ms",
        re.compile(r"one record at a time, page cache, (p\d+, (?:alone|\d+% background load))"),
    ),
    Panel(
        "Processor of the nodes per batch of 50 records, us (less is better)",
        "us",
        re.compile(r"processor of the nodes per batch, page cache, ([\d,]+ partitions, warm)"),
    ),
    Panel("Memory of an idle node, MiB (less is better)", "MiB", re.compile(r"memory of an idle node, ([^:]*)")),
    Panel("Failover after kill -9, s (less is better)", "s", re.compile(r"(failover) after kill -9, worst of \d+")),
)


class Group(NamedTuple):
    """One figure: its label, and the value of each system."""

    label: str
    values: dict[str, float]


def groups(panel: Panel, figures: list[Mapping[str, Any]]) -> list[Group]:
    """The figures of a panel in the order of the run; a figure appears once for each peer it is compared with."""
    found: dict[str, Group] = {}
    for figure in figures:
        name, _, peer = str(figure["figure"]).partition(" / ")
        matched = panel.figures.fullmatch(name)
        if matched is None or figure["unit"] != panel.unit:
            continue
        group = found.setdefault(matched[1], Group(matched[1], {OURS: figure["value"]}))
        if peer:
            group.values[_short(peer)] = figure["baseline"]
    return list(found.values())


def _short(peer: str) -> str:
    """`Kafka, librdkafka` of `Kafka, librdkafka, page cache`."""
    return ", ".join(peer.split(", ")[:2])


def draw(run: Mapping[str, Any]) -> str:
    """The picture of a saved run."""
    panels = [(panel, groups(panel, run["figures"])) for panel in PANELS]
    panels = [(panel, found) for panel, found in panels if found]
    systems = list(dict.fromkeys(name for _, found in panels for group in found for name in group.values))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(systems)}
    body: list[str] = [*_legend(colours)]
    top = 64.0
    for panel, found in panels:
        body.append(_text(20, top + 16, panel.title, "bold"))
        top += TITLE
        largest = max(value for group in found for value in group.values.values()) or 1.0
        for group in found:
            body += _bars(group, top, largest, colours)
            top += BAR * len(group.values) + GAP
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    height = top + 58
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
    others = f"; other programs took {run['others']:.1f} cores meanwhile" if run["others"] >= OTHERS_MIN else ""
    body.append(_text(20, top + 20, f"{run['date']}, {run['machine']}{others}"))
    body.append(_text(20, top + 40, f"{versions}; three nodes, three replicas, acks=all, from the page cache"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            _text(20, 26, "Tidelog beside its peers, measured in one run", "bold"),
            *body,
            "</svg>",
            "",
        ]
    )


def _legend(colours: Mapping[str, str]) -> Iterator[str]:
    left = 20.0
    for name, colour in colours.items():
        yield f'<rect x="{left:.0f}" y="38" width="12" height="12" fill="{colour}"/>'
        yield _text(left + 17, 48, name)
        left += 34 + 6.6 * len(name)


def _bars(group: Group, top: float, largest: float, colours: Mapping[str, str]) -> Iterator[str]:
    yield _text(LABEL_WIDTH, top + BAR * len(group.values) / 2 + 4, group.label, anchor="end")
    for row, (name, value) in enumerate(group.values.items()):
        y = top + row * BAR
        width = max(1.0, BAR_WIDTH * value / largest)
        place = f'x="{LABEL_WIDTH + 10}" y="{y:.0f}" width="{width:.1f}" height="{BAR - 2}"'
        yield f'<rect {place} fill="{colours[name]}"/>'
        yield _text(LABEL_WIDTH + 16 + width, y + 9, number(value), size=10)


def _text(x: float, y: float, text: str, weight: str = "", *, anchor: str = "", size: int = 0) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    more += f' font-size="{size}"' if size else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="#24292f"{more}>{escape(text)}</text>'


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description="Draw a saved run as SVG.")
    parser.add_argument("run", type=Path, help="what `python -m bench cluster --save FILE` has written")
    parser.add_argument("svg", type=Path, help="the picture")
    options = parser.parse_args(arguments)
    drawn = draw(json.loads(options.run.read_text(encoding="utf-8")))
    options.svg.parent.mkdir(parents=True, exist_ok=True)
    options.svg.write_text(drawn, encoding="utf-8")
    print(f"saved {options.svg}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
