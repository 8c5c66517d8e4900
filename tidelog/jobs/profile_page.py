"""The profile as one HTML page without references to other files: tables, and plots as PNG in it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import UnsupportedVersion
from tidelog.jobs.profile_figures import PERCENTILES, PartitionProfile, TopicProfile, key_text
from tidelog.records.arrow_columns import TIMESTAMP_BELOW_MS, TIMESTAMP_FROM_MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidelog.jobs.log_histogram import LogHistogram

_STYLE: Final = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { border-bottom: 1px solid #ddd; padding: .25em .7em; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { background: #f4f4f4; position: sticky; top: 0; }
div.wide { overflow-x: auto; }
img { max-width: 100%; }
"""


def ensure_plots() -> None:
    """Raises UnsupportedVersion if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401, ICN001 - only whether it is there
    except ImportError as cause:
        raise UnsupportedVersion(
            "the page needs matplotlib: pip install 'tidelog[jobs]', or leave out --html"
        ) from cause


def profile_page(topics: Sequence[TopicProfile], title: str) -> str:
    """The page. Raises UnsupportedVersion if matplotlib is not installed."""
    ensure_plots()
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _table(_SUMMARY, [(each.whole, each) for each in topics]),
    ]
    for topic in topics:
        rows = [(partition, topic) for partition in topic.partitions]
        parts += [
            f"<h2>{escape(topic.whole.topic)}</h2>",
            f'<img alt="plots of {escape(topic.whole.topic)}" src="data:image/png;base64,{_picture(topic)}">',
            "<h3>Partitions</h3>",
            _table(_SUMMARY, rows),
            "<h3>Sizes, times between records, and delays</h3>",
            _table(_DISTRIBUTIONS, rows),
            "<h3>Most frequent keys</h3>",
            _keys(topic.whole),
            "<h3>Largest holes in the offsets</h3>",
            _holes(topic.partitions),
        ]
    parts += [f"<p>{_NOTES}</p>", "</body></html>"]
    return "\n".join(parts) + "\n"


_NOTES: Final = (
    "Bytes are those of keys, values and headers. Percentiles are within 1 %. A record is late if an earlier one of "
    "its partition has a later timestamp; its delay is the difference to the latest one. Absent offsets are markers of "
    "transactions, aborted records or removed by compaction. Compression is of batches of 64 KiB that are a sample."
)

_SUMMARY: Final = (
    ("", lambda each, _: each.name),
    ("offsets", lambda each, _: f"{each.start} to {each.log_end}" if each.partition is not None else ""),
    ("records", lambda each, _: f"{each.found.records:,}"),
    ("bytes", lambda each, _: f"{each.bytes:,}"),
    ("share", lambda each, topic: _percent(each.found.records, topic.whole.found.records)),
    ("per second", lambda each, _: "" if each.per_second is None else f"{each.per_second:,.2f}"),
    ("from", lambda each, _: time_text(each.found.time_min)),
    ("to", lambda each, _: time_text(each.found.time_max)),
    ("distinct keys", lambda each, _: f"{each.keys.distinct:,}"),
    ("top key", lambda each, _: f"{each.keys.share_of_top(each.found.records, 1):.1%}"),
    ("top 10 keys", lambda each, _: f"{each.keys.share_of_top(each.found.records, 10):.1%}"),
    ("null keys", lambda each, _: f"{each.found.null_keys:,}"),
    ("null values", lambda each, _: f"{each.found.null_values:,}"),
    ("without time", lambda each, _: f"{each.found.null_times:,}"),
    ("late", lambda each, _: _percent(each.found.delays.count, each.found.records)),
    ("holes", lambda each, _: f"{each.found.hole_count:,}"),
    ("absent offsets", lambda each, _: f"{each.absent_offsets:,}"),
    ("gzip", lambda each, _: _ratio(each, "gzip")),
    ("snappy", lambda each, _: _ratio(each, "snappy")),
    ("lz4", lambda each, _: _ratio(each, "lz4")),
    ("zstd", lambda each, _: _ratio(each, "zstd")),
)


def _columns_of(what: str, unit: str, field: str) -> list[tuple[str, Any]]:
    """The columns of a distribution."""
    columns: list[tuple[str, Any]] = [
        (f"{what} p{percent:g}", lambda each, _, p=percent: f"{getattr(each.found, field).percentile(p):,} {unit}")
        for percent in PERCENTILES
    ]
    return [*columns, (f"{what} max", lambda each, _: f"{getattr(each.found, field).max:,} {unit}")]


_DISTRIBUTIONS: Final = (
    ("", lambda each, _: each.name),
    *_columns_of("size", "B", "sizes"),
    *_columns_of("between", "ms", "gaps"),
    *_columns_of("delay", "ms", "delays"),
)


def _table(columns: Sequence[tuple[str, Any]], rows: Iterable[tuple[PartitionProfile, TopicProfile]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in columns)
    body = [
        "<tr>" + "".join(f"<td>{escape(str(cell(each, topic)))}</td>" for _, cell in columns) + "</tr>"
        for each, topic in rows
    ]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _keys(whole: PartitionProfile) -> str:
    rows = [
        f"<tr><td>{escape(text) if (text := key_text(key)) is not None else '<i>null</i>'}</td><td>{times:,}</td>"
        f"<td>{_percent(times, whole.found.records)}</td></tr>"
        for key, times in whole.keys.top
    ]
    return f"<table><tr><th>key</th><th>records</th><th>share</th></tr>{''.join(rows)}</table>"


def _holes(partitions: Iterable[PartitionProfile]) -> str:
    rows = [
        f"<tr><td>{escape(each.name)}</td><td>{start}</td><td>{start + size - 1}</td><td>{size:,}</td></tr>"
        for each in partitions
        for size, start in each.found.holes
    ]
    if not rows:
        return "<p>There are none.</p>"
    return f"<table><tr><th></th><th>from</th><th>to</th><th>offsets</th></tr>{''.join(rows)}</table>"


def _picture(topic: TopicProfile) -> str:
    """Six plots of a topic as PNG, in base64."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 7), layout="constrained")
    FigureCanvasAgg(figure)
    (over_time, by_partition, keys), (sizes, gaps, codecs) = figure.subplots(2, 3)
    found = topic.whole.found
    moments = sorted((moment * topic.unit_ms, times) for moment, times in topic.moments.items())
    has_dates = all(TIMESTAMP_FROM_MS <= moment < TIMESTAMP_BELOW_MS for moment, _ in moments)
    over_time.plot(
        [datetime.fromtimestamp(moment / 1000, UTC) if has_dates else moment for moment, _ in moments],
        [times / topic.unit_ms * 1000 for _, times in moments],
        drawstyle="steps-post",
    )
    over_time.set(title="Records a second, by timestamp" + ("" if has_dates else " in ms"), ylim=(0, None))
    over_time.tick_params(axis="x", rotation=30)
    by_partition.bar([each.partition for each in topic.partitions], [each.found.records for each in topic.partitions])
    by_partition.set(title=f"Records of each partition (largest: {topic.skew:.2f} of the mean)", xlabel="partition")
    names = [str(key_text(key))[:16] for key, _ in topic.whole.keys.top]
    keys.barh(range(len(names)), [times for _, times in topic.whole.keys.top])
    keys.set_yticks(range(len(names)), names, parse_math=False)  # a key may have dollar signs
    keys.invert_yaxis()
    keys.set(title="Records of the most frequent keys")
    _shares(sizes, "Size of records", "bytes", [("key, value and headers", found.sizes)])
    _shares(gaps, "Times between records, and delays", "ms", [("between", found.gaps), ("delay if late", found.delays)])
    ratios = topic.whole.compression()
    bars = codecs.bar(list(ratios), list(ratios.values()))
    codecs.bar_label(bars, fmt="%.2f")
    codecs.set(title="Compression ratio of a sample")
    for plot in (over_time, by_partition, keys, sizes, gaps, codecs):
        plot.grid(alpha=0.3)
        plot.spines[["top", "right"]].set_visible(False)
    image = BytesIO()
    figure.savefig(image, format="png", dpi=90)
    return base64.b64encode(image.getvalue()).decode("ascii")


def _shares(plot: Axes, title: str, unit: str, histograms: Iterable[tuple[str, LogHistogram]]) -> None:
    """The share of records up to each value."""
    for label, histogram in histograms:
        if shares := histogram.shares():
            plot.plot([value for value, _ in shares], [share * 100 for _, share in shares], ".-", label=label)
            plot.legend(loc="lower right")
    plot.set_xscale("symlog", linthresh=1)
    plot.set(title=title, xlabel=unit, ylabel="% of records", ylim=(0, 102))


def time_text(moment_ms: int | None) -> str:
    """A time for people, in UTC to the second; empty if there is none; in ms if it is in no year from 1 to 9999."""
    if moment_ms is None:
        return ""
    if not TIMESTAMP_FROM_MS <= moment_ms < TIMESTAMP_BELOW_MS:
        return f"{moment_ms} ms"
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _ratio(each: PartitionProfile, codec: str) -> str:
    ratio = each.compression().get(codec)
    return "" if ratio is None else f"{ratio:.2f}"
