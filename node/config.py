"""What a node is told at its start: one TOML file, with any key overridden by the environment.

`[section] key` of the file is `TIDELOG_SECTION_KEY` in the environment (`TIDELOG_LISTENERS_CLIENT_ADVERTISED`,
`TIDELOG_LOG_MIN_INSYNC_REPLICAS`), where lists are separated by commas. docs/configuration.md lists all keys.

Kept true: every key is known and every value is allowed, or InvalidConfig names where it stands, the key, the value,
what is allowed and what to do.
Left to others: reading the file (`node/process/process.py`), topic settings (`storage/config.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NoReturn, TypeVar

from storage.config import LogConfig
from storage.directory.maintenance_config import SETTINGS as UPKEEP_SETTINGS
from storage.directory.maintenance_config import MaintenanceConfig
from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.types import Endpoint, Millis, NodeId

T = TypeVar("T")

CLIENT_LISTENER: Final = "client"
"""The listener that every node has: clients and nodes alike use it unless told otherwise."""


MEMORY_BYTES: Final = 256 << 20
"""The node's memory for records, where nothing else is said."""

SNAPSHOT_BYTES: Final = 20 << 20
"""Kafka's `metadata.log.max.record.bytes.between.snapshots`."""

QUORUM_VOTERS: Final = 3
"""Three voters survive the loss of one; more would make each change wait for more disks."""


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A named listener: where it is bound, and what it is registered as (None: as bound)."""

    name: str
    bind: Endpoint
    advertised: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The initial list of nodes, addresses only, and whether this node is the one that forms the cluster.

    voters: how many nodes vote in a new cluster; the active controller grows a smaller set to so many.
    snapshot_bytes: of the metadata log, from one snapshot to the next.
    """

    bootstrap: bool
    nodes: tuple[Endpoint, ...]
    voters: int = QUORUM_VOTERS
    snapshot_bytes: int = SNAPSHOT_BYTES


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Times and sizes of replication; the defaults are those of the design, section 4."""

    heartbeat_ms: Millis = Millis(400)
    session_ms: Millis = Millis(2_000)
    lag_ms_max: Millis = Millis(5_000)
    """`replica.lag.time.max.ms`: a follower that has not caught up for so long leaves the in-sync set."""
    fetch_wait_ms: Millis = Millis(500)
    """`replica.fetch.wait.max.ms`."""
    fetch_bytes_max: int = 1 << 20
    """`replica.fetch.max.bytes`: of one partition in one answer."""
    drain_ms_max: Millis = Millis(30_000)
    """A stop waits so long for its leaderships to be moved away."""
    imbalance_check_ms: Millis = Millis(300_000)
    """`leader.imbalance.check.interval.seconds`: how often leaderships go back to preferred leaders; 0: on command."""
    imbalance_percent: int = 10
    """`leader.imbalance.per.broker.percentage`: of what a node ought to lead, so much may be led by others."""
    throttled_rate: int = 0
    """`follower.replication.throttled.rate`: bytes per second that this node fetches of replicas that are being
    moved to it; 0: no limit."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All that a node is told."""

    node_id: NodeId
    log_directories: tuple[str, ...]
    listeners: tuple[ListenerConfig, ...]
    quorum: QuorumConfig
    rack: str = ""
    metrics_bind: Endpoint | None = None
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    message_bytes_max: int = 128 << 20
    memory_bytes: int = MEMORY_BYTES
    """For records on their way, and the state of producers (node/runtime/memory_budget.py)."""
    log_defaults: Mapping[str, str] = field(default_factory=dict)
    """Topic settings by Kafka's names, for topics that do not say otherwise."""
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    """What is done to logs from time to time, and the reserve of the log directories."""
    log_format: str = "text"
    log_level: str = "info"

    @property
    def log_config(self) -> LogConfig:
        """The defaults of topic settings."""
        return LogConfig.from_node(self.log_defaults)


