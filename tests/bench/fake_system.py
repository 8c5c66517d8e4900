"""A system and its clients for tests of the benchmark's frame."""

from __future__ import annotations


class FakeSystem:
    """A system without processes."""

    durability = "page cache"
    partitions_max = 1_000

    def __init__(self, name: str, client: str = "client") -> None:
        self.name, self.clients, self.version = name, (client,), "1"

    @property
    def topics_by(self) -> str:
        return self.clients[0]

    def bootstrap_of(self, kind: str) -> str:
        return f"{self.name}:1"

    def label(self, client: str = "") -> str:
        return f"{self.name}, {client or self.clients[0]}, {self.durability}"


class FakeClients:
    def end(self) -> None:
        pass
