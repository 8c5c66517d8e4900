"""`failover.png`: throughput, latency and in-sync replicas on one axis of time, with what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from examples.demo.meter import Sample
from examples.demo.story import PARTITIONS, REPLICAS, Story

INK: Final = "#2b2f36"
BLUE: Final = "#1f6fb4"
ORANGE: Final = "#e08b2c"
GREEN: Final = "#3a8f5c"
RED: Final = "#c8372d"
GREY: Final = "#767d86"

COLORS: Final = {"killed": RED, "recovered": BLUE, "restarted": GREY, "healed": GREEN}
LEGEND: Final[dict[str, Any]] = {"frameon": True, "framealpha": 0.85, "edgecolor": "none", "borderpad": 0.2}
LABEL_SHARE: Final = 0.13
"""Width of a mark's label, as a part of the axis: a label that would meet the one before goes a line higher."""
PEAK_RATIO_MAX: Final = 3.0
"""The burst that follows a recovery may leave the chart, or the steady rate would be a line at its bottom."""


def draw(story: Story, timeline: Sequence[Sample], path: Path) -> None:
    """Save the chart. Time 0 is the begin of the load."""
    begin = story.at("load")
    samples = [sample for sample in timeline if sample.at > begin]
    times = [sample.at - begin for sample in samples]
    figure = Figure(figsize=(11, 8), dpi=140, layout="constrained")
    throughput, latency, replicas = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 2])
    replicas.set_xlim(0, max(times, default=1))
    replicas.set_xlabel("seconds since the load began", color=INK)

    _draw_throughput(throughput, times, samples, story)
    _draw_latency(latency, times, samples)
    _draw_in_sync(replicas, times, samples)
    for axes in (throughput, latency, replicas):
        _dress(axes)
        _draw_marks(axes, story, begin)
    _name_marks(throughput, story, begin)
    assert story.failover is not None
    figure.suptitle(
        f"SIGKILL of node {story.killed_node}, leader of {len(story.killed_partitions)} of {PARTITIONS} partitions: "
        f"all acknowledge again after {story.failover.seconds:.2f} s",
        fontsize=13,
        color=INK,
        weight="bold",
    )
    figure.savefig(path)


def _draw_throughput(axes: Axes, times: Sequence[float], samples: Sequence[Sample], story: Story) -> None:
    """Stacked: the partitions that the killed node led below, the others above."""
    hit, others = [], []
    for sample in samples:
        share = sum(sample.acks.get(partition, 0) for partition in story.killed_partitions)
        total = sum(sample.acks.values())
        hit.append(sample.acks_per_second * share / total if total else 0.0)
        others.append(sample.acks_per_second - hit[-1])
    labels = [f"partitions {', '.join(map(str, story.killed_partitions))}, led by the killed node", "all others"]
    axes.stackplot(times, hit, others, labels=labels, colors=[ORANGE, BLUE], alpha=0.75, step="pre", linewidth=0)
    axes.set_ylabel("acknowledged\nrecords per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(loc="upper right", ncols=2, **LEGEND)
    rates = [sample.acks_per_second for sample in samples]
    if not rates:
        return
    peak, limit = max(rates), PEAK_RATIO_MAX * max(median(rates), 1)
    axes.set_ylim(0, min(peak * 1.25, limit))
    if peak * 1.25 > limit:
        axes.annotate(
            f"catching up: {peak:,.0f}/s",
            (times[rates.index(peak)], limit * 0.86),
            xytext=(6, 0),
            textcoords="offset points",
            color=INK,
            va="center",
            bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.5},
        )


def _draw_latency(axes: Axes, times: Sequence[float], samples: Sequence[Sample]) -> None:
    p50 = [sample.p50_ms or float("nan") for sample in samples]
    p99 = [sample.p99_ms or float("nan") for sample in samples]
    axes.plot(times, p99, color=RED, linewidth=1.3, label="99 % are faster")
    axes.plot(times, p50, color=BLUE, linewidth=1.3, label="50 % are faster")
    axes.set_yscale("log")
    axes.set_ylabel("latency until\nacknowledged (ms)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.legend(loc="upper right", ncols=2, **LEGEND)


def _draw_in_sync(axes: Axes, times: Sequence[float], samples: Sequence[Sample]) -> None:
    total = [float("nan") if each.in_sync_total is None else each.in_sync_total for each in samples]
    smallest = [float("nan") if each.in_sync_smallest is None else each.in_sync_smallest for each in samples]
    axes.step(times, total, where="post", color=GREEN, linewidth=1.8, label="all partitions together")
    axes.step(times, smallest, where="post", color=INK, linewidth=1.8, label="smallest in-sync set")
    axes.set_ylabel("replicas in sync")
    axes.set_ylim(0, PARTITIONS * REPLICAS * 1.15)
    axes.set_yticks(range(0, PARTITIONS * REPLICAS + 1, REPLICAS))
    axes.legend(loc="center right", ncols=2, **LEGEND)


def _draw_marks(axes: Axes, story: Story, begin: float) -> None:
    killed, recovered, healed = (story.at(name) - begin for name in ("killed", "recovered", "healed"))
    axes.axvspan(killed, recovered, color=RED, alpha=0.12, linewidth=0, zorder=0)
    axes.axvspan(recovered, healed, color=GREY, alpha=0.10, linewidth=0, zorder=0)
    for mark in story.marks:
        if mark.name in COLORS:
            axes.axvline(mark.at - begin, color=COLORS[mark.name], linewidth=1.2, linestyle=(0, (4, 3)))


def _name_marks(axes: Axes, story: Story, begin: float) -> None:
    """Names above the axes, each at its line; one that would meet its neighbour goes a line higher."""
    width = axes.get_xlim()[1]
    free: list[float] = [0.0, 0.0]  # where each line of labels is free again
    for mark in story.marks:
        if mark.name not in COLORS:
            continue
        at = mark.at - begin
        line = 0 if at >= free[0] else 1
        free[line] = at + LABEL_SHARE * width
        axes.annotate(
            f"{mark.name} {at:.1f} s",
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 4 + 14 * line),
            textcoords="offset points",
            color=COLORS[mark.name],
            weight="bold",
            annotation_clip=False,
        )


def _dress(axes: Axes) -> None:
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.yaxis.label.set_color(INK)
