"""The options of queries of the source: what batches and streams share, where a batch ends, the rate and the identity
of a stream. Pure.

As in Spark's Kafka source, options of streams are valid in a batch query but have no effect, so that the same options
serve both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.group_options import group_id
from tidelog.errors import InvalidConfig
from tidelog.spark.options.connection_options import (
    CONNECTION_NAMES,
    FETCH_NAMES,
    ConnectionOptions,
    connection_options,
)
from tidelog.spark.options.offset_bounds import END_NAMES, START_NAMES, Bound, offset_bound
from tidelog.spark.options.option_names import canonical
from tidelog.spark.options.option_values import boolean, choice, duration_ms, positive
from tidelog.spark.options.topic_selection import SELECTION_NAMES, TopicSelection, topic_selection
from tidelog.tiering.store_option import REMOTE_STORAGE, remote_storage
from tidelog.types import EARLIEST, LATEST, Isolation, Offset

FETCH_BYTES: Final = 4 << 20
FETCH_BYTES_MAX: Final = 1 << 30

QUERY_NAMES: Final = (
    *CONNECTION_NAMES,
    *FETCH_NAMES,
    *SELECTION_NAMES,
    *START_NAMES,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includeTimestampMs",
    "fetchBytes",
    REMOTE_STORAGE,
)

OF_THE_SINK: Final = {
    "topic": 'it names the topic of the sink; the source reads "subscribe", "subscribePattern" or "assign"',
    "exactlyOnce": "it belongs to the sink",
    "tidelog.sink.id": "it belongs to the sink",
    "tidelog.transaction.timeout.ms": "it belongs to the sink",
    "kafka.transaction.timeout.ms": "it belongs to the sink",
}
"""Options of the sink, refused with the reason."""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of a query of the source."""

    connection: ConnectionOptions
    selection: TopicSelection
    starting: Bound
    past_the_last_is_latest: bool = False
    """Read a partition from its end that has no record at or after the starting time; otherwise the query fails."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    """Approximate minimum of the number of tasks; None: by size."""
    records_per_partition_max: int | None = None
    """Most offsets of a task."""
    include_headers: bool = False
    include_timestamp_ms: bool = False
    fetch_bytes: int = FETCH_BYTES
    """Most bytes of one fetch of a task."""
    remote_storage: str | None = None
    """Where history is read (tidelog/tiering/store_option.py); None: from the nodes."""


def query_options(given: Mapping[str, str], *, start: Offset) -> QueryOptions:
    """The shared options. given: by canonical names. start: EARLIEST or LATEST, where no start is given.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    strategy = choice(given, "startingOffsetsByTimestampStrategy", default="error", among=("error", "latest"))
    return QueryOptions(
        connection=connection_options(given),
        selection=topic_selection(given),
        starting=offset_bound(given, "starting", default=start),
        past_the_last_is_latest=strategy == "latest",
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        min_partitions=positive(given, "minPartitions"),
        records_per_partition_max=positive(given, "maxRecordsPerPartition"),
        include_headers=boolean(given, "includeHeaders", default=False),
        include_timestamp_ms=boolean(given, "includeTimestampMs", default=False),
        fetch_bytes=positive(given, "fetchBytes", most=FETCH_BYTES_MAX) or FETCH_BYTES,
        remote_storage=remote_storage(given.get(REMOTE_STORAGE, "off")),
    )


# --- streams ----------------------------------------------------------------------------------------------------------

GROUP_ID: Final = "tidelog.group.id"
GROUP_ID_PREFIX: Final = "spark-tidelog"
TRIGGER_DELAY_MS_MAX: Final = 15 * 60_000
"""As in Spark's Kafka source."""

STREAM_ONLY_NAMES: Final = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
"""Options of streams that Spark's Kafka source ignores in a batch query, as ours does."""
GROUP_NAMES: Final = ("groupIdPrefix", GROUP_ID)
STREAM_NAMES: Final = (*QUERY_NAMES, *STREAM_ONLY_NAMES, *GROUP_NAMES)