def parse(
    text: str, environ: Mapping[str, str], *, source: str, host_name: str, memory_bytes: int = MEMORY_BYTES
) -> NodeConfig:
    """Read a configuration.

    text: TOML. environ: the environment; only TIDELOG_* of known sections counts. source: the file's name, for
    messages. host_name: of this machine; its trailing number is the node id where none is given. memory_bytes: of the
    budget where none is given.
    Raises InvalidConfig.
    """
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{source}: not TOML: {error}. Correct the file at that place.") from None
    values = _Values(source, text)
    values.add_file(tables)
    values.add_environment(environ)
    listeners = _listeners(values)
    node_id = _node_id(values, environ.get("TIDELOG_POD_NAME") or host_name)
    log_defaults, maintenance = values.take_log()
    config = NodeConfig(
        node_id=node_id,
        rack=values.take("node", "rack", _text, ""),
        log_directories=values.take("node", "log_directories", _directories, ("data",)),
        listeners=listeners,
        quorum=_quorum(values, node_id),
        metrics_bind=values.take("metrics", "bind", _endpoint, None),
        replication=_replication(values),
        message_bytes_max=values.take("limits", "message_bytes_max", _number(1 << 20, 1 << 30), 128 << 20),
        memory_bytes=values.take("limits", "memory_bytes", _number(16 << 20, 1 << 40), memory_bytes),
        log_defaults=log_defaults,
        maintenance=maintenance,
        log_format=values.take("logs", "format", _one_of("text", "json"), "text"),
        log_level=values.take("logs", "level", _one_of("debug", "info", "warning", "error"), "info"),
    )
    values.refuse_the_rest()
    return config


# --- where a value stands ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value(Generic[T]):
    """A value with the place that gave it. `written`: it is text from the environment, not typed by TOML."""

    value: Any
    place: str
    written: bool


class _Bad(Exception):
    """A value is not allowed; the message says what is."""


_SECTIONS: Final = ("node", "quorum", "metrics", "replication", "limits", "log", "logs")


class _Values:
    """The values given, by dotted path; taken out one by one, so that what is left over is unknown."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._lines = text.splitlines()
        self._given: dict[tuple[str, str], _Value[Any]] = {}
        self._known: dict[str, list[str]] = {}

    def add_file(self, tables: Mapping[str, Any]) -> None:
        for section, table in tables.items():
            if section == "listeners" and isinstance(table, dict):
                for name, listener in table.items():
                    self._add_table(f"listeners.{name}", listener)
            elif section in _SECTIONS:
                self._add_table(section, table)
            else:
                sections = ", ".join((*_SECTIONS, "listeners.NAME"))
                raise InvalidConfig(
                    f"{self._place(section, '')}: [{section}] is no section; known are {sections}. Remove or rename it."
                )

    def _add_table(self, section: str, table: object) -> None:
        if not isinstance(table, dict):
            raise InvalidConfig(f"{self._place(section, '')}: {section} = {table!r} must be a section: [{section}]")
        for key, value in table.items():
            self._given[section, key] = _Value(value, self._place(section, key), written=False)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Keys of known sections override the file; other TIDELOG_* variables are nobody's business here."""
        for name, value in sorted(environ.items()):
            if not name.startswith("TIDELOG_"):
                continue
            section, _, key = name.removeprefix("TIDELOG_").lower().partition("_")
            if section == "listeners":
                listener, _, key = key.partition("_")
                section = f"listeners.{listener}"
            elif section == "log":
                key = key.replace("_", ".")
            elif section not in _SECTIONS:
                continue
            self._given[section, key] = _Value(value, f"environment variable {name}", written=True)

    def take(self, section: str, key: str, read: Callable[[_Value[Any]], T], default: T) -> T:
        """The value, read by `read`; the default where it is not given."""
        self._known.setdefault(section, []).append(key)
        given = self._given.pop((section, key), None)
        if given is None:
            return default
        try:
            return read(given)
        except _Bad as bad:
            self._refuse(section, key, given, str(bad))

    def take_log(self) -> tuple[dict[str, str], MaintenanceConfig]:
        """The defaults of topic settings, each checked on its own so that the message can say where it stands, and the
        node's own settings of logs."""
        settings: dict[str, str] = {}
        own: dict[str, str] = {}
        for section, key in [place for place in self._given if place[0] == "log"]:
            given = self._given.pop((section, key))
            if isinstance(given.value, dict):
                self._refuse(section, key, given, 'a key with dots stands in quotes, for example "retention.ms" = -1')
            text = str(given.value).lower() if isinstance(given.value, bool) else str(given.value)
            try:
                if key in UPKEEP_SETTINGS:
                    MaintenanceConfig.from_node({key: text})
                else:
                    LogConfig.from_node({key: text})
            except (InvalidConfig, UnsupportedVersion) as error:
                self._refuse(section, key, given, error.message)
            (own if key in UPKEEP_SETTINGS else settings)[key] = text
        try:
            LogConfig.from_node(settings)
        except InvalidConfig as error:
            raise InvalidConfig(f"{self._source}: [log]: {error.message}") from None
        return settings, MaintenanceConfig.from_node(own)

    def listener_names(self) -> list[str]:
        return sorted({section.partition(".")[2] for section, _ in self._given if section.startswith("listeners.")})

    def refuse(self, section: str, key: str, allowed: str) -> NoReturn:
        """A key is missing, or contradicts another one."""
        raise InvalidConfig(f"{self._place(section, key)}: [{section}] {key}: {allowed}")

    def refuse_the_rest(self) -> None:
        for (section, key), given in self._given.items():
            known = ", ".join(self._known.get(section, []))
            raise InvalidConfig(f"{given.place}: [{section}] {key} is no key; known are {known}. Remove or rename it.")

    def _refuse(self, section: str, key: str, given: _Value[Any], allowed: str) -> NoReturn:
        raise InvalidConfig(f"{given.place}: [{section}] {key} = {given.value!r}: {allowed}") from None

    def _place(self, section: str, key: str) -> str:
        """File and line of a key; of its section where the key is not there; the file alone where neither is."""
        header_line = 0
        inside = False
        for number, line in enumerate(self._lines, 1):
            header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
            if header:
                inside = header[1].replace('"', "").replace("'", "") == section
                header_line = number if inside else header_line
            elif inside and key and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
                return f"{self._source}, line {number}"
        return f"{self._source}, line {header_line}" if header_line else self._source


