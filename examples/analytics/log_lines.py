"""Log lines as columns: when, how severe, which component. Spark expressions only, so no line passes through Python.

Recognised are ISO 8601 times (`2026-11-26T10:00:00`, with a blank too), those of syslog (`Nov 26 10:00:00`) and of web
servers (`[26/Nov/2026:10:00:00 +0000]`); levels in capitals, in brackets or as `level=`; the status of an HTTP answer;
and JSON objects with the usual names. What a line does not say: its time is that of its record, its level is `-`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

NO_LEVEL: Final = "-"
ERRORS: Final = ("ERROR", "CRITICAL", "FATAL", "ALERT", "EMERG")
LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL|ALERT|EMERG"
COMPONENT_LETTERS_MAX: Final = 60

_ISO: Final = r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)"
_SYSLOG: Final = r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)"
_WEB: Final = r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]"
_COMPONENTS: Final = (
    rf"\b(?:{LEVELS})\b[\]:]*\s+(?:\[[^\]]*\]\s+)?([\w.$/-]+)",  # INFO [main] org.example.Server: ...
    r"^(?:\S+|[A-Z][a-z]{2} +\d{1,2} [\d:]+) [\w.-]+ ([\w./@-]+?)(?:\[\d+\])?:",  # Nov 26 10:00:00 host sshd[7]: ...
    r'"(?:GET|POST|PUT|DELETE|HEAD|PATCH|OPTIONS) (/[^/ ?"]*)',  # the first part of the path of a request
    r"^\d{4}-\d\d-\d\d[T ][\d:.,]+\S* ([\w./-]+)",  # the word after the time
)


def log_lines(records: DataFrame) -> DataFrame:
    """The columns `event_time`, `level`, `component`, `bytes` and `text` of records with `value` and `timestamp`."""
    text = F.col("value").cast("string")
    given = records.select("timestamp", F.length("value").alias("bytes"), text.alias("text"))
    return given.select(
        F.coalesce(_time(), F.col("timestamp")).alias("event_time"),
        F.coalesce(_level(), F.lit(NO_LEVEL)).alias("level"),
        F.substring(F.coalesce(_component(), F.lit(NO_LEVEL)), 1, COMPONENT_LETTERS_MAX).alias("component"),
        "bytes",
        "text",
    )


def is_error(level: Column) -> Column:
    """Whether a level means that something failed."""
    return level.isin(*ERRORS)


def _time() -> Column:
    """The time in the line; null where there is none. Times without a zone are those of the session."""
    iso = F.concat(_found(_ISO, 1), F.lit(" "), _found(_ISO, 2))
    day = F.concat_ws(" ", F.year("timestamp"), _found(_SYSLOG, 1), _found(_SYSLOG, 2), _found(_SYSLOG, 3))
    milliseconds = F.coalesce(_field("at"), _field("timestamp"), _field("ts")).try_cast("bigint")
    return F.coalesce(
        F.when(_is_object(), F.timestamp_millis(milliseconds)),
        F.try_to_timestamp(iso, F.lit("yyyy-MM-dd HH:mm:ss")),
        F.when(_found(_SYSLOG, 1).isNotNull(), F.try_to_timestamp(day, F.lit("yyyy MMM d HH:mm:ss"))),
        F.try_to_timestamp(_found(_WEB, 1), F.lit("dd/MMM/yyyy:HH:mm:ss Z")),
    )


def _level() -> Column:
    status = _found(r'" ([1-5])\d\d ', 1)
    of_status = F.when(status == "5", "ERROR").when(status == "4", "WARN").when(status.isNotNull(), "INFO")
    word = F.coalesce(
        F.when(_is_object(), F.coalesce(_field("level"), _field("severity"), _field("kind"))),
        _found(rf"\b({LEVELS})\b", 1),
        _found(rf"(?i)(?:level=\"?|\[)({LEVELS})\b", 1),
    )
    upper = F.upper(word)
    return F.coalesce(F.when(upper == "WARNING", "WARN").otherwise(upper), of_status)


def _component() -> Column:
    of_object = F.coalesce(_field("component"), _field("logger"), _field("name"), _field("kind"))
    return F.coalesce(F.when(_is_object(), of_object), *(_found(pattern, 1) for pattern in _COMPONENTS))


def _is_object() -> Column:
    return F.col("text").startswith("{")


def _field(name: str) -> Column:
    return F.get_json_object("text", f"$.{name}")


def _found(pattern: str, group: int) -> Column:
    """What the group of the pattern matched; null where it does not match."""
    return F.nullif(F.regexp_extract("text", pattern, group), F.lit(""))