_ENDLESS: Final = "a streaming query has no end; read up to the present with trigger(availableNow=True), or spark.read"
SNAPSHOT: Final = "snapshot"
_MISPLACED: Final = {
    **OF_THE_SINK,
    **dict.fromkeys(END_NAMES, _ENDLESS),
    SNAPSHOT: "a streaming query goes on behind the end of a snapshot; read it with spark.read",
}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one batch of a stream reads, in offsets over all partitions."""

    offsets_min: int | None = None
    """A batch waits until this many records are there; None: it does not wait."""
    offsets_max: int | None = None
    """Limit of the records of a batch; None: all."""
    delay_ms_max: int = TRIGGER_DELAY_MS_MAX
    """After the batch before: a batch waits no longer for `offsets_min`."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a streaming query."""

    query: QueryOptions
    limits: TriggerLimits
    group_id: str | None
    """The query's identity, whose committed offsets show its progress; None: derived, beginning with the prefix."""
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


# --- batches ----------------------------------------------------------------------------------------------------------

BATCH_NAMES: Final = (*STREAM_NAMES, *END_NAMES, SNAPSHOT)
"""All options of the source."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of a batch query."""

    query: QueryOptions
    ending: Bound
    """Where each partition ends, exclusive."""
    snapshot: str | None = None
    """The name of the snapshot of topics that the query reads, instead of what is there now."""


def parse_batch_options(raw: Mapping[str, str]) -> BatchOptions:
    """Check and type the options of a batch query. raw: as Spark passes them.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    given = _canonical(raw)
    trigger_limits(given)  # without effect here, but a mistake in them would end the stream of the same options
    identity_of(given)
    query = query_options(given, start=EARLIEST)
    ending = offset_bound(given, "ending", default=LATEST)
    _refuse(query.starting, LATEST, "starting", "a batch query that starts at the latest offset reads nothing")
    _refuse(ending, EARLIEST, "ending", "a batch query that ends at the earliest offset reads nothing")
    snapshot = given.get(SNAPSHOT)
    if snapshot is not None:
        _refuse_beside_snapshot(given, query)
    return BatchOptions(query, ending, snapshot)


def _refuse_beside_snapshot(given: Mapping[str, str], query: QueryOptions) -> None:
    bounds = [name for name in (*START_NAMES, *END_NAMES) if name in given]
    if bounds:
        raise InvalidConfig(
            f"option {bounds[0]!r} has no meaning with 'snapshot', which has its own offsets; remove one"
        )
    if query.connection.isolation is not Isolation.READ_COMMITTED:
        raise InvalidConfig(
            "option 'tidelog.isolation.level' must be read_committed with 'snapshot', which has whole transactions only"
        )
    if not query.fail_on_data_loss:
        raise InvalidConfig("option 'failOnDataLoss' cannot be false with 'snapshot', whose rows are always the same")


def optional_columns(raw: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options ask for besides those that are always there. Spark asks for the columns before it
    says whether the query is a batch or a stream: options of both are valid here, and the values that both share are
    checked.

    Raises InvalidConfig.
    """
    query = query_options(_canonical(raw), start=EARLIEST)
    return ("headers",) * query.include_headers + ("timestampMs",) * query.include_timestamp_ms


def _canonical(raw: Mapping[str, str]) -> dict[str, str]:
    """The options; a snapshot without a selection is read as a whole."""
    given = canonical(raw, BATCH_NAMES, of="the tidelog source", misplaced=OF_THE_SINK)
    return {"subscribePattern": ".*", **given} if SNAPSHOT in given and not _selects(given) else given


def _selects(given: Mapping[str, str]) -> bool:
    return any(name in given for name in SELECTION_NAMES)


def _refuse(bound: Bound, word: Offset, side: str, why: str) -> None:
    if bound.everywhere == word or word in (bound.offsets or {}).values():
        raise InvalidConfig(f"option '{side}Offsets': {why}; choose another offset")
