"""How far a query is behind, from the progress that Spark reports of it. Pure.

Spark's Kafka source adds `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` to the metrics
of its progress. Spark 4.3 asks a Python source for no metrics; its progress has the offsets of which they are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.spark.streaming.stream_offsets import StreamOffset, parse_offset


def offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, int]:
    """How many offsets each partition has that the query had not read at the end of a batch, by `topic-partition`.

    source: one of `query.lastProgress["sources"]`; empty if the query has not looked for new records yet.
    Raises InvalidRequest for the progress of another source.
    """
    end, latest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return {}
    behind = {}
    for key, topic_id, position in latest:
        read = end.find(key, topic_id)
        # A partition that is new to the query is read from its start: earlier offsets count as skipped.
        begin = position.skipped if read is None else read.next_offset
        behind[str(key)] = max(position.next_offset - begin, 0)
    return behind


def _offset(text: str | None) -> StreamOffset | None:
    return None if text is None else parse_offset(json.loads(text))
