"""chaos-out/report.html: one page without other files. A picture in time of throughput and latency, the faults as bands
behind it; the verdict; how long acknowledgements were missing, by fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from statistics import quantiles
from typing import Final

from tests.chaos.history import Acked
from tests.chaos.kubelet import STATES
from tests.chaos.play import PlayedBand, Result
from tests.chaos.verdict import CHECKS

WIDTH: Final = 1_100
LEFT: Final = 70
PLOT: Final = 130
"""The height of a plot (pixels)."""
ROW: Final = 15
"""The height of the line of one band."""
BUCKETS: Final = 240
FINDINGS_SHOWN: Final = 100
_COLORS: Final = ("#c0392b", "#8e44ad", "#2471a3", "#117a65", "#b9770e", "#7b241c", "#1a5276", "#6c3483")

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: {width}px; color: #222; }}
table {{ border-collapse: collapse; }} td, th {{ padding: 2px 12px 2px 0; text-align: left; vertical-align: top; }}
td.number {{ text-align: right; }} .passed {{ color: #117a65; }} .failed {{ color: #c0392b; font-weight: bold; }}
text {{ font: 11px system-ui, sans-serif; fill: #444; }} pre {{ white-space: pre-wrap; }}
</style></head><body>
<h1>{title}</h1>
<p class="{state}">{verdict}</p>
{picture}
<h2>Verdict</h2>
{checks}
<h2>Time without acknowledgements</h2>
{silences}
{probes}
<h2>Faults</h2>
{faults}
{left_out}
</body></html>
"""


@dataclass(frozen=True, slots=True)
class Heading:
    seed: int
    nodes: int
    runtime: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Faults that were impossible, with the reason."""


def write_report(path: Path, heading: Heading, result: Result) -> None:
    path.write_text(page(heading, result), encoding="utf-8")


def page(heading: Heading, result: Result) -> str:
    played = result.played
    title = f"Chaos, seed {heading.seed}: {heading.nodes} nodes ({heading.runtime})"
    seconds = played.ended - played.began
    verdict = (
        f"{'Passed' if result.passed else 'Failed'}: {len(result.evidence.acked):,} records acknowledged in "
        f"{seconds:.0f} s, {len(played.bands)} faults in {len(played.spans)} rounds."
    )
    failure = "" if played.failure is None else f"<pre>{escape(played.failure)}</pre>"
    return _PAGE.format(
        title=escape(title),
        width=WIDTH,
        state="passed" if result.passed else "failed",
        verdict=escape(verdict) + failure,
        picture=_picture(result),
        checks=_checks(result),
        silences=_table(
            ["round", "no partition (s)", "some partition (s)"],
            [
                [each.name, f"{each.all_partitions:.1f}", f"{each.one_partition:.1f}"]
                for each in sorted(result.silences, key=lambda each: -each.one_partition)
            ],
        ),
        probes=_probes(result),
        faults=_table(
            ["at (s)", "for (s)", "fault", "nodes", ""],
            [
                [
                    f"{band.begin - played.began:.1f}",
                    f"{band.end - band.begin:.1f}",
                    band.kind,
                    ", ".join(map(str, sorted(band.nodes))),
                    band.what,
                ]
                for band in sorted(played.bands, key=lambda band: band.begin)
            ],
        ),
        left_out=_table(["left out", ""], list(heading.left_out.items())) if heading.left_out else "",
    )


def _checks(result: Result) -> str:
    counts = result.checks_failed
    rows = [[name, f"{counts[name]} times" if counts[name] else "never", meaning] for name, meaning in CHECKS.items()]
    table = _table(["check", "found", "meaning"], rows)
    found = "\n".join(f"{each.check}: {each.text}" for each in result.findings[:FINDINGS_SHOWN])
    return f"{table}<pre>{escape(found)}</pre>"


def _probes(result: Result) -> str:
    """How often the kubelet saw what, by node."""
    counts = Counter((each.node, each.state) for each in result.evidence.probed)
    if not counts:
        return ""
    rows = [
        [str(node), *(str(counts[node, state]) for state in STATES)] for node in sorted({node for node, _ in counts})
    ]
    return "<h2>Probes</h2>\n" + _table(["node", *STATES], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


# --- the picture ---


@dataclass(frozen=True, slots=True)
class _Axis:
    """Seconds of the history's clock on the width of the picture."""

    begin: float
    end: float

    def at(self, moment: float) -> float:
        return LEFT + (moment - self.begin) / max(self.end - self.begin, 1e-9) * (WIDTH - LEFT)


