"""RabbitMQ streams: three Erlang nodes on this host, three replicas of each stream.

A partition is a stream of its own, as in RabbitMQ's super streams. Records are confirmed once a majority has written
them to its page cache; streams are not synced. The Erlang port mapper is a child of this process, on a port of its own.
A quarter of a second passes until a stream is created: above 10 partitions this system is left out.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from bench.systems.system import HOST, NODES, PeerMissing, System, answers, need_clients
from node.process.free_ports import free_ports

_SERVERS: Final = (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), Path("/usr/local/lib/rabbitmq/bin/rabbitmq-server"))
"""The server itself: the command on the path is a wrapper that changes the user."""
_PORT_MAPPER: Final = "port-mapper"


class RabbitMq(System):
    name = "RabbitMQ"
    clients = ("rstream",)
    partitions_max = 10

    def __init__(self, directory: Path) -> None:
        server = next((path for path in _SERVERS if path.exists()), None)
        port_mapper = shutil.which("epmd")
        if server is None or port_mapper is None:
            raise PeerMissing("no rabbitmq-server; Debian: apt install rabbitmq-server")
        need_clients()
        super().__init__(directory)
        self._server, self._port_mapper = server, port_mapper
        ports = iter(free_ports(1 + 3 * NODES))
        self._mapper_port = next(ports)
        self._ports = [(next(ports), next(ports), next(ports)) for _ in range(NODES)]

    @property
    def _nodes(self) -> list[str]:
        return [f"node-{number}" for number in range(NODES)]

    @property
    def pids(self) -> list[int]:
        return self.children.pids(self._nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{stream}" for _, _, stream in self._ports)

    @property
    def version(self) -> str:
        (server,) = (self._server.parent.parent / "lib").glob("rabbitmq_server-*")
        return server.name.removeprefix("rabbitmq_server-")

    def start(self) -> None:
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text("BENCH")
        cookie.chmod(0o400)
        (self.directory / "enabled_plugins").write_text("[rabbitmq_stream].\n")
        mapper = [self._port_mapper, "-port", str(self._mapper_port), "-address", HOST]
        self.children.start(_PORT_MAPPER, mapper)
        self.children.wait_until(_PORT_MAPPER, lambda: answers(f"{HOST}:{self._mapper_port}"))
        for number, name in enumerate(self._nodes):  # one after the other: the later ones join the first
            self._start_node(number)
            address = f"{HOST}:{self._ports[number][2]}"
            self.children.wait_until(name, lambda at=address: answers(at))  # type: ignore[misc]

    def _start_node(self, number: int) -> None:
        name, (amqp, distribution, stream) = self._nodes[number], self._ports[number]
        configuration = self.directory / f"{name}.conf"
        configuration.write_text(
            f"listeners.tcp.1 = {HOST}:{amqp}\n"
            f"stream.listeners.tcp.1 = {HOST}:{stream}\n"
            f"stream.advertised_host = {HOST}\nstream.advertised_port = {stream}\n"
            "cluster_formation.peer_discovery_backend = classic_config\n"
            + "".join(f"cluster_formation.classic_config.nodes.{n + 1} = bench{n}@localhost\n" for n in range(NODES))
            + "log.file = false\nlog.console = true\nlog.console.level = warning\n"
        )
        environment = {
            "HOME": str(self.directory),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server instead of its parent
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench{number}@localhost",
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / f"data-{number}"),
            "RABBITMQ_LOG_BASE": str(self.directory / f"log-{number}"),
        }
        self.children.start(name, [str(self._server)], environment)
