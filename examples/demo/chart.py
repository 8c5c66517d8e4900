"""`failover.png`: throughput, latency and in-sync replicas on one axis of time, with what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from examples.demo.meter import Sample
from examples.demo.story import PARTITIONS, REPLICAS, Story

INK: Final = "#2b2f36"
BLUE: Final = "#1f6fb4"
LIGHT_BLUE: Final = "#9cc4e4"
GREEN: Final = "#3a8f5c"
RED: Final = "#c8372d"
GREY: Final = "#8a9099"

COLORS: Final = {"killed": RED, "recovered": BLUE, "restarted": GREY, "healed": GREEN}


def draw(story: Story, timeline: Sequence[Sample], path: Path) -> None:
    """Save the chart. Time 0 is the begin of the load."""
    begin = story.at("load")
    samples = [sample for sample in timeline if sample.at >= begin]
    figure = Figure(figsize=(11, 8), dpi=140, layout="constrained")
    throughput, latency, replicas = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 2])
    times = [sample.at - begin for sample in samples]

    _draw_throughput(throughput, times, samples)
    _draw_latency(latency, times, samples)
    _draw_in_sync(replicas, times, samples)
    for axes in (throughput, latency, replicas):
        _dress(axes)
        _draw_marks(axes, story, begin, named=axes is throughput)
    replicas.set_xlabel("seconds since the load began")
    replicas.set_xlim(0, max(times, default=1))
    assert story.failover is not None
    figure.suptitle(
        f"SIGKILL of node {story.killed_node}, leader of {len(story.killed_partitions)} of {PARTITIONS} partitions: "
        f"all acknowledge again after {story.failover.seconds:.2f} s",
        fontsize=13,
        color=INK,
        x=0.012,
        ha="left",
        weight="bold",
    )
    figure.savefig(path)


def _draw_throughput(axes: Axes, times: Sequence[float], samples: Sequence[Sample]) -> None:
    rates = [sample.acks_per_second for sample in samples]
    axes.fill_between(times, rates, step="pre", color=LIGHT_BLUE, alpha=0.45, linewidth=0)
    axes.step(times, rates, where="pre", color=BLUE, linewidth=1.2)
    axes.set_ylabel("acknowledged\nrecords per second")
    axes.set_ylim(0, max(rates, default=1) * 1.22)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _draw_latency(axes: Axes, times: Sequence[float], samples: Sequence[Sample]) -> None:
    p50 = [sample.p50_ms or float("nan") for sample in samples]
    p99 = [sample.p99_ms or float("nan") for sample in samples]
    axes.plot(times, p99, color=RED, linewidth=1.2, label="99 %")
    axes.plot(times, p50, color=BLUE, linewidth=1.2, label="50 %")
    axes.set_yscale("log")
    axes.set_ylabel("latency until\nacknowledged by all (ms)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.legend(loc="upper right", frameon=False, ncols=2)


def _draw_in_sync(axes: Axes, times: Sequence[float], samples: Sequence[Sample]) -> None:
    total = [float("nan") if each.in_sync_total is None else each.in_sync_total for each in samples]
    smallest = [float("nan") if each.in_sync_smallest is None else each.in_sync_smallest for each in samples]
    axes.step(times, total, where="post", color=GREEN, linewidth=1.6, label="all partitions together")
    axes.step(times, smallest, where="post", color=INK, linewidth=1.6, label="smallest in-sync set")
    axes.set_ylabel("replicas\nin sync")
    axes.set_ylim(0, PARTITIONS * REPLICAS * 1.15)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.legend(loc="center right", frameon=False, ncols=2)


def _draw_marks(axes: Axes, story: Story, begin: float, *, named: bool) -> None:
    axes.axvspan(story.at("killed") - begin, story.at("recovered") - begin, color=RED, alpha=0.10, linewidth=0)
    axes.axvspan(story.at("recovered") - begin, story.at("healed") - begin, color=GREY, alpha=0.08, linewidth=0)
    top = axes.get_ylim()[1]
    for mark in story.marks:
        color = COLORS.get(mark.name)
        if color is None:
            continue
        axes.axvline(mark.at - begin, color=color, linewidth=1.1, linestyle=(0, (4, 3)))
        if named:
            right = mark.name in {"killed", "restarted"}
            axes.annotate(
                mark.name,
                (mark.at - begin, top),
                xytext=(-4 if right else 4, -4),
                textcoords="offset points",
                ha="right" if right else "left",
                va="top",
                color=color,
                weight="bold",
            )


def _dress(axes: Axes) -> None:
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.yaxis.label.set_color(INK)
