"""NATS JetStream: three servers, file storage, three replicas.

A partition is a stream of its own: a stream is the unit that has one order and one leader. Records are acknowledged
once a majority has written them to its page cache; the servers sync every two minutes (`sync_interval`, the default).
A stream is also a Raft group with a write-ahead log of its own, and half a second passes until one is created: above
10 partitions this system is left out.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.systems.system import HOST, NODES, PeerMissing, System, answers, need_clients
from node.process.free_ports import free_ports

_CONFIGURATION = """server_name: node-{number}
listen: {host}:{client}
jetstream {{ store_dir: "{store}", max_memory_store: 1GB, max_file_store: 50GB }}
cluster {{ name: bench, listen: {host}:{route}, routes: [{routes}] }}
"""


class JetStream(System):
    name = "JetStream"
    durability = "page cache, synced every 2 min"
    clients = ("nats-py",)
    partitions_max = 10

    def __init__(self, directory: Path) -> None:
        server = shutil.which("nats-server")
        if server is None:
            raise PeerMissing("no nats-server; Debian: apt install nats-server")
        need_clients()
        super().__init__(directory)
        self._server = server
        ports = iter(free_ports(2 * NODES))
        self._ports = [(next(ports), next(ports)) for _ in range(NODES)]

    @property
    def _nodes(self) -> list[str]:
        return [f"node-{number}" for number in range(NODES)]

    @property
    def pids(self) -> list[int]:
        return self.children.pids(self._nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"nats://{HOST}:{client}" for client, _ in self._ports)

    @property
    def version(self) -> str:
        said = subprocess.run([self._server, "--version"], capture_output=True, text=True, check=False).stdout
        return said.strip().rpartition("v")[2]

    def start(self) -> None:
        routes = ", ".join(f'"nats://{HOST}:{route}"' for _, route in self._ports)
        for number, name in enumerate(self._nodes):
            client, route = self._ports[number]
            configuration = self.directory / f"{name}.conf"
            store = self.directory / f"data-{number}"
            configuration.write_text(
                _CONFIGURATION.format(number=number, host=HOST, client=client, route=route, routes=routes, store=store)
            )
            self.children.start(name, [self._server, "-c", str(configuration)])
        for number, name in enumerate(self._nodes):
            address = f"{HOST}:{self._ports[number][0]}"
            self.children.wait_until(name, lambda at=address: answers(at))  # type: ignore[misc]
        for name in self._nodes:
            self.children.wait_until(name, self._has_meta_leader)

    def _has_meta_leader(self) -> bool:
        said = "".join(self.children.log(name).read_text(errors="replace") for name in self._nodes)
        return "new metadata leader" in said