# --- values ----------------------------------------------------------------------------------------------------------


def _text(given: _Value[Any]) -> str:
    if not isinstance(given.value, str):
        raise _Bad('must be text in quotes ("...")')
    return given.value


def _flag(given: _Value[Any]) -> bool:
    value = {"true": True, "false": False}.get(given.value.lower()) if given.written else given.value
    if not isinstance(value, bool):
        raise _Bad("must be true or false")
    return value


def _number(low: int, high: int) -> Callable[[_Value[Any]], int]:
    def read(given: _Value[Any]) -> int:
        value = int(given.value) if given.written and re.fullmatch(r"-?\d+", given.value) else given.value
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _Bad(f"must be a whole number from {low} to {high}")
        return value

    return read


def _millis(low: int, high: int) -> Callable[[_Value[Any]], Millis]:
    number = _number(low, high)
    return lambda given: Millis(number(given))


def _one_of(*allowed: str) -> Callable[[_Value[Any]], str]:
    def read(given: _Value[Any]) -> str:
        if given.value not in allowed:
            raise _Bad(f"must be one of {', '.join(allowed)}")
        return str(given.value)

    return read


def _list(given: _Value[Any]) -> list[str]:
    value = [item.strip() for item in given.value.split(",") if item.strip()] if given.written else given.value
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise _Bad('must be a list of one or more texts (["...", "..."])')
    return value


def _directories(given: _Value[Any]) -> tuple[str, ...]:
    directories = tuple(directory.rstrip("/") or "/" for directory in _list(given))
    if len(set(directories)) < len(directories):
        raise _Bad("names a directory twice; name each once")
    return directories


def _endpoint(given: _Value[Any]) -> Endpoint:
    return _endpoint_of(_text(given))


def _endpoints(given: _Value[Any]) -> tuple[Endpoint, ...]:
    return tuple(_endpoint_of(item) for item in _list(given))


def _endpoint_of(text: str) -> Endpoint:
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^:\s\[\]]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise _Bad(
            f"{text!r} is no address; write HOST:PORT, for example 127.0.0.1:9092 (IPv6 in brackets: [::1]:9092)"
        )
    return Endpoint(found[1] or found[2], int(found[3]))


