"""Line charts as SVG, drawn by the node: no library, and nothing to run in the browser."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from tidelog.console.html import Html, element
from tidelog.console.live_figures import LiveSeries

WIDTH: Final = 300
HEIGHT: Final = 80
POINTS: Final = 149
"""Places on the line: new values come from the right."""


def chart(series: LiveSeries) -> Html:
    """A figure with its newest value as text. A screen reader reads the lowest, highest and newest value instead of the
    line."""
    known = [value for value in series.values if value is not None]
    top = max(known, default=0.0) or 1.0
    told = (
        f"now {amount(series.last)}, lowest {amount(min(known))}, highest {amount(max(known))} {series.unit}"
        if known
        else "nothing measured yet"
    )
    drawing = element(
        "svg",
        [element("polyline", points=points) for points in _runs(series, top)],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{series.name}: {told}",
    )
    value = element("strong", "-" if series.last is None else amount(series.last))
    title = element("figcaption", element("span", series.name), value, f" {series.unit}")
    return element(
        "figure", title, drawing, element("small", f"highest {amount(max(known))}" if known else "no value yet")
    )


def amount(value: float | None) -> str:
    """A number of three digits with its magnitude: 1.23 k."""
    if value is None:
        return "none"
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _runs(series: LiveSeries, top: float) -> list[str]:
    """The points of each part of the line without a gap."""
    start = POINTS - len(series.values)
    places = list(enumerate(series.values, start))
    runs = []
    for is_known, part in groupby(places, key=lambda each: each[1] is not None):
        if is_known:
            runs.append(" ".join(f"{at * WIDTH / (POINTS - 1):.1f},{_height(value, top):.1f}" for at, value in part))
    return runs


def _height(value: float | None, top: float) -> float:
    return HEIGHT - 1 - (value or 0.0) / top * (HEIGHT - 2)
