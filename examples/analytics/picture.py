"""`analytics.png`: lines by level over time with the bursts of errors, and the top talkers."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from examples.analytics.findings import LogFindings

INK: Final = "#2b2f36"
RED: Final = "#c8372d"
COLORS: Final = {"ERROR": RED, "WARN": "#e08b2c", "INFO": "#1f6fb4", "DEBUG": "#767d86", "-": "#b9bec6"}
ORDER: Final = tuple(COLORS)
OTHERS: Final = ("#3a8f5c", "#7a5ea8", "#4aa3a2", "#a8743a")


def draw(found: LogFindings, path: Path) -> None:
    """Save the picture."""
    figure = Figure(figsize=(11, 6.5), dpi=140, layout="constrained")
    over_time, talkers = figure.subplots(2, 1, height_ratios=[3, 2])
    _draw_levels(over_time, found)
    _draw_talkers(talkers, found)
    for axes in (over_time, talkers):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
    late = f", {found.late:,} too late" if found.late else ""
    figure.suptitle(f"{found.lines:,} lines{late}, {len(found.bursts)} bursts of errors", color=INK, weight="bold")
    figure.savefig(path)


def _draw_levels(axes: Axes, found: LogFindings) -> None:
    begins = sorted({begin for begin, _, _ in found.windows})
    if not begins:
        return
    at = [(begin - begins[0]).total_seconds() for begin in begins]
    width = 0.9 * min((after - before for before, after in pairwise(at)), default=10.0)
    levels = sorted(
        {level for _, level, _ in found.windows},
        key=lambda one: (one not in COLORS, ORDER.index(one) if one in ORDER else 0, one),
    )
    lines = {(begin, level): count for begin, level, count in found.windows}
    others = iter(OTHERS * (1 + len(levels)))
    bottom = [0] * len(begins)
    for level in levels:
        heights = [lines.get((begin, level), 0) for begin in begins]
        color = COLORS.get(level) or next(others)
        axes.bar(at, heights, width, bottom, color=color, label="no level" if level == "-" else level, align="edge")
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    for burst in found.bursts:
        number = begins.index(burst.begins)
        place = at[number] + width / 2, bottom[number]
        above: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{burst.errors:,}", place, color=RED, weight="bold", **above)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda seconds, _: f"{begins[0] + timedelta(seconds=seconds):%m-%d %H:%M:%S}")
    )
    axes.set_ylabel("lines in each window", color=INK)
    axes.legend(loc="upper left", ncols=6, frameon=False)


def _draw_talkers(axes: Axes, found: LogFindings) -> None:
    names = [component for component, _, _ in found.talkers][::-1]
    axes.barh(range(len(names)), [lines for _, lines, _ in found.talkers][::-1], color=COLORS["INFO"], alpha=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("lines of the top talkers", color=INK)