def _node_id(values: _Values, host_name: str) -> NodeId:
    def read(given: _Value[Any]) -> int:
        return -1 if given.value == "auto" else _number(0, 2**31 - 1)(given)

    node_id = values.take("node", "id", read, -1)
    if node_id >= 0:
        return NodeId(node_id)
    ordinal = re.search(r"-(\d+)$", host_name.partition(".")[0])
    if ordinal is None:
        values.refuse(
            "node",
            "id",
            f"not given, and the host name {host_name!r} does not end in -NUMBER. Set id, or TIDELOG_NODE_ID.",
        )
    return NodeId(int(ordinal[1]))


def _listeners(values: _Values) -> tuple[ListenerConfig, ...]:
    names = values.listener_names()
    if CLIENT_LISTENER not in names:
        names.insert(0, CLIENT_LISTENER)
    listeners = []
    for name in names:
        section = f"listeners.{name}"
        bind: Endpoint | None = values.take(section, "bind", _endpoint, None)
        if bind is None:
            values.refuse(section, "bind", 'missing. Say where to listen, for example bind = "127.0.0.1:9092".')
        advertised: Endpoint | None = values.take(section, "advertised", _endpoint, None)
        if advertised is None and bind.host in ("0.0.0.0", "::"):
            values.refuse(
                section, "advertised", f"missing, and others cannot reach {bind}. Name the address they should use."
            )
        listeners.append(ListenerConfig(name, bind, advertised))
    return tuple(listeners)


def _quorum(values: _Values, node_id: NodeId) -> QuorumConfig:
    nodes: tuple[Endpoint, ...] = values.take("quorum", "nodes", _endpoints, ())
    bootstrap: bool | None = values.take("quorum", "bootstrap", _flag, None)
    bootstrap_node: int | None = values.take("quorum", "bootstrap_node", _number(0, 2**31 - 1), None)
    if bootstrap is not None and bootstrap_node is not None:
        values.refuse(
            "quorum", "bootstrap", "contradicts bootstrap_node. Keep bootstrap_node where nodes share a file."
        )
    if not nodes:
        values.refuse(
            "quorum", "nodes", "missing. List the addresses of the first nodes, this one included: nodes = [...]."
        )
    forms = bool(bootstrap) if bootstrap_node is None else bootstrap_node == node_id
    voters: int = values.take("quorum", "voters", _number(1, 9), QUORUM_VOTERS)
    snapshot_bytes: int = values.take("quorum", "snapshot_bytes", _number(1024, 1 << 40), SNAPSHOT_BYTES)
    return QuorumConfig(forms, nodes, voters, snapshot_bytes)


def _replication(values: _Values) -> ReplicationConfig:
    default = ReplicationConfig()
    config = ReplicationConfig(
        heartbeat_ms=values.take("replication", "heartbeat_ms", _millis(10, 60_000), default.heartbeat_ms),
        session_ms=values.take("replication", "session_ms", _millis(50, 600_000), default.session_ms),
        lag_ms_max=values.take("replication", "lag_ms_max", _millis(50, 600_000), default.lag_ms_max),
        fetch_wait_ms=values.take("replication", "fetch_wait_ms", _millis(1, 60_000), default.fetch_wait_ms),
        fetch_bytes_max=values.take("replication", "fetch_bytes_max", _number(1024, 1 << 30), default.fetch_bytes_max),
        drain_ms_max=values.take("replication", "drain_ms_max", _millis(0, 600_000), default.drain_ms_max),
        imbalance_check_ms=values.take("replication", "imbalance_check_ms", _millis(0, 86_400_000), Millis(300_000)),
        imbalance_percent=values.take("replication", "imbalance_percent", _number(0, 100), default.imbalance_percent),
        throttled_rate=values.take("replication", "throttled_rate", _number(0, 1 << 40), default.throttled_rate),
    )
    if config.session_ms < 2 * config.heartbeat_ms:
        values.refuse(
            "replication",
            "session_ms",
            f"{config.session_ms} ms is less than two heartbeats of {config.heartbeat_ms} ms: one lost heartbeat would "
            "fence the node. Raise it, or lower heartbeat_ms.",
        )
    return config
