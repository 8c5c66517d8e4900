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

_PATIENCE: Final = "a task retries by itself and fails after 60 s without progress"
_IN_PLANS: Final = "Spark shows options in plans and logs: name a file with tidelog.sasl.password.file"

_OF_CLIENTS: Final[Mapping[str, str]] = {
    "use startingOffsets, startingTimestamp or startingOffsetsByTimestamp": "auto.offset.reset",
    "keys and values are binary columns: cast or decode them in the query": (
        "key.deserializer value.deserializer key.serializer value.serializer"
    ),
    "Spark's checkpoint keeps the position of a query": "enable.auto.commit auto.commit.interval.ms",
    "change the records in the query": "interceptor.classes",
    "a query is no member of a group: Spark assigns the partitions": (
        "session.timeout.ms heartbeat.interval.ms max.poll.interval.ms group.instance.id partition.assignment.strategy"
    ),
    "use maxRecordsPerPartition, or maxOffsetsPerTrigger in a stream": "max.poll.records",
    "use fetchBytes": "max.partition.fetch.bytes fetch.max.bytes",
    "a task asks for what is there and waits for nothing": "fetch.min.bytes fetch.max.wait.ms",
    _PATIENCE: "request.timeout.ms default.api.timeout.ms retries",
    "name PEM files with tidelog.ssl.ca.file, tidelog.ssl.certificate.file and tidelog.ssl.key.file": (
        "ssl.truststore.location ssl.truststore.password ssl.truststore.type ssl.truststore.certificates "
        "ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain"
    ),
    "the key file has no password: protect it by its permissions": "ssl.key.password",
    "the name of a node is always verified": "ssl.endpoint.identification.algorithm",
    "name the user with tidelog.sasl.username and tidelog.sasl.password.file, or tidelog.sasl.token.file": (
        "sasl.jaas.config sasl.client.callback.handler.class sasl.login.callback.handler.class"
    ),
    _IN_PLANS: "sasl.password",
    "the sink always waits for all in-sync replicas; set min.insync.replicas on the topic": "acks",
    'the sink is always idempotent; exactlyOnce="false" does without transactions': "enable.idempotence",
}
"""The options of Kafka's clients by what to use instead of them."""

INSTEAD: Final[Mapping[str, str]] = {
    **{KAFKAS + name: why for why, names in _OF_CLIENTS.items() for name in names.split()},
    "kafkaConsumer.pollTimeoutMs": _PATIENCE,
    "fetchOffset.numRetries": _PATIENCE,
    "fetchOffset.retryIntervalMs": _PATIENCE,
    "tidelog.sasl.password": _IN_PLANS,
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
