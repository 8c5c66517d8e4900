"""The options of a streaming query: those of every query, the rate of its batches and its identity. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.group_options import group_id
from tidelog.errors import InvalidConfig
from tidelog.spark.options.offset_bounds import END_NAMES
from tidelog.spark.options.option_names import canonical
from tidelog.spark.options.option_values import duration_ms, positive
from tidelog.spark.options.query_options import OF_THE_SINK, QUERY_NAMES, QueryOptions, query_options
from tidelog.types import LATEST

GROUP_ID: Final = "tidelog.group.id"
GROUP_ID_PREFIX: Final = "spark-tidelog"
TRIGGER_DELAY_MS_MAX: Final = 15 * 60_000
"""As in Spark's Kafka source."""

STREAM_ONLY_NAMES: Final = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
"""Options of streams that Spark's Kafka source ignores in a batch query, as ours does."""
GROUP_NAMES: Final = ("groupIdPrefix", GROUP_ID)
STREAM_NAMES: Final = (*QUERY_NAMES, *STREAM_ONLY_NAMES, *GROUP_NAMES)

_ENDLESS: Final = "a streaming query has no end; read up to the present with trigger(availableNow=True), or spark.read"
_MISPLACED: Final = {
    **OF_THE_SINK,
    **dict.fromkeys(END_NAMES, _ENDLESS),
}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one batch of a stream reads, in offsets over all partitions.

    offsets_max: at most so many; None: all. offsets_min: a batch waits until so many are there; None: it does not wait.
    delay_ms_max: but never longer than this after the batch before.
    """

    offsets_min: int | None = None
    offsets_max: int | None = None
    delay_ms_max: int = TRIGGER_DELAY_MS_MAX


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a streaming query. group_id: the query's identity, whose committed offsets show its progress;
    None: it is derived, and begins with `group_id_prefix`."""

    query: QueryOptions
    limits: TriggerLimits
    group_id: str | None
    group_id_prefix: str


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Check and type the options of a streaming query. raw: as Spark passes them.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    given = canonical(raw, STREAM_NAMES, of="a tidelog stream", misplaced=_MISPLACED)
    identity, prefix = identity_of(given)
    return StreamOptions(query_options(given, start=LATEST), trigger_limits(given), identity, prefix)


def trigger_limits(given: Mapping[str, str]) -> TriggerLimits:
    """The rate of a stream. Raises InvalidConfig, also if the minimum exceeds the maximum."""
    least, most = positive(given, "minOffsetsPerTrigger"), positive(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfig(
            f"option 'minOffsetsPerTrigger' is {least}, above 'maxOffsetsPerTrigger', which is {most}; swap them"
        )
    return TriggerLimits(least, most, duration_ms(given, "maxTriggerDelay", default=TRIGGER_DELAY_MS_MAX))


def identity_of(given: Mapping[str, str]) -> tuple[str | None, str]:
    """The group id, or None, and the prefix of a derived one; as in Spark's Kafka source, the former wins."""
    prefix = given.get("groupIdPrefix", GROUP_ID_PREFIX).strip()
    if not prefix:
        raise InvalidConfig(f"option 'groupIdPrefix' is empty; the default is {GROUP_ID_PREFIX!r}")
    return group_id(given[GROUP_ID].strip()) if GROUP_ID in given else None, prefix
