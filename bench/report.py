"""Shows figures: a table, and one PNG chart per suite. Both show which targets are met, without a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from bench.figure import Better, Figure

MET, MISSED, PLAIN = "#2a7d4f", "#c0392b", "#4a6fa5"


def number(value: float | None) -> str:
    """Four significant digits with thousands separators; a dash for None."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{number(ratio)}x"


def wanted(figure: Figure) -> str:
    """The target as text: `at least 5x` of the baseline, or `at most 3 s`."""
    if figure.target is None:
        return "-"
    amount = f"{number(figure.target)} {figure.unit}" if figure.baseline is None else times(figure.target)
    return f"{figure.better.value} {amount}"


def table(suite: str, figures: Sequence[Figure]) -> Table:
    shown = Table(title=f"bench {suite}", title_justify="left")
    shown.add_column("figure")
    for column in ("value", "unit", "baseline", "ratio", "target"):
        shown.add_column(column, justify="left" if column == "unit" else "right")
    shown.add_column("met")
    for figure in figures:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[figure.met]
        cells = (number(figure.value), figure.unit, number(figure.baseline), times(figure.ratio), wanted(figure))
        shown.add_row(figure.figure, *cells, met)
    return shown


def plot(suite: str, figures: Sequence[Figure], directory: Path) -> Path:
    """Save `directory/SUITE.png`: ratios to baselines in one panel, other figures in one panel per unit.

    A tick across a bar marks its target. Returns the file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = grouped(figures)
    heights = [len(group) + 1 for group in panels.values()]
    canvas, axes = plt.subplots(
        len(panels),
        1,
        figsize=(10, 0.45 * sum(heights) + 1),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    canvas.suptitle(f"bench {suite}")
    for axis, (label, group) in zip(axes[:, 0], panels.items(), strict=True):
        shown = [figure.value if figure.ratio is None else figure.ratio for figure in group]
        colours = [{True: MET, False: MISSED, None: PLAIN}[figure.met] for figure in group]
        bars = axis.barh([figure.figure for figure in group], shown, color=colours, height=0.6)
        axis.bar_label(bars, labels=[f" {number(value)}" for value in shown])
        for row, figure in enumerate(group):
            if figure.target is not None:
                axis.plot([figure.target] * 2, [row - 0.4, row + 0.4], color="black", linewidth=2)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_xlabel(label)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{suite}.png"
    canvas.savefig(path, dpi=120)
    plt.close(canvas)
    return path


def grouped(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Figures that share an axis: all ratios, the others by unit and direction."""
    panels: dict[str, list[Figure]] = {}
    for figure in figures:
        label = "times the baseline" if figure.baseline is not None else figure.unit
        more = "" if figure.better is Better.MORE else " (less is better)"
        panels.setdefault(label + more, []).append(figure)
    return panels