def _picture(result: Result) -> str:
    axis = _Axis(result.played.began, result.played.ended)
    rows = _rows(result.played.bands)
    height = 2 * PLOT + 60 + ROW * (1 + max(rows.values(), default=0))
    rates, latencies = _samples(result.evidence.acked, axis)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="what happened when">']
    colors = _colors(result.played.bands)
    for index, band in enumerate(result.played.bands):
        x, right = axis.at(band.begin), axis.at(band.end)
        y, color = 2 * PLOT + 40 + rows[index] * ROW, colors[band.kind]
        name = f"{band.kind} {', '.join(map(str, sorted(band.nodes)))}"
        span = f'x="{x:.1f}" width="{max(right - x, 1):.1f}"'
        parts.append(f'<rect {span} y="0" height="{2 * PLOT + 20}" fill="{color}" opacity="0.12"/>')
        parts.append(
            f'<rect {span} y="{y}" height="{ROW - 3}" fill="{color}"><title>{escape(band.what)}</title></rect>'
        )
        parts.append(f'<text x="{right + 3:.1f}" y="{y + ROW - 5}">{escape(name)}</text>')
    parts += _plot("records/s", 0, rates, axis)
    parts += _plot("p99, ms", PLOT + 20, latencies, axis)
    for tick in range(11):
        moment = axis.begin + (axis.end - axis.begin) * tick / 10
        anchor = "end" if tick == 10 else "middle"
        x = axis.at(moment)
        parts.append(f'<text x="{x:.1f}" y="{2 * PLOT + 34}" text-anchor="{anchor}">{moment - axis.begin:.0f} s</text>')
    return "\n".join([*parts, "</svg>"])


def _samples(acked: Sequence[Acked], axis: _Axis) -> tuple[list[float], list[float]]:
    """Acknowledgements a second, and the 99th percentile of their milliseconds, in each part of the time."""
    width = (axis.end - axis.begin) / BUCKETS
    by_bucket: dict[int, list[float]] = defaultdict(list)
    for each in acked:
        by_bucket[min(int((each.t - axis.begin) / width), BUCKETS - 1)].append(each.ms)
    rates = [len(by_bucket[index]) / width for index in range(BUCKETS)]
    slow = [by_bucket[index] for index in range(BUCKETS)]
    return rates, [quantiles(each, n=100)[98] if len(each) > 1 else sum(each) for each in slow]


def _plot(name: str, top: int, values: Sequence[float], axis: _Axis) -> list[str]:
    most = max(*values, 1.0)
    step = (WIDTH - LEFT) / BUCKETS
    points = " ".join(
        f"{LEFT + (index + 0.5) * step:.1f},{top + PLOT - value / most * (PLOT - 12):.1f}"
        for index, value in enumerate(values)
    )
    return [
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{top + PLOT}" y2="{top + PLOT}" stroke="#999"/>',
        f'<text x="0" y="{top + PLOT / 2:.0f}">{name}</text>',
        f'<text x="{LEFT - 4}" y="{top + 14}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT - 4}" y="{top + PLOT}" text-anchor="end">0</text>',
        f'<polyline points="{points}" fill="none" stroke="#222" stroke-width="1"/>',
    ]


def _rows(bands: Sequence[PlayedBand]) -> dict[int, int]:
    """The line of each band: names are written behind their bands, so that neighbours need lines of their own."""
    order = sorted(range(len(bands)), key=lambda index: bands[index].begin)
    return {index: place % 8 for place, index in enumerate(order)}


def _colors(bands: Sequence[PlayedBand]) -> dict[str, str]:
    kinds = sorted({band.kind for band in bands})
    return {kind: _COLORS[index % len(_COLORS)] for index, kind in enumerate(kinds)}
