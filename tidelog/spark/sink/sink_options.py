"""The options of the sink, checked and typed. Pure.

Names are those of Spark's Kafka sink; of the settings of Kafka's producer, those that have a meaning here. The others
are refused: they would have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.options import codec_of, topic_name
from tidelog.client.transaction_admin import MAX_TIMEOUT_MS
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.spark.options.connection_options import CONNECTION_NAMES, ConnectionOptions, connection_options
from tidelog.spark.options.option_names import canonical
from tidelog.spark.options.option_values import boolean, duration_ms, positive, stripped, whole
from tidelog.spark.options.query_options import BATCH_NAMES
from tidelog.types import INT32_MAX, INT64_MAX

TOPIC: Final = "topic"
EXACTLY_ONCE: Final = "exactlyOnce"
SINK_ID: Final = "tidelog.sink.id"
SINK_BATCH: Final = "tidelog.sink.batch"
TRANSACTION_TIMEOUT: Final = "tidelog.transaction.timeout.ms"
COMPRESSION: Final = "tidelog.compression.type"
LINGER: Final = "tidelog.linger.ms"
BATCH_SIZE: Final = "tidelog.batch.size"
BUFFER_MEMORY: Final = "tidelog.buffer.memory"
REQUEST_SIZE: Final = "tidelog.max.request.size"
DELIVERY_TIMEOUT: Final = "tidelog.delivery.timeout.ms"

OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options that Spark itself uses, and passes on to the sink."""
SINK_NAMES: Final = (
    *CONNECTION_NAMES,
    TOPIC,
    EXACTLY_ONCE,
    SINK_ID,
    SINK_BATCH,
    TRANSACTION_TIMEOUT,
    COMPRESSION,
    LINGER,
    BATCH_SIZE,
    BUFFER_MEMORY,
    REQUEST_SIZE,
    DELIVERY_TIMEOUT,
)
"""All options of the sink."""

_OF_THE_SOURCE: Final = dict.fromkeys(
    (name for name in BATCH_NAMES if name not in CONNECTION_NAMES), 'it belongs to the source; "topic" names the output'
)
_SINK_ID_LENGTH_MAX: Final = 200
"""With the suffixes of tasks, ids stay far below what requests and logs can carry."""
_SINK_ID_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
BATCH_MAX: Final = INT64_MAX - 1
"""The largest batch number: the offset behind it is committed."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write: its own, then those of `tidelog.Producer`."""

    connection: ConnectionOptions
    topic: str | None = None
    """The topic of all rows; None to use the column `topic`."""
    exactly_once: bool = True
    """With transactions."""
    sink_id: str | None = None
    """The identity of the sink; None: of the query or, in a batch write, of this write."""
    sink_batch: int | None = None
    """The number of a batch write among those with its sink id; None: not given."""
    transaction_timeout_ms: int = MAX_TIMEOUT_MS
    """How long a transaction may be open, at most the nodes' `transaction.max.timeout.ms`."""
    compression: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 1024 * 1024
    """Fits into the default of `max.message.bytes`. A batch costs the nodes the same whatever its size, and a task has
    enough rows to fill large ones."""
    buffer_bytes: int = 64 * 1024 * 1024
    record_bytes_max: int = 1024 * 1024
    delivery_timeout_ms: int = 120_000


def parse_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Check and type the options of a write. raw: as Spark passes them.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    given = canonical(raw, (*SINK_NAMES, *OF_SPARK), of="the tidelog sink", misplaced=_OF_THE_SOURCE)
    exactly_once = boolean(given, EXACTLY_ONCE, default=True)
    if not exactly_once:
        for name in (SINK_ID, SINK_BATCH, TRANSACTION_TIMEOUT):
            if name in given:
                raise InvalidConfig(f'option {name!r} has no effect with {EXACTLY_ONCE}="false"; remove one of the two')
    defaults = SinkOptions(connection_options(given))
    return SinkOptions(
        connection=defaults.connection,
        topic=_checked(TOPIC, stripped(given, TOPIC), topic_name) if TOPIC in given else None,
        exactly_once=exactly_once,
        sink_id=_sink_id(given),
        sink_batch=_sink_batch(given),
        transaction_timeout_ms=duration_ms(given, TRANSACTION_TIMEOUT, default=MAX_TIMEOUT_MS),
        compression=_checked(COMPRESSION, stripped(given, COMPRESSION).lower() or "none", codec_of),
        linger_ms=_linger(given, defaults.linger_ms),
        batch_bytes=positive(given, BATCH_SIZE, most=INT32_MAX) or defaults.batch_bytes,
        buffer_bytes=positive(given, BUFFER_MEMORY) or defaults.buffer_bytes,
        record_bytes_max=positive(given, REQUEST_SIZE, most=INT32_MAX) or defaults.record_bytes_max,
        delivery_timeout_ms=duration_ms(given, DELIVERY_TIMEOUT, default=defaults.delivery_timeout_ms),
    )


def _checked(name: str, text: str, check: Callable[[str], object]) -> str:
    """The text of an option, if the client accepts it. Raises InvalidConfig, which names the option."""
    try:
        check(text)
    except TidelogError as error:
        raise InvalidConfig(f"option {name!r}: {error.message}") from error
    return text


def _sink_id(given: Mapping[str, str]) -> str | None:
    if SINK_ID not in given:
        return None
    name = stripped(given, SINK_ID)
    if not name or len(name) > _SINK_ID_LENGTH_MAX or not _SINK_ID_CHARACTERS.issuperset(name):
        raise InvalidConfig(
            f"option {SINK_ID!r} is {name!r}; use 1 to {_SINK_ID_LENGTH_MAX} letters, digits, dots, dashes or "
            "underscores"
        )
    return name


def _sink_batch(given: Mapping[str, str]) -> int | None:
    if SINK_BATCH not in given:
        return None
    number = whole(given[SINK_BATCH])
    if number is None or number > BATCH_MAX:
        raise InvalidConfig(
            f"option {SINK_BATCH!r} is {given[SINK_BATCH]!r}; it must be a whole number, at most {BATCH_MAX}: in "
            "foreachBatch the batch id"
        )
    if SINK_ID not in given:
        raise InvalidConfig(f"option {SINK_BATCH!r} numbers the batches of one sink: name the sink with {SINK_ID!r}")
    return number


def _linger(given: Mapping[str, str], default: int) -> int:
    if LINGER not in given:
        return default
    linger_ms = whole(given[LINGER])
    if linger_ms is None or linger_ms > INT32_MAX:
        raise InvalidConfig(f"option {LINGER!r} is {given[LINGER]!r}; it must be milliseconds, 0 or more")
    return linger_ms
