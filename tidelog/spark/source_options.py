"""The options of the source: the names of Spark's Kafka source, checked and typed.

Pure: strings in, values out. `tidelog.` and `kafka.` mean the same before `bootstrap.servers`, `client.id`,
`client.rack`, `isolation.level`, `security.protocol`, `ssl.*` and `sasl.*`. An unknown option is an error: a misspelled
`startingOffsets` would otherwise read other data than intended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import re2

from tidelog.client.options import checked_client_id
from tidelog.errors import InvalidConfig
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.types import Isolation, Offset, PartitionIndex, TopicPartition

EARLIEST: Final = Offset(-2)
LATEST: Final = Offset(-1)

_BOOTSTRAP: Final = ("tidelog.bootstrap.servers", "kafka.bootstrap.servers")
_CLIENT_ID: Final = ("tidelog.client.id", "kafka.client.id")
_RACK: Final = ("tidelog.client.rack", "kafka.client.rack")
_ISOLATION: Final = ("tidelog.isolation.level", "kafka.isolation.level")
_PROTOCOL: Final = ("tidelog.security.protocol", "kafka.security.protocol")
_CA: Final = ("tidelog.ssl.ca.file", "kafka.ssl.ca.file")
_CERTIFICATE: Final = ("tidelog.ssl.certificate.file", "kafka.ssl.certificate.file")
_KEY: Final = ("tidelog.ssl.key.file", "kafka.ssl.key.file")
_MECHANISM: Final = ("tidelog.sasl.mechanism", "kafka.sasl.mechanism")
_USERNAME: Final = ("tidelog.sasl.username", "kafka.sasl.username")
_PASSWORD_FILE: Final = ("tidelog.sasl.password.file", "kafka.sasl.password.file")
_TOKEN_FILE: Final = ("tidelog.sasl.token.file", "kafka.sasl.token.file")
_OF_TLS: Final = (_CA, _CERTIFICATE, _KEY)
_OF_SASL: Final = (_MECHANISM, _USERNAME, _PASSWORD_FILE, _TOKEN_FILE)
_PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Whether connections have TLS, and whether they have SASL."""

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_KNOWN: Final = (
    *_BOOTSTRAP,
    *_CLIENT_ID,
    *_RACK,
    *_ISOLATION,
    *_PROTOCOL,
    *_CA,
    *_CERTIFICATE,
    *_KEY,
    *_MECHANISM,
    *_USERNAME,
    *_PASSWORD_FILE,
    *_TOKEN_FILE,
    *_STRATEGIES,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "fetchBytes",
    "path",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a query. Exactly one field is set.

    everywhere: EARLIEST or LATEST, for all partitions. offsets: an offset, EARLIEST or LATEST for each partition.
    timestamp_ms: the first record at or after this time, in all partitions. times: a time for each partition.
    """

    everywhere: Offset | None = None
    offsets: Mapping[TopicPartition, Offset] | None = None
    timestamp_ms: int | None = None
    times: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A regular expression over whole topic names, in RE2's syntax: a match takes time in proportion to the name,
    whatever the expression is."""

    text: str

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. The compiled expression is cached by RE2's module."""
        return re2.fullmatch(self.text, name, _rules()) is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a batch query. rack: of the executors, empty for none (KIP-392). tls: the files for TLS; None:
    plain text. sasl: the user; None: no one. client_id: of the driver and of all executors, in quotas and in the
    nodes' logs. isolation: with READ_COMMITTED the query ends at the first transaction that is open, and records of
    aborted transactions are left out. Files have the same paths on the driver and on each executor."""

    bootstrap: str
    topics: tuple[str, ...] | None
    pattern: NamePattern | None
    assigned: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    past_the_last_is_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    records_per_partition_max: int | None
    include_headers: bool
    fetch_bytes: int
    rack: str
    tls: Tls | None = None
    sasl: Sasl | None = None
    client_id: str = ""
    isolation: Isolation = Isolation.READ_COMMITTED


def parse_options(raw: Mapping[str, str]) -> SourceOptions:
    """Check and type the options of a query.

    raw: as Spark passes them; names are case-insensitive, as in Spark.
    Raises InvalidConfig with the option, its value and the valid values.
    """
    given = _canonical(raw)
    bootstrap = next((given[name] for name in _BOOTSTRAP if given.get(name, "").strip()), None)
    if bootstrap is None:
        raise InvalidConfig(
            'no cluster given: set the option "tidelog.bootstrap.servers" to host:port of one or more nodes, '
            "separated by commas"
        )
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        raise InvalidConfig(
            f"set exactly one of the options {', '.join(_STRATEGIES)}; given: {', '.join(chosen) or 'none'}"
        )
    starting = _bound(given, "starting", default=EARLIEST)
    ending = _bound(given, "ending", default=LATEST)
    _refuse(starting, LATEST, "starting", "a batch query that starts at the latest offset reads nothing")
    _refuse(ending, EARLIEST, "ending", "a batch query that ends at the earliest offset reads nothing")
    return SourceOptions(
        bootstrap=bootstrap,
        topics=_topics(given["subscribe"]) if "subscribe" in given else None,
        pattern=_pattern(given["subscribePattern"]) if "subscribePattern" in given else None,
        assigned=_assigned(given["assign"]) if "assign" in given else None,
        starting=starting,
        ending=ending,
        past_the_last_is_latest=_strategy(given.get("startingOffsetsByTimestampStrategy", "error")),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        min_partitions=_positive(given, "minPartitions"),
        records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
        include_headers=_boolean(given, "includeHeaders", default=False),
        fetch_bytes=_positive(given, "fetchBytes") or 1 << 20,
        rack=_first(given, _RACK),
        tls=_tls(given),
        sasl=_sasl(given),
        client_id=checked_client_id(_first(given, _CLIENT_ID)),
        isolation=_isolation(_first(given, _ISOLATION)),
    )


def _isolation(text: str) -> Isolation:
    """The isolation level. Unlike Kafka's source, a query reads committed transactions only, unless it says otherwise:
    what a producer has aborted must not appear in a table by default."""
    match text.lower():
        case "" | "read_committed":
            return Isolation.READ_COMMITTED
        case "read_uncommitted":
            return Isolation.READ_UNCOMMITTED
    raise InvalidConfig(f"option {_ISOLATION[0]!r} is {text!r}; it must be read_committed or read_uncommitted")


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The value of an option that has several names; empty if it is not given."""
    return next((given[name].strip() for name in names if name in given), "")


def _protocol(given: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether connections have TLS, and whether they have SASL: by `security.protocol`, or, if it is not given, if an
    option of it is given. An option of what the protocol has not is refused: it would have no effect."""
    protocol = _first(given, _PROTOCOL)
    tls, sasl = (any(_first(given, names) for names in options) for options in (_OF_TLS, _OF_SASL))
    if not protocol:
        return tls, sasl
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"option {_PROTOCOL[0]!r} is {protocol!r}; it must be one of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    if tls and not has_tls:
        with_tls = "SASL_SSL" if has_sasl else "SSL"
        raise InvalidConfig(
            f"option {_PROTOCOL[0]!r} is {protocol}, and files for TLS are given; set {with_tls}, or remove them"
        )
    if sasl and not has_sasl:
        raise InvalidConfig(
            f"option {_PROTOCOL[0]!r} is {protocol}, and options of SASL are given; set SASL_{protocol}, or remove them"
        )
    return has_tls, has_sasl


def _tls(given: Mapping[str, str]) -> Tls | None:
    has_tls, _ = _protocol(given)
    return Tls(*(_first(given, names) or None for names in _OF_TLS)) if has_tls else None


def _sasl(given: Mapping[str, str]) -> Sasl | None:
    """The user, if there is SASL. Neither its password nor its token is an option: Spark shows options in plans and
    logs."""
    _, has_sasl = _protocol(given)
    if not has_sasl:
        return None
    mechanism, username, file, token_file = (_first(given, names) for names in _OF_SASL)
    if token_file:
        return Sasl(username, password_file=file or None, mechanism=mechanism, token_file=token_file)
    if not username or not file:
        raise InvalidConfig(
            f"SASL needs both options {_USERNAME[0]!r} and {_PASSWORD_FILE[0]!r}, or {_TOKEN_FILE[0]!r} alone"
        )
    return Sasl(username, password_file=file, mechanism=mechanism)


def _canonical(raw: Mapping[str, str]) -> dict[str, str]:
    by_lower = {name.lower(): name for name in _KNOWN}
    given: dict[str, str] = {}
    for name, value in raw.items():
        known = by_lower.get(name.lower())
        if known is None:
            raise InvalidConfig(
                f"unknown option {name!r} of the tidelog source; valid options: {', '.join(_KNOWN[:-1])}"
            )
        given[known] = value
    if "path" in given:
        raise InvalidConfig(
            'the tidelog source has no path: name the cluster with "tidelog.bootstrap.servers" '
            'and the topics with "subscribe"'
        )
    return given


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InvalidConfig("option 'subscribe' names no topic; give one or more, separated by commas")
    return names


def _pattern(text: str) -> NamePattern:
    try:
        re2.compile(text, _rules())
    except re2.error as cause:
        reason = cause.args[0].decode(errors="replace") if cause.args and isinstance(cause.args[0], bytes) else cause
        raise InvalidConfig(
            f"option 'subscribePattern' is not a regular expression of RE2 ({reason}); backreferences and lookarounds "
            "are not supported"
        ) from cause
    return NamePattern(text)


def _rules() -> Any:
    rules = re2.Options()
    rules.log_errors = False  # the error names the reason
    return rules


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for topic, numbers in _json_object("assign", text, '{"topic": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise InvalidConfig(
                f"option 'assign' must list partition numbers of topic {topic!r}, as {{\"topic\": [0, 1]}}"
            )
        partitions += [TopicPartition(topic, PartitionIndex(number)) for number in numbers]
    if not partitions:
        raise InvalidConfig("option 'assign' names no partition; write it as {\"topic\": [0, 1]}")
    return tuple(sorted(set(partitions)))


def _bound(given: Mapping[str, str], side: str, *, default: Offset) -> Bound:
    """The start or end of the query. Timestamp options override offset options, as in Spark's Kafka source."""
    if (text := given.get(f"{side}Timestamp")) is not None:
        return Bound(timestamp_ms=_time(f"{side}Timestamp", text))
    if (text := given.get(f"{side}OffsetsByTimestamp")) is not None:
        name = f"{side}OffsetsByTimestamp"
        return Bound(times=_per_partition(name, text, lowest=0))
    text = given.get(f"{side}Offsets")
    if text is None:
        return Bound(everywhere=default)
    match text.strip().lower():
        case "earliest":
            return Bound(everywhere=EARLIEST)
        case "latest":
            return Bound(everywhere=LATEST)
    offsets = _per_partition(f"{side}Offsets", text, lowest=EARLIEST)
    return Bound(offsets={partition: Offset(number) for partition, number in offsets.items()})


def _refuse(bound: Bound, word: Offset, side: str, why: str) -> None:
    if bound.everywhere == word or word in (bound.offsets or {}).values():
        raise InvalidConfig(f"option '{side}Offsets': {why}; choose another offset")


def _per_partition(name: str, text: str, *, lowest: int) -> dict[TopicPartition, int]:
    example = '{"topic": {"0": 23, "1": -2}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(name, text, example).items():
        if not isinstance(numbers, dict):
            raise InvalidConfig(f"option {name!r} must give a number for each partition of {topic!r}, as {example}")
        for partition, number in numbers.items():
            if not partition.isdigit() or type(number) is not int or number < lowest:
                raise InvalidConfig(
                    f"option {name!r}: invalid value {number!r} of partition {partition!r} of {topic!r}; write it as "
                    f"{example}"
                )
            found[TopicPartition(topic, PartitionIndex(int(partition)))] = number
    return found


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as cause:
        raise InvalidConfig(f"option {name!r} is not JSON ({cause}); write it as {example}") from cause
    if not isinstance(value, dict):
        raise InvalidConfig(f"option {name!r} must be a JSON object, as {example}")
    return value


def _time(name: str, text: str) -> int:
    if not text.strip().isdigit():
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be milliseconds since 1970 (UTC)")
    return int(text)


def _strategy(text: str) -> bool:
    match text.lower():
        case "error":
            return False
        case "latest":
            return True
    raise InvalidConfig(f"option 'startingOffsetsByTimestampStrategy' is {text!r}; it must be error or latest")


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be true or false")
    return text == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) == 0:
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be a whole number above 0")
    return int(text)
