"""The image of a node for testcontainers: `with TidelogContainer() as tidelog:`.

Needs `pip install 'tidelog[testcontainers]'` and a Docker engine with the image. One node, a cluster of one; its data
end with the container. Clients connect from outside, at the ports that Docker has chosen: the node starts once these
are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"tidelog.testing.containers needs {missing.name}: pip install 'tidelog[testcontainers]'", name=missing.name
    ) from missing

IMAGE: Final = "tidelog:dev"
"""As `make image` builds it."""
READY_S: Final = 60

_GRPC: Final = 9192
_KAFKA: Final = 9092
_CONFIG: Final = "/var/lib/tidelog/tidelog.toml"
_START: Final = f"while [ ! -s {_CONFIG} ]; do sleep 0.05; done; exec python -m node --config {_CONFIG}"


class TidelogContainer(DockerContainer):
    """A container with one node. settings: of the node, by the names of docs/configuration.md."""

    def __init__(self, image: str = IMAGE, *, settings: Mapping[str, object] | None = None, **options: Any) -> None:
        """options: as of DockerContainer."""
        super().__init__(image, **options)
        self._settings = dict(settings or {})
        self.with_exposed_ports(_GRPC, _KAFKA)
        self.with_kwargs(entrypoint=["sh", "-c", _START])

    def start(self) -> Self:
        """Start the container and wait until the node is ready. Raises TimeoutError."""
        super().start()
        self.copy_into_container(self._config().encode(), _CONFIG)
        LogMessageWaitStrategy("ready node=").with_startup_timeout(READY_S).wait_until_ready(self)
        return self

    @property
    def bootstrap(self) -> str:
        """For `tidelog.Producer`, `Consumer` and `Admin`."""
        return self._outside(_GRPC)

    @property
    def kafka_bootstrap(self) -> str:
        """For clients of Kafka."""
        return self._outside(_KAFKA)

    def _outside(self, port: int) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"

    def _config(self) -> str:
        values = {
            "node.id": 0,
            "log.dirs": ["/var/lib/tidelog/data"],
            # The node reaches itself at a listener of its own: inside, the addresses for clients mean something else.
            "listeners": [f"KAFKA://0.0.0.0:{_KAFKA}", f"GRPC://0.0.0.0:{_GRPC}", "INNER://127.0.0.1:9193"],
            "advertised.listeners": [f"KAFKA://{self.kafka_bootstrap}", f"GRPC://{self.bootstrap}"],
            "listener.security.protocol.map": ["INNER:GRPC"],
            "inter.broker.listener.name": "INNER",
            "allow.insecure": True,
            "cluster.bootstrap.node.id": 0,
            "controller.quorum.bootstrap.servers": ["127.0.0.1:9193"],
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
        }
        # Strings, numbers, booleans and lists of them have the same form in JSON and TOML.
        return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
