"""The declaration of a metric, and the text of metrics in Prometheus' format.

A declaration has all that is written about a metric anywhere: the help of the endpoint, the page docs/metrics.md, the
dashboards and the alert rules are made from it (node/observability/monitoring/).
Not here: which metrics there are (*_families.py), serving them (metrics_server.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, islice
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from tidelog.values import dataclass

S = TypeVar("S")

AT_ONCE: Final = 150
"""Sources per turn of the loop, for example partitions: about 3 ms. For 10,000 partitions each metric is a megabyte of
text, and written at once all of them would block the loop for about 0.4 s. Hence the values of one scrape are not all
from the same instant."""

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
"""A label may have any character, for example a group id. The format escapes these three."""


class Distribution(NamedTuple):
    """The values of a histogram."""

    counts: Sequence[int]
    """How many were above the bound before and not above this one; at the end: above all bounds."""
    total: float


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule for Prometheus: when a metric needs somebody. What to do is the metric's `action`."""

    name: str
    expr: str
    """In PromQL; true while something is wrong."""
    summary: str
    """One line, in which Prometheus replaces `{{ $labels.node }}` and `{{ $value }}`."""
    minutes: float
    """How long it must hold before anybody is told."""
    is_critical: bool = False
    """Somebody must act at once. Otherwise within a day."""
    command: str = field(kw_only=True)
    """What to type first; capital letters stand for what the labels of the alert name."""


Value: TypeAlias = float | Mapping[str, float] | Mapping[tuple[str, ...], float] | Distribution | None
"""One sample, samples by the values of further labels, a histogram, or no sample: what is not known is not zero."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """How one metric is read from a source of type S."""

    name: str
    """A counter if it ends in `_total`."""
    help: str
    """What it means: one sentence without its full stop."""
    read: Callable[[S], Value]
    action: str
    """What an operator does with it."""
    unit: str = ""
    """Of the value, where the name does not end with it."""
    by: tuple[str, ...] = ()
    """The labels whose values are the keys of the mapping that `read` returns."""
    bounds: tuple[float, ...] = ()
    """The bounds of a histogram: `read` returns a Distribution over them."""
    is_sum: bool = False
    """One sample without labels: the sum over all sources."""
    alerts: tuple[Alert, ...] = ()

    @property
    def measured_in(self) -> str:
        """The unit of the value."""
        stem = self.name.removesuffix("_total").removesuffix("_max")
        return self.unit or next((unit for unit in ("seconds", "bytes") if stem.endswith("_" + unit)), "count")

    @property
    def type(self) -> str:
        """The type in Prometheus' terms."""
        return "histogram" if self.bounds else "counter" if self.name.endswith("_total") else "gauge"

    def samples(self, labels: Mapping[str, str], value: Value) -> Iterable[str]:
        """The lines for one source with these labels."""
        match value:
            case None:
                pass
            case Distribution(counts, total):
                bounds = [*map(str, self.bounds), "+Inf"]
                for bound, count in zip(bounds, accumulate(counts), strict=True):
                    yield _sample(f"{self.name}_bucket", {**labels, "le": bound}, count)
                yield _sample(f"{self.name}_count", labels, sum(counts))
                yield _sample(f"{self.name}_sum", labels, total)
            case Mapping():
                for key, number in value.items():
                    values = key if isinstance(key, tuple) else (key,)
                    yield _sample(self.name, {**labels, **dict(zip(self.by, values, strict=True))}, number)
            case number:
                yield _sample(self.name, labels, number)


class MetricTable(Generic[S]):
    """The metrics that are read from sources of one type."""

    def __init__(
        self,
        title: str,
        labels: Callable[[S], Mapping[str, str]],
        *metrics: Metric[S],
        names: tuple[str, ...] = (),
    ) -> None:
        """title: what they are about. labels: those of all samples of a source. names: of these labels."""
        self.title, self.labels, self.metrics, self.names = title, labels, metrics, names

    def labels_of(self, metric: Metric[S]) -> tuple[str, ...]:
        """The names of all labels of a metric of this table."""
        return metric.by if metric.is_sum else (*self.names, *metric.by)

    async def text(self, sources: Iterable[S], turn: Callable[[], Awaitable[None]]) -> bytes:
        """The metrics of all sources. turn: awaited between two parts."""
        lines: list[list[str]] = [[] for _ in self.metrics]
        sums = [0.0] * len(self.metrics)
        remaining = iter(sources)
        while lot := list(islice(remaining, AT_ONCE)):
            await turn()
            for source in lot:
                labels = self.labels(source)
                shown = _shown(labels)
                for number, metric in enumerate(self.metrics):
                    value = metric.read(source)
                    if metric.is_sum:
                        assert isinstance(value, int | float), f"{metric.name} is a sum of numbers"
                        sums[number] += value
                    elif isinstance(value, int | float):  # thousands of partitions have only these
                        lines[number].append(f"{metric.name}{shown} {float(value)}\n")
                    else:
                        lines[number] += metric.samples(labels, value)
        pieces = []
        for metric, samples, total in zip(self.metrics, lines, sums, strict=True):
            if metric.is_sum:
                samples.append(_sample(metric.name, {}, total))
            head = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n"
            pieces.append("".join((head, *samples)).encode())
            if len(samples) > AT_ONCE:
                await turn()
        return b"".join(pieces)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    return f"{name}{_shown(labels)} {float(value)}\n"


def _shown(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{labels[name].translate(_ESCAPES)}"' for name in sorted(labels)) + "}"


def no_labels(_source: object) -> Mapping[str, str]:
    """For a table whose source is the node itself."""
    return {}
