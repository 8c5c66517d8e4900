"""The configuration of a node: one TOML file, of which environment variables override any key.

Keys are dotted names. In TOML they are quoted keys or nested tables (`"log.dirs" = [...]`, `[log] dirs = [...]`). The
environment variable of `log.dirs` is `TIDELOG_LOG_DIRS`; its lists are separated by commas. docs/configuration.md lists
all keys, which are Kafka's where Kafka has one.

Invariant: every key is known and every value is allowed; otherwise InvalidConfig names the place, the key, the value
and what is allowed.
Not here: reading the file (node/process/process.py).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Final, NoReturn

from storage.directory.maintenance_config import MaintenanceConfig
from storage.log_config import CLEANUP_POLICY, LogConfig
from storage.settings import (
    INT32_MAX,
    InvalidValue,
    Setting,
    choice,
    flag,
    given_fields,
    millis,
    number,
    setting,
    settings_of,
    size,
    text,
    texts,
)
from storage.settings import (
    SettingKind as Kind,
)
from tidelog.errors import InvalidConfig
from tidelog.types import Endpoint, Millis, NodeId

CLIENT_LISTENER: Final = "client"
"""The listener that every node has. It serves clients and other nodes."""

MEMORY_BYTES: Final = 256 << 20
SNAPSHOT_BYTES: Final = 20 << 20
QUORUM_VOTERS: Final = 3
"""Three voters tolerate the loss of one. With more voters each change waits for more disks."""
_AUTO: Final = "auto"
_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A named listener. advertised: the address that is registered; None: the bound one."""

    name: str
    bind: Endpoint
    advertised: Endpoint | None = None


def _endpoint_of(value: object) -> Endpoint:
    pattern = r"(?:\[([0-9a-fA-F:]+)\]|([^:\s\[\]]+)):(\d{1,5})"
    found = re.fullmatch(pattern, value) if isinstance(value, str) else None
    if found is None or int(found[3]) > 65535:
        raise InvalidValue(
            f"{value!r} is not an address; write HOST:PORT, for example 127.0.0.1:9092 (IPv6: [::1]:9092)"
        )
    return Endpoint(found[1] or found[2], int(found[3]))


