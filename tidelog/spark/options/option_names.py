"""The names of options: found whatever their case, with one name for each meaning, or refused with the right spelling.

Pure. An unknown option is an error: a misspelled `startingOffsets` would otherwise read other data than intended.
`kafka.x` means the same as `tidelog.x` where the latter is a valid name; both with different values are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from tidelog.errors import InvalidConfig

OURS: Final = "tidelog."
KAFKAS: Final = "kafka."

_TLS_FILES: Final = "name PEM files with tidelog.ssl.ca.file, tidelog.ssl.certificate.file and tidelog.ssl.key.file"
_USER: Final = "name the user with tidelog.sasl.username and tidelog.sasl.password.file, or tidelog.sasl.token.file"
_BINARY: Final = "keys and values are binary columns: cast or decode them in the query"
_CHECKPOINT: Final = "Spark's checkpoint keeps the position of a query"
_NO_MEMBER: Final = "a query is no member of a group: Spark assigns the partitions"
_PATIENCE: Final = "a task retries by itself and fails after 60 s without progress"
_ACKS: Final = "the sink always waits for all in-sync replicas; set min.insync.replicas on the topic"

INSTEAD: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": "use startingOffsets, startingTimestamp or startingOffsetsByTimestamp",
    "kafka.key.deserializer": _BINARY,
    "kafka.value.deserializer": _BINARY,
    "kafka.key.serializer": _BINARY,
    "kafka.value.serializer": _BINARY,
    "kafka.enable.auto.commit": _CHECKPOINT,
    "kafka.auto.commit.interval.ms": _CHECKPOINT,
    "kafka.interceptor.classes": "change the records in the query",
    "kafka.session.timeout.ms": _NO_MEMBER,
    "kafka.heartbeat.interval.ms": _NO_MEMBER,
    "kafka.max.poll.interval.ms": _NO_MEMBER,
    "kafka.group.instance.id": _NO_MEMBER,
    "kafka.partition.assignment.strategy": _NO_MEMBER,
    "kafka.max.poll.records": "use maxRecordsPerPartition, or maxOffsetsPerTrigger in a stream",
    "kafka.max.partition.fetch.bytes": "use fetchBytes",
    "kafka.fetch.max.bytes": "use fetchBytes",
    "kafka.fetch.min.bytes": "a task asks for what is there and waits for nothing",
    "kafka.fetch.max.wait.ms": "a task asks for what is there and waits for nothing",
    "kafka.request.timeout.ms": _PATIENCE,
    "kafka.default.api.timeout.ms": _PATIENCE,
    "kafka.retries": _PATIENCE,
    "kafkaConsumer.pollTimeoutMs": _PATIENCE,
    "fetchOffset.numRetries": _PATIENCE,
    "fetchOffset.retryIntervalMs": _PATIENCE,
    "kafka.ssl.truststore.location": _TLS_FILES,
    "kafka.ssl.truststore.password": _TLS_FILES,
    "kafka.ssl.truststore.type": _TLS_FILES,
    "kafka.ssl.truststore.certificates": _TLS_FILES,
    "kafka.ssl.keystore.location": _TLS_FILES,
    "kafka.ssl.keystore.password": _TLS_FILES,
    "kafka.ssl.keystore.type": _TLS_FILES,
    "kafka.ssl.keystore.key": _TLS_FILES,
    "kafka.ssl.keystore.certificate.chain": _TLS_FILES,
    "kafka.ssl.key.password": "the key file has no password: protect it by its permissions",
    "kafka.ssl.endpoint.identification.algorithm": "the name of a node is always verified",
    "kafka.sasl.jaas.config": _USER,
    "kafka.sasl.client.callback.handler.class": _USER,
    "kafka.sasl.login.callback.handler.class": _USER,
    "kafka.sasl.password": "Spark shows options in plans and logs: name a file with tidelog.sasl.password.file",
    "tidelog.sasl.password": "Spark shows options in plans and logs: name a file with tidelog.sasl.password.file",
    "kafka.acks": _ACKS,
    "kafka.enable.idempotence": 'the sink is always idempotent; exactlyOnce="false" does without transactions',
    "path": f'there is no path: name the cluster with "{OURS}bootstrap.servers" and topics with "subscribe" or "topic"',
}
"""What to use instead of options that Spark's Kafka source and sink, or Kafka's clients, have and Tidelog has not."""


def canonical(
    raw: Mapping[str, str], known: Sequence[str], *, of: str, misplaced: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options by their canonical names.

    raw: as Spark passes them; their case does not count. known: the valid names; with a name `tidelog.x`, `kafka.x` is
    valid too and is returned as `tidelog.x`. of: what has these options, as "the tidelog source". misplaced: options
    that are valid elsewhere, with the reason why not here, as "it belongs to the sink; ...".
    Raises InvalidConfig for an option that is unknown (with the nearest valid names), misplaced, without effect here,
    or given twice with different values.
    """
    spellings = {name.lower(): name for name in known}
    spellings |= {KAFKAS + name.removeprefix(OURS).lower(): name for name in known if name.startswith(OURS)}
    elsewhere = {name.lower(): (name, why) for name, why in {**INSTEAD, **(misplaced or {})}.items()}
    given: dict[str, str] = {}
    for name, value in raw.items():
        found = spellings.get(name.lower())
        if found is None:
            raise InvalidConfig(_why_not(name, spellings, elsewhere, of))
        if given.setdefault(found, value) != value:
            raise InvalidConfig(
                f"option {found!r} is given twice with different values (upper case does not count, and `{KAFKAS}` "
                f"means `{OURS}`); remove one"
            )
    return given


def _why_not(name: str, spellings: Mapping[str, str], elsewhere: Mapping[str, tuple[str, str]], of: str) -> str:
    lower = name.lower()
    if lower in elsewhere:
        spelled, why = elsewhere[lower]
        return f"{of} has no option {spelled!r}: {why}"
    near = get_close_matches(lower, [*spellings, *elsewhere], n=3, cutoff=0.75)
    valid = list(dict.fromkeys(spellings[one] for one in near if one in spellings))
    if valid:
        return f"unknown option {name!r} of {of}; did you mean {' or '.join(map(repr, valid))}?"
    if near:
        spelled, why = elsewhere[near[0]]
        return f"unknown option {name!r} of {of}; if you mean {spelled!r}: {why}"
    if lower.startswith(KAFKAS):
        return f"unknown option {name!r} of {of}; options of Kafka's clients have no effect here, except " + ", ".join(
            sorted({KAFKAS + one.removeprefix(OURS) for one in spellings.values() if one.startswith(OURS)})
        )
    return f"unknown option {name!r} of {of}; valid options: {', '.join(sorted(set(spellings.values())))}"
