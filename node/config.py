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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, replace
from typing import Any, Final, NoReturn

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.http_settings import HttpConfig
from node.listener_addresses import ADVERTISED_LISTENERS, LISTENERS, address_mistake, endpoint_of
from node.listener_settings import (
    OF_LISTENERS,
    OF_NAMES,
    PREFIX,
    PROTOCOLS,
    ListenerProtocol,
    ListenerTls,
    protocol_mistake,
)
from node.quotas.quota_config import QuotaConfig
from node.replication_settings import ReplicationConfig
from node.runtime.limits import IDLE_MS
from node.security.sasl_settings import OAuthBearerConfig, SaslConfig
from node.security.security_settings import AuditConfig, AuthorizerConfig
from node.setting_hints import NO_EFFECT, name_hint, value_hint
from node.tiering_settings import TieringConfig
from node.topic_defaults import TopicDefaults
from replication.controller.partition_limits import CLUSTER_DEFAULT, NODE_DEFAULT
from storage.directory.maintenance_config import MaintenanceConfig
from storage.log_config import CLEANUP_POLICY, LogConfig
from tidelog.client_variables import ClientVariable
from tidelog.errors import InvalidConfig
from tidelog.security.loopback import is_loopback
from tidelog.security.tls_files import Tls
from tidelog.settings import (
    Setting,
    choice,
    ensure_distinct,
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
from tidelog.settings import SettingKind as Kind
from tidelog.types import INT32_MAX, Endpoint, Millis, NodeId
from tidelog.values import dataclass

GRPC_LISTENER: Final = "GRPC"
"""The default of `inter.broker.listener.name`: the listener that serves Tidelog's clients and other nodes."""

MEMORY_BYTES: Final = 256 << 20
SNAPSHOT_BYTES: Final = 20 << 20
QUORUM_VOTERS: Final = 3
"""Three voters tolerate the loss of one. With more voters each change waits for more disks."""
_AUTO: Final = "auto"
_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A named listener. advertised: the address that is registered; None for the bound one. for_nodes: it serves the
    node-only APIs. tls: None if the protocol has none."""

    name: str
    bind: Endpoint
    advertised: Endpoint | None = None
    for_nodes: bool = True
    protocol: ListenerProtocol = ListenerProtocol.GRPC
    tls: ListenerTls | None = None

    @property
    def requires(self) -> str:
        """The way in which callers must authenticate; empty if they need not."""
        if self.protocol.has_sasl:
            return "SASL"
        return "certificates" if self.tls is not None and self.tls.requires_certificate else ""


def _directories_of(items: list[str]) -> tuple[str, ...]:
    directories = [directory.rstrip("/") or "/" for directory in items]
    ensure_distinct("directory", directories)
    return tuple(directories)


def _endpoints_of(items: list[str]) -> tuple[Endpoint, ...]:
    return tuple(endpoint_of(item) for item in items)


def _names_of(items: list[str]) -> tuple[str, ...]:
    ensure_distinct("listener", items)
    return tuple(items)


def _node_id_of(value: object) -> int:
    return -1 if value == _AUTO else _ID.parse(value) if isinstance(value, str) else _ID.check(value)


# The settings that `parse` combines into fields are declared by themselves.
_ID: Final = number(0, INT32_MAX)
_ENDPOINTS: Final = texts("HOST:PORT", _endpoints_of, lambda nodes: ",".join(map(str, nodes)))
_LISTENER_NAMES: Final = texts("names of listeners", _names_of, ",".join)
NODE_ID: Final = Setting(
    "node.id",
    -1,
    Kind(f"{_ID.expected}, or {_AUTO}", _node_id_of, _node_id_of, lambda value: _AUTO if value < 0 else str(value)),
)
"""the id of the node; `auto`: the number at the end of `TIDELOG_POD_NAME` or of the host name (`tidelog-2` is 2)"""
BOOTSTRAP: Final = Setting("cluster.bootstrap.enable", False, flag())
"""true on exactly one node: it forms the cluster, once, when every node of `controller.quorum.bootstrap.servers` has
answered that it belongs to none"""
BOOTSTRAP_NODE: Final[Setting[Any]] = Setting("cluster.bootstrap.node.id", None, _ID)
"""the id of the node that forms the cluster; replaces `cluster.bootstrap.enable` in a file that all nodes share"""


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The first nodes, and whether this node forms the cluster."""

    bootstrap: bool
    nodes: tuple[Endpoint, ...] = setting("controller.quorum.bootstrap.servers", MISSING, _ENDPOINTS)
    """the addresses of the first nodes, this one included; the metadata log defines which nodes vote"""
    voters: int = setting("controller.quorum.voter.count", QUORUM_VOTERS, number(1, 9))
    """the number of voters of a new cluster; the active controller adds voters one at a time up to this number"""
    snapshot_bytes: int = setting(
        "metadata.log.max.record.bytes.between.snapshots", SNAPSHOT_BYTES, size(1024, 1 << 40)
    )
    """a snapshot of the metadata is written when the metadata log has grown by this much"""


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
    inter_listener: str = setting("inter.broker.listener.name", GRPC_LISTENER, text())
    """the listener at which nodes reach each other; it speaks gRPC. What only nodes may ask is refused on every
    listener but this one and those of `controller.listener.names`"""
    controller_listeners: tuple[str, ...] = setting("controller.listener.names", (), _LISTENER_NAMES)
    """the listeners of the metadata quorum and the controller; nodes use the first one, which has the protocol of
    `inter.broker.listener.name`. If it is not set: that listener"""
    allow_insecure: bool = setting("allow.insecure", False, flag())
    """true: the node may bind other addresses than loopback although nothing proves that a caller is a node
    (security.md, Listeners)"""
    metrics_bind: Endpoint | None = setting(
        "metrics.listener", None, Kind("HOST:PORT in quotes", endpoint_of, endpoint_of)
    )
    """the address that serves `GET /metrics`, `/healthz` and `/readyz`, and the web console"""
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    message_bytes_max: int = setting("socket.request.max.bytes", 128 << 20, size(1 << 20, 1 << 30))
    """the largest request, and the largest gRPC response; one batch is never split. A request without records may have
    8 MiB. A request of more than 100,000 fields is rejected whatever its size"""
    connections_max: int = setting("max.connections", 10_000, number(1, INT32_MAX))
    """connections of each listener; further ones are closed when they are made. At most half of the files that the
    process may open are connections: logs need the others"""
    idle_ms_max: Millis = setting("connections.max.idle.ms", IDLE_MS, millis(1_000, INT32_MAX))
    """a connection without requests for this long is closed, and its client connects again; an open stream, and a
    request that waits for records, are not idle"""
    fetch_sessions_max: int = setting("max.incremental.fetch.session.cache.slots", 1_000, number(0, 10_000))
    """incremental fetch sessions of clients of Kafka (KIP-227): with one, a consumer of many partitions names only
    those that change. They have at most 100,000 partitions together. 0: none"""
    partitions_max: int = setting("max.partitions", CLUSTER_DEFAULT, number(1, INT32_MAX))
    """partitions of all topics of the cluster, internal ones not counted. The active controller refuses more with
    PolicyViolation, so the setting must be the same on every node; so must the next one"""
    node_partitions_max: int = setting("max.broker.partitions", NODE_DEFAULT, number(1, INT32_MAX))
    """replicas on each node, internal topics not counted; new replicas are placed on nodes that have fewer"""
    memory_bytes: int = setting("memory.max.bytes", MEMORY_BYTES, size(16 << 20, 1 << 40))
    """memory for records in requests and responses and for the state of producers (operations.md, Memory). If it is
    not set: a quarter of the memory of the container or of the machine, from 32 MiB to the default"""
    log_defaults: Mapping[str, str] = field(default_factory=dict)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    coordinators: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    tiering: TieringConfig = field(default_factory=TieringConfig)
    sasl: SaslConfig = field(default_factory=SaslConfig)
    slow_request_ms: Millis = setting("slow.request.log.threshold.ms", 1_000, millis(0, 600_000))
    """a request is logged as slow if its work, or its total time minus the wait that it requested, exceeds this; 0:
    never (operations.md, Slow requests)"""
    log_format: str = setting("logging.format", "text", choice({word: word for word in ("text", "json")}))
    """format of the node's log lines, which it writes to standard error"""
    log_level: str = setting("logging.level", "info", choice({word: word for word in _LEVELS}))
    """lowest level of the log lines that are written"""
    authorizer: AuthorizerConfig = field(default_factory=AuthorizerConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    http: HttpConfig = field(default_factory=HttpConfig)

    @property
    def controller_listener(self) -> str:
        """The listener at which nodes reach the metadata quorum and the controller."""
        return self.controller_listeners[0] if self.controller_listeners else self.inter_listener

    @property
    def node_tls(self) -> Tls | None:
        """The files for connections to other nodes; None for plain text."""
        (between,) = [listener for listener in self.listeners if listener.name == self.inter_listener]
        return None if between.tls is None else between.tls.files

    @property
    def exposure(self) -> str:
        """Which address other machines reach while nothing proves that a caller is a node; empty if there is none."""
        unproved = [each.name for each in self.listeners if each.for_nodes and not each.requires]
        reached = [listener for listener in self.listeners if not is_loopback(listener.bind.host)]
        if not (unproved and reached):
            return ""
        return (
            f"listener {reached[0].name!r} binds {reached[0].bind}, which other machines reach, and listener "
            f"{unproved[0]!r} takes everyone for a node"
        )

    @property
    def plain_sasl(self) -> str:
        """A listener with SASL and without TLS that other machines reach; empty if there is none."""
        plain = (each for each in self.listeners if each.protocol.has_sasl and not each.protocol.has_tls)
        return next((each.name for each in plain if not is_loopback(each.bind.host)), "")

    @property
    def unrestricted(self) -> str:
        """Why all may do everything although a listener knows its callers or there are super users; otherwise empty."""
        proved = authenticating(self.listeners)
        if self.authorizer.enabled or not (proved or self.authorizer.super_users):
            return ""
        if proved is None:
            return NO_EFFECT
        return (
            f'listener {proved.name!r} requires {proved.requires}, and by authorizer.class.name = "none" every caller '
            "who has passed may do everything: name the administrators in super.users, and remove that setting "
            "(docs/security.md, Setting it up)"
        )

    @property
    def log_config(self) -> LogConfig:
        """The defaults of topic settings."""
        return LogConfig.from_node(self.log_defaults)


def authenticating(listeners: Sequence[ListenerConfig]) -> ListenerConfig | None:
    """The first listener whose callers prove who they are; None if there is none."""
    return next((each for each in listeners if each.requires), None)


_DECLARED: Final = (
    *(NODE_ID, LISTENERS, ADVERTISED_LISTENERS, PROTOCOLS, BOOTSTRAP, BOOTSTRAP_NODE),
    *settings_of(QuorumConfig).values(),
    *settings_of(NodeConfig).values(),
    *OF_LISTENERS.values(),
    *settings_of(AuthorizerConfig).values(),
    *settings_of(AuditConfig).values(),
    *settings_of(HttpConfig).values(),
    *settings_of(ReplicationConfig).values(),
    *settings_of(MaintenanceConfig).values(),
    *settings_of(QuotaConfig).values(),
    *settings_of(TopicDefaults).values(),
    *settings_of(GroupSettings).values(),
    *settings_of(TransactionSettings).values(),
    *settings_of(TieringConfig).values(),
    *settings_of(SaslConfig).values(),
    *settings_of(OAuthBearerConfig).values(),
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
    "listener.kafka.names": PROTOCOLS.name,
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
            raise InvalidConfig(f"{given.place}: {error.message}{value_hint(given.value)}") from None
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
    listeners = _listeners(file, values)
    config = NodeConfig(
        node_id,
        listeners,
        QuorumConfig(_forms_cluster(file, values, node_id), **given_fields(QuorumConfig, values)),
        replication=replication,
        log_defaults={
            each.topic or each.name: each.kind.show(values[each.name])
            for each in (*settings_of(LogConfig).values(), CLEANUP_POLICY)
            if each.name in values
        },
        maintenance=MaintenanceConfig(**given_fields(MaintenanceConfig, values)),
        authorizer=_authorizer(file, values, listeners),
        audit=AuditConfig(**given_fields(AuditConfig, values)),
        http=HttpConfig(**given_fields(HttpConfig, values)),
        quotas=QuotaConfig(**given_fields(QuotaConfig, values)),
        topics=TopicDefaults.given(values, len(values[_NODES])),
        coordinators=CoordinatorSettings.given(values, source),
        tiering=TieringConfig(**given_fields(TieringConfig, values)),
        sasl=SaslConfig(
            **given_fields(SaslConfig, values), oauth=OAuthBearerConfig(**given_fields(OAuthBearerConfig, values))
        ),
        **given_fields(NodeConfig, values),
    )
    if config.exposure and not config.allow_insecure:
        file.refuse(
            LISTENERS.name,
            f"{config.exposure}. Give it the protocol GRPC_SSL and "
            'ssl.client.auth = "required", or GRPC_SASL_SSL and cluster.secret.file (docs/security.md), or bind '
            "127.0.0.1; in a network that only nodes and trusted clients reach, set allow.insecure = true",
        )
    mistake = config.sasl.mistake(values, allow_insecure=config.allow_insecure, plain=config.plain_sasl)
    mistake = mistake or config.http.mistake({each.name: each.tls for each in listeners})
    if mistake is not None:
        file.refuse(*mistake)
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
            declared = SETTINGS.get(key) or _of_one_listener(key)
            if declared is None:
                self._refuse_unknown(key)
            found[declared.name] = _Given(value, self._place(key), declared.check)
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
        raise InvalidConfig(
            f"{self._place(key)}: unknown setting {key}; {name_hint(key, SETTINGS)}. Remove or rename it."
        )

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


def _of_one_listener(key: str) -> Setting[Any] | None:
    """The setting `listener.name.NAME.KEY`, which holds for one listener; None if the key is none of that form. NAME is
    not case-sensitive, as in Kafka."""
    for known, declared in OF_LISTENERS.items():
        if key.startswith(PREFIX) and key.endswith(f".{known}") and len(key) > len(PREFIX) + len(known) + 1:
            return replace(declared, name=key.removesuffix(known).lower() + known)
    return None


def _of_one_listener_by_variable(variable: str) -> Setting[Any] | None:
    """The same, by the name of the environment variable."""
    prefix = "TIDELOG_" + PREFIX.upper().replace(".", "_")
    for known, declared in OF_LISTENERS.items():
        suffix = declared.variable.removeprefix("TIDELOG")
        name = variable.removeprefix(prefix).removesuffix(suffix)
        if name and variable == f"{prefix}{name}{suffix}":
            return replace(declared, name=f"{PREFIX}{name.lower()}.{known}")
    return None


def _given_by_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    """The values of environment variables, by key. A variable is ignored if its first word begins no key, or clients
    read it."""
    variables = {declared.variable: declared for declared in SETTINGS.values()}
    first_words = {key.partition(".")[0] for key in (*SETTINGS, *_FORMER)}
    found: dict[str, _Given] = {}
    for variable, value in sorted(environ.items()):
        name = variable.removeprefix("TIDELOG_").lower()
        if not variable.startswith("TIDELOG_") or name.partition("_")[0] not in first_words:
            continue
        if variable in {*ClientVariable}:
            continue
        place = f"environment variable {variable}"
        declared = variables.get(variable) or _of_one_listener_by_variable(variable)
        if declared is None:
            present = _present_name(name)
            if present is not None:
                raise InvalidConfig(f"{place} is now {SETTINGS[present].variable}; {_renamed(present)}")
            raise InvalidConfig(f"{place}: unknown setting; {name_hint(variable, variables)}. Remove or rename it.")
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
    if present == PROTOCOLS.name:
        return "write NAME:PLAINTEXT (or SSL) for each listener of Kafka's protocol, NAME:GRPC (or GRPC_SSL) for others"
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
    between, controllers = _between_nodes(file, values, bound)
    protocols = values.get(PROTOCOLS.name, PROTOCOLS.default)
    if wrong := protocol_mistake(bound, protocols):
        file.refuse(PROTOCOLS.name, wrong)
    chosen = {name: {**OF_NAMES, **protocols}[name] for name in bound}
    advertised = values.get(ADVERTISED_LISTENERS.name, ADVERTISED_LISTENERS.default)
    metrics = values.get(_METRICS)
    if mistake := address_mistake(bound, advertised, {} if metrics is None else {_METRICS: metrics}):
        file.refuse(*mistake)
    _refuse_unused(file, values, chosen)
    _refuse_kafka_between_nodes(file, values, {name: chosen[name] for name in (between, *controllers)})
    for name, protocol in chosen.items():
        if protocol.is_kafka and advertised.get(name, bound[name]) in values[_NODES]:
            file.refuse(
                _NODES,
                f"{advertised.get(name, bound[name])} is the address of the listener {name!r}, which speaks Kafka's "
                f"protocol; name the addresses of {(*controllers, between)[0]!r}, by which nodes reach each other",
            )
    found = {}
    for name, bind in sorted(bound.items()):
        protocol = chosen[name]
        for_nodes = name in (between, *controllers)
        if protocol.has_sasl and for_nodes and not values.get(_SECRET):
            file.refuse(
                PROTOCOLS.name,
                f"listener {name!r} has the protocol {protocol.value}, and nodes use it among themselves: set "
                f'{_SECRET}, or give it GRPC_SSL with ssl.client.auth = "required", and add another listener for users',
            )
        tls = _tls_of(file, values, name, between) if protocol.has_tls else None
        found[name] = ListenerConfig(name, bind, advertised.get(name), for_nodes, protocol, tls)
    if values.get(_SECRET) and not chosen[between].has_sasl:
        file.refuse(
            _SECRET,
            f"has no effect: nodes use the listener {between!r}, whose protocol is {chosen[between].value}. Give it "
            f"GRPC_SASL_SSL in {PROTOCOLS.name}, or remove the file",
        )
    if controllers and chosen[controllers[0]] is not chosen[between]:
        file.refuse(
            _CONTROLLERS,
            f"{controllers[0]!r} has another protocol than {between!r} of {_BETWEEN}: a node reaches the others by one "
            f"protocol. Give both the same in {PROTOCOLS.name}",
        )
    return tuple(found.values())


_BETWEEN: Final = settings_of(NodeConfig)["inter_listener"].name
_CONTROLLERS: Final = settings_of(NodeConfig)["controller_listeners"].name
_METRICS: Final = settings_of(NodeConfig)["metrics_bind"].name
_NODES: Final = settings_of(QuorumConfig)["nodes"].name
_SECRET: Final = settings_of(SaslConfig)["secret_file"].name
_AUTHORIZER: Final = settings_of(AuthorizerConfig)["enabled"].name
_SUPER_USERS: Final = settings_of(AuthorizerConfig)["super_users"].name


def _between_nodes(
    file: _File, values: Mapping[str, Any], bound: Mapping[str, Endpoint]
) -> tuple[str, tuple[str, ...]]:
    """The listener between nodes, and those of the controller."""
    between, controllers = values.get(_BETWEEN, GRPC_LISTENER), values.get(_CONTROLLERS, ())
    if between not in bound and _BETWEEN not in values:
        file.refuse(
            LISTENERS.name,
            f"no listener {GRPC_LISTENER!r}, by which nodes reach each other; add {GRPC_LISTENER}://HOST:PORT, or name "
            f"another listener that speaks gRPC in {_BETWEEN}",
        )
    for key, name in ((_BETWEEN, between), *((_CONTROLLERS, name) for name in controllers)):
        if name not in bound:
            file.refuse(key, f"no listener {name!r} in listeners; add it there, or name one of {', '.join(bound)}")
    return between, controllers


def _refuse_kafka_between_nodes(
    file: _File, values: Mapping[str, Any], of_nodes: Mapping[str, ListenerProtocol]
) -> None:
    for name, protocol in of_nodes.items():
        if protocol.is_kafka:
            key = PROTOCOLS.name if name in values.get(PROTOCOLS.name, ()) else LISTENERS.name
            twin = protocol.with_grpc.value
            chosen_by = _BETWEEN if name == values.get(_BETWEEN, GRPC_LISTENER) else _CONTROLLERS
            remedy = f"write {name}:{twin} in {PROTOCOLS.name}, or name another listener in {chosen_by}"
            if name in OF_NAMES and OF_NAMES[name].is_kafka:  # the name would say something else than its protocol
                remedy = f"add {twin}://HOST:PORT to {LISTENERS.name}, and name {twin} in {chosen_by}"
            file.refuse(
                key,
                f"listener {name!r} speaks Kafka's protocol ({protocol.value}), and nodes reach each other by gRPC: "
                f"{remedy}",
            )


def _refuse_unused(file: _File, values: Mapping[str, Any], protocols: Mapping[str, ListenerProtocol]) -> None:
    """Refuse settings of TLS without a listener that has it, and those of a listener that does not exist or has none: a
    mistake would leave a listener unprotected."""
    with_tls = {f"{PREFIX}{name.lower()}.": protocol.has_tls for name, protocol in protocols.items()}
    for key in values:
        if key in OF_LISTENERS and not any(with_tls.values()):
            file.refuse(
                key, f"has no effect: no listener has TLS; give one a protocol that ends in SSL in {PROTOCOLS.name}"
            )
        if not key.startswith(PREFIX):
            continue
        has_tls = next((has_tls for prefix, has_tls in with_tls.items() if key.startswith(prefix)), None)
        if has_tls is None:
            file.refuse(key, f"there is no such listener; listeners has {', '.join(sorted(protocols))}")
        if not has_tls:
            file.refuse(
                key, f"the protocol of that listener has no TLS; set it to one that ends in SSL in {PROTOCOLS.name}"
            )


def _tls_of(file: _File, values: Mapping[str, Any], name: str, between: str) -> ListenerTls:
    """TLS of one listener: its own settings before those of all."""
    prefix = f"{PREFIX}{name.lower()}."
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    tls = ListenerTls(**given_fields(ListenerTls, {**values, **own}))
    files = settings_of(ListenerTls)
    for field_name, needed in (
        ("certificate_file", "its certificate"),
        ("key_file", "the key of its certificate"),
        ("ca_file", "the authorities of the certificates that it requires" if tls.requires_certificate else ""),
        ("ca_file", "the authorities of the certificates of other nodes" if name == between else ""),
    ):
        key = files[field_name].name
        if needed and not getattr(tls, field_name):
            file.refuse(key, f"missing for listener {name!r}, whose protocol has TLS: name the file with {needed}")
    return tls


def _authorizer(file: _File, values: Mapping[str, Any], listeners: Sequence[ListenerConfig]) -> AuthorizerConfig:
    """The authorizer. Once a listener knows who its callers are, it is on by default."""
    proved = authenticating(listeners)
    found = AuthorizerConfig(**given_fields(AuthorizerConfig, {_AUTHORIZER: proved is not None, **values}))
    if found.enabled and not (found.super_users or found.allow_everyone):
        because = f"{_AUTHORIZER} is set"
        if _AUTHORIZER not in values and proved is not None:
            because = f"listener {proved.name!r} requires {proved.requires}"
        example = "User:CN=admin" if proved is not None and proved.requires == "certificates" else "User:admin"
        file.refuse(
            _SUPER_USERS,
            f"missing: the node refuses what no ACL allows, because {because}, and no one could add the first ACL. "
            f'Name the administrators in {_SUPER_USERS}, for example ["{example}"], or set {_AUTHORIZER} = "none": '
            "everyone who has connected may then do everything (docs/security.md, Setting it up)",
        )
    return found


def _forms_cluster(file: _File, values: Mapping[str, Any], node_id: NodeId) -> bool:
    own, shared = BOOTSTRAP.name, BOOTSTRAP_NODE.name
    if own in values and shared in values:
        file.refuse(own, f"contradicts {shared}. Keep only {shared} if nodes share a file")
    return bool(values[shared] == node_id if shared in values else values.get(own, BOOTSTRAP.default))
