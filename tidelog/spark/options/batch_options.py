"""The options of a batch query: those of every query, and where it ends. Pure.

As in Spark's Kafka source, options of streams are valid but have no effect, so that the same options serve both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import InvalidConfig
from tidelog.spark.options.offset_bounds import END_NAMES, Bound, offset_bound
from tidelog.spark.options.option_names import canonical
from tidelog.spark.options.query_options import OF_THE_SINK, QueryOptions, query_options
from tidelog.spark.options.stream_options import STREAM_NAMES, identity_of, trigger_limits
from tidelog.types import EARLIEST, LATEST, Offset

BATCH_NAMES: Final = (*STREAM_NAMES, *END_NAMES)
"""All options of the source."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of a batch query. ending: where each partition ends, exclusive."""

    query: QueryOptions
    ending: Bound


def parse_batch_options(raw: Mapping[str, str]) -> BatchOptions:
    """Check and type the options of a batch query. raw: as Spark passes them.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    given = _canonical(raw)
    trigger_limits(given)
    identity_of(given)
    query = query_options(given, start=EARLIEST)
    ending = offset_bound(given, "ending", default=LATEST)
    _refuse(query.starting, LATEST, "starting", "a batch query that starts at the latest offset reads nothing")
    _refuse(ending, EARLIEST, "ending", "a batch query that ends at the earliest offset reads nothing")
    return BatchOptions(query, ending)


def optional_columns(raw: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options ask for besides those that are always there. Spark asks for the columns before it
    says whether the query is a batch or a stream: options of both are valid here, and the values that both share are
    checked.

    Raises InvalidConfig.
    """
    query = query_options(_canonical(raw), start=EARLIEST)
    return ("headers",) * query.include_headers + ("timestampMs",) * query.include_timestamp_ms


def _canonical(raw: Mapping[str, str]) -> dict[str, str]:
    return canonical(raw, BATCH_NAMES, of="the tidelog source", misplaced=OF_THE_SINK)


def _refuse(bound: Bound, word: Offset, side: str, why: str) -> None:
    if bound.everywhere == word or word in (bound.offsets or {}).values():
        raise InvalidConfig(f"option '{side}Offsets': {why}; choose another offset")