def _distinct(what: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise InvalidValue(f"names a {what} twice; name each once")


def _directories_of(items: list[str]) -> tuple[str, ...]:
    directories = [directory.rstrip("/") or "/" for directory in items]
    _distinct("directory", directories)
    return tuple(directories)


def _endpoints_of(items: list[str]) -> tuple[Endpoint, ...]:
    return tuple(_endpoint_of(item) for item in items)


def _listeners_of(items: list[str]) -> dict[str, Endpoint]:
    pairs = [item.partition("://") for item in items]
    for (name, _, address), item in zip(pairs, items, strict=True):
        if not name or not address:
            raise InvalidValue(
                f"{item!r} is not a listener; write NAME://HOST:PORT, for example client://127.0.0.1:9092"
            )
    _distinct("listener", [name for name, _, _ in pairs])
    return {name: _endpoint_of(address) for name, _, address in pairs}


def _node_id_of(value: object) -> int:
    return -1 if value == _AUTO else _ID.parse(value) if isinstance(value, str) else _ID.check(value)


# The settings that `parse` combines into fields are declared by themselves.
_ID: Final = number(0, INT32_MAX)
_LISTENERS: Final = texts("NAME://HOST:PORT", _listeners_of, str)
NODE_ID: Final = Setting(
    "node.id",
    -1,
    Kind(f"{_ID.expected}, or {_AUTO}", _node_id_of, _node_id_of, lambda value: _AUTO if value < 0 else str(value)),
)
"""the id of the node; `auto`: the number at the end of `TIDELOG_POD_NAME` or of the host name (`tidelog-2` is 2)"""
LISTENERS: Final[Setting[Any]] = Setting("listeners", MISSING, _LISTENERS)
"""the addresses to listen on, `NAME://HOST:PORT`; port 0: any free port. The listener `client` is required and serves
clients and nodes; others are registered and served too"""
ADVERTISED_LISTENERS: Final[Setting[Any]] = Setting("advertised.listeners", {}, _LISTENERS)
"""the addresses at which clients and other nodes connect, if they differ from the bound ones; required for a listener
on `0.0.0.0` or `[::]`"""
BOOTSTRAP: Final = Setting("cluster.bootstrap.enable", False, flag())
"""true on exactly one node: it forms the cluster, once, when every node of `controller.quorum.bootstrap.servers` has
answered that it belongs to none"""
BOOTSTRAP_NODE: Final[Setting[Any]] = Setting("cluster.bootstrap.node.id", None, _ID)
"""the id of the node that forms the cluster; replaces `cluster.bootstrap.enable` in a file that all nodes share"""


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The first nodes, and whether this node forms the cluster."""

    bootstrap: bool
    nodes: tuple[Endpoint, ...] = setting(
        "controller.quorum.bootstrap.servers", MISSING, texts("HOST:PORT", _endpoints_of, str)
    )
    """the addresses of the first nodes, this one included; the metadata log defines which nodes vote"""
    voters: int = setting("controller.quorum.voter.count", QUORUM_VOTERS, number(1, 9))
    """the number of voters of a new cluster; the active controller adds voters one at a time up to this number"""
    snapshot_bytes: int = setting(
        "metadata.log.max.record.bytes.between.snapshots", SNAPSHOT_BYTES, size(1024, 1 << 40)
    )
    """a snapshot of the metadata is written when the metadata log has grown by this much"""


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Times and sizes of replication."""

    heartbeat_ms: Millis = setting("broker.heartbeat.interval.ms", 400, millis(10, 60_000))
    """interval of the heartbeats to the controller"""
    session_ms: Millis = setting("broker.session.timeout.ms", 2_000, millis(50, 600_000))
    """without a heartbeat for this long the node is fenced; at least two heartbeat intervals"""
    lag_ms_max: Millis = setting("replica.lag.time.max.ms", 5_000, millis(50, 600_000))
    """a follower that has not caught up for this long leaves the in-sync set"""
    fetch_wait_ms: Millis = setting("replica.fetch.wait.max.ms", 500, millis(1, 60_000))
    """how long a fetch of a follower waits at the leader for new records"""
    fetch_bytes_max: int = setting("replica.fetch.max.bytes", 1 << 20, size(1024, 1 << 30))
    """limit for the records of one partition in a fetch response"""
    drain_ms_max: Millis = setting("controlled.shutdown.timeout.ms", 30_000, millis(0, 600_000))
    """how long a stopping node waits until its leaderships have moved to other nodes"""
    imbalance_check_ms: Millis = setting(
        "leader.imbalance.check.interval.seconds", 300_000, number(0, 86_400, unit="s", scale=1_000)
    )
    """interval at which leaderships are moved back to preferred leaders; 0: only on command"""
    imbalance_percent: int = setting("leader.imbalance.per.broker.percentage", 10, number(0, 100, unit="%"))
    """the share of a node's preferred leaderships that other nodes may have before they are moved back"""
    throttled_rate: int = setting("follower.replication.throttled.rate", 0, number(0, 1 << 40, unit="bytes/s"))
    """limit for fetching replicas that are being moved to this node; 0: no limit"""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The configuration of a node. log_defaults: defaults of topic settings, by the topic's key."""

    node_id: NodeId
    listeners: tuple[ListenerConfig, ...]
    quorum: QuorumConfig
    log_directories: tuple[str, ...] = setting("log.dirs", ("data",), texts("directories", _directories_of, ",".join))
    """the log directories; the first one also contains the metadata log"""
    rack: str = setting("broker.rack", "", text())
    """the rack, zone or host that keeps replicas apart"""
    metrics_bind: Endpoint | None = setting(
        "metrics.listener", None, Kind("HOST:PORT in quotes", _endpoint_of, _endpoint_of)
    )
    """the address that serves `GET /metrics`"""
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    message_bytes_max: int = setting("socket.request.max.bytes", 128 << 20, size(1 << 20, 1 << 30))
    """the largest gRPC message, requests and responses; one batch is never split. A request of more than 100,000
    fields is rejected whatever its size"""
    memory_bytes: int = setting("memory.max.bytes", MEMORY_BYTES, size(16 << 20, 1 << 40))
    """memory for records in requests and responses and for the state of producers (operations.md, Memory). If it is
    not set: a quarter of the memory of the container or of the machine, from 32 MiB to the default"""
    log_defaults: Mapping[str, str] = field(default_factory=dict)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    slow_request_ms: Millis = setting("slow.request.log.threshold.ms", 1_000, millis(0, 600_000))
    """a request is logged as slow if its work, or its total time minus the wait that it requested, exceeds this; 0:
    never (operations.md, Slow requests)"""
    log_format: str = setting("logging.format", "text", choice({word: word for word in ("text", "json")}))
    """format of the node's log lines, which it writes to standard error"""
    log_level: str = setting("logging.level", "info", choice({word: word for word in _LEVELS}))
    """lowest level of the log lines that are written"""

    @property
    def log_config(self) -> LogConfig:
        """The defaults of topic settings."""
        return LogConfig.from_node(self.log_defaults)


_DECLARED: Final = (
    *(NODE_ID, LISTENERS, ADVERTISED_LISTENERS, BOOTSTRAP, BOOTSTRAP_NODE),
    *settings_of(QuorumConfig).values(),
    *settings_of(NodeConfig).values(),
    *settings_of(ReplicationConfig).values(),
    *settings_of(MaintenanceConfig).values(),
    *settings_of(LogConfig).values(),
    CLEANUP_POLICY,
)
SETTINGS: Final[Mapping[str, Setting[Any]]] = {declared.name: declared for declared in _DECLARED}
"""Every setting by the node's key."""

_FORMER: Final = {
    "node.data_folders": "log.dirs",
    "node.log_directories": "log.dirs",
    "node.rack": "broker.rack",
    "quorum.nodes": "controller.quorum.bootstrap.servers",
    "quorum.bootstrap": "cluster.bootstrap.enable",
    "quorum.bootstrap_node": "cluster.bootstrap.node.id",
    "quorum.voters": "controller.quorum.voter.count",
    "quorum.snapshot_bytes": "metadata.log.max.record.bytes.between.snapshots",
    "metrics.bind": "metrics.listener",
    **{f"replication.{field}": each.name for field, each in settings_of(ReplicationConfig).items()},
    "limits.message_bytes_max": "socket.request.max.bytes",
    "limits.memory_bytes": "memory.max.bytes",
    "logs.format": "logging.format",
    "logs.level": "logging.level",
    "log.producer.id.expiration.check.interval.ms": "producer.id.expiration.check.interval.ms",
    **{
        f"log.{each.topic or each.name}": each.name
        for each in settings_of(LogConfig).values()
        if each.name != f"log.{each.topic}"
    },
}
"""Keys of earlier versions that were renamed, and their present names. `_present_name` has those of listeners."""


def parse(
    text: str, environ: Mapping[str, str], *, source: str, host_name: str, memory_bytes: int = MEMORY_BYTES
) -> NodeConfig:
    """Read a configuration.

    text: TOML. environ: the environment variables. source: the file's name, for errors. host_name: of this machine; its
    trailing number is the node id if none is set. memory_bytes: the default of `memory.max.bytes`. Raises
    InvalidConfig.
    """
    file = _File(text, source)
    values: dict[str, Any] = {"memory.max.bytes": memory_bytes}
    for key, given in (file.given() | _given_by_environment(environ)).items():
        try:
            values[key] = given.read(given.value)
        except InvalidConfig as error:
            raise InvalidConfig(f"{given.place}: {error.message}") from None
    for key, declared in SETTINGS.items():
        if declared.default is MISSING and key not in values:
            file.refuse(key, f"missing; it must be {declared.kind.expected}")
    node_id = _node_id(file, values, environ.get("TIDELOG_POD_NAME") or host_name)
    replication = ReplicationConfig(**given_fields(ReplicationConfig, values))
    if replication.session_ms < 2 * replication.heartbeat_ms:
        file.refuse(
            "broker.session.timeout.ms",
            f"{replication.session_ms} ms is less than two heartbeats of {replication.heartbeat_ms} ms: one lost "
            "heartbeat would fence the node. Raise it, or lower broker.heartbeat.interval.ms",
        )
    config = NodeConfig(
        node_id,
        _listeners(file, values),
        QuorumConfig(_forms_cluster(file, values, node_id), **given_fields(QuorumConfig, values)),
        replication=replication,
        log_defaults={
            each.topic or each.name: each.kind.show(values[each.name])
            for each in (*settings_of(LogConfig).values(), CLEANUP_POLICY)
            if each.name in values
        },
        maintenance=MaintenanceConfig(**given_fields(MaintenanceConfig, values)),
        **given_fields(NodeConfig, values),
    )
    try:
        LogConfig.from_node(config.log_defaults)
    except InvalidConfig as error:
        raise InvalidConfig(f"{source}: defaults of topics: {error.message}") from None
    return config


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Given:
    """A value, the place where it was set, and the function that checks it."""

    value: Any
    place: str
    read: Callable[[Any], Any]


class _File:
    """The TOML file: its values, and the lines of its keys for errors."""

    def __init__(self, text: str, source: str) -> None:
        self._text, self._source = text, source

    def given(self) -> dict[str, _Given]:
        """The values in the file, by key. Raises InvalidConfig."""
        try:
            tables = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidConfig(f"{self._source}: not TOML: {error}. Correct the file at that place.") from None
        found: dict[str, _Given] = {}
        for key, value in _flat(tables):
            if key in found:
                self.refuse(key, "set twice; set it once")
            if key not in SETTINGS:
                self._refuse_unknown(key)
            found[key] = _Given(value, self._place(key), SETTINGS[key].check)
        return found

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise InvalidConfig: the key is missing, or contradicts another one."""
        raise InvalidConfig(f"{self._place(key)}: {key}: {reason}")

    def _refuse_unknown(self, key: str) -> NoReturn:
        present = _present_name(key)
        if present is not None:
            section, _, name = key.rpartition(".") if key.startswith("listeners.") else key.partition(".")
            remedy = f"write it outside of [{section}]" if name == present else _renamed(present)
            raise InvalidConfig(f"{self._place(key)}: [{section}] {name} is now {present}; {remedy}")
        from difflib import get_close_matches  # imported here only: it takes 0.1 MiB

        near = get_close_matches(key, SETTINGS, n=3)
        hint = f"similar: {', '.join(near)}" if near else "docs/configuration.md lists all"
        raise InvalidConfig(f"{self._place(key)}: unknown setting {key}; {hint}. Remove or rename it.")

    def _place(self, key: str) -> str:
        """The file and the line of the key, or of the table that would contain it."""
        table, nearest = "", 0
        for at, line in enumerate(self._text.splitlines(), 1):
            found = re.match(r"""\s*(\[*)([\w."'\s-]+)[]=]""", line)
            if found:
                name = re.sub(r"""["'\s]""", "", found[2])
                table, name = (f"{name}.", name) if found[1] else (table, table + name)
                if name == key:
                    return f"{self._source}, line {at}"
                nearest = at if key.startswith(f"{name}.") else nearest
        return f"{self._source}, line {nearest}" if nearest else self._source


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables by dotted key. An empty table counts as a value unless settings could be in it."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and (value or any(known.startswith(f"{key}.") for known in SETTINGS)):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _given_by_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    """The values of environment variables, by key. A variable is ignored if its first word begins no key."""
    variables = {declared.variable: declared for declared in SETTINGS.values()}
    first_words = {key.partition(".")[0] for key in (*SETTINGS, *_FORMER)}
    found: dict[str, _Given] = {}
    for variable, value in sorted(environ.items()):
        name = variable.removeprefix("TIDELOG_").lower()
        if not variable.startswith("TIDELOG_") or name.partition("_")[0] not in first_words:
            continue
        place = f"environment variable {variable}"
        if variable not in variables:
            present = _present_name(name)
            if present is not None:
                raise InvalidConfig(f"{place} is now {SETTINGS[present].variable}; {_renamed(present)}")
            raise InvalidConfig(f"{place}: unknown setting; docs/configuration.md lists all. Remove or rename it.")
        declared = variables[variable]
        found[declared.name] = _Given(value, place, declared.parse)
    return found


def _present_name(former: str) -> str | None:
    """The present name of a renamed setting; None if it was not renamed. former: a key, or a variable in lower case
    without TIDELOG_."""
    listener = re.fullmatch(r"listeners[._].+[._](bind|advertised)", former)
    if listener:
        return "listeners" if listener[1] == "bind" else "advertised.listeners"
    return next((now for key, now in _FORMER.items() if former in (key, key.replace(".", "_"))), None)


def _renamed(present: str) -> str:
    """The instruction for a setting that was renamed to `present`."""
    if present in (LISTENERS.name, ADVERTISED_LISTENERS.name):
        return f'write {present} = ["NAME://HOST:PORT"], one for each listener'
    return "rename it, and give seconds" if present.endswith(".seconds") else "rename it"


def _node_id(file: _File, values: Mapping[str, Any], host_name: str) -> NodeId:
    given = values.get(NODE_ID.name, NODE_ID.default)
    ordinal = re.search(r"-(\d+)$", host_name.partition(".")[0])
    if given >= 0:
        return NodeId(given)
    if ordinal is None:
        remedy = f"Set it, or {NODE_ID.variable}"
        file.refuse(NODE_ID.name, f"not set, and the host name {host_name!r} does not end in -NUMBER. {remedy}")
    return NodeId(int(ordinal[1]))


def _listeners(file: _File, values: Mapping[str, Any]) -> tuple[ListenerConfig, ...]:
    bound = values[LISTENERS.name]
    advertised = values.get(ADVERTISED_LISTENERS.name, ADVERTISED_LISTENERS.default)
    if CLIENT_LISTENER not in bound:
        file.refuse(LISTENERS.name, f"no listener {CLIENT_LISTENER!r}; add {CLIENT_LISTENER}://HOST:PORT")
    for name in sorted(advertised.keys() - bound.keys()):
        file.refuse(ADVERTISED_LISTENERS.name, f"no listener {name!r} in listeners; add it there, or remove it here")
    for name, bind in bound.items():
        if name not in advertised and bind.host in ("0.0.0.0", "::"):
            file.refuse(
                ADVERTISED_LISTENERS.name,
                f"missing for listener {name!r}: clients and nodes cannot reach {bind}. Name a reachable address",
            )
    return tuple(ListenerConfig(name, bind, advertised.get(name)) for name, bind in sorted(bound.items()))


def _forms_cluster(file: _File, values: Mapping[str, Any], node_id: NodeId) -> bool:
    own, shared = BOOTSTRAP.name, BOOTSTRAP_NODE.name
    if own in values and shared in values:
        file.refuse(own, f"contradicts {shared}. Keep only {shared} if nodes share a file")
    return bool(values[shared] == node_id if shared in values else values.get(own, BOOTSTRAP.default))
