"""How one sees that a fault has begun: a check for each, which fails on nodes without it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.chaos.faults.damage import OF_TOPICS
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band
from tidelog import Admin, Consumer, Producer
from tidelog.errors import DeliveryTimedOut, DiskFull, NotLeaderOrFollower, TidelogError

NOTICED_S: Final = 90.0
TOPIC: Final = "ledger"
"""Every node has its partitions and leads some; its records are synced before they are acknowledged, and the leader
stamps them."""
LARGE: Final = 150_000
"""The bytes of a record that takes long on a narrow link."""


class Observer:
    """Looks at nodes while a fault lasts."""

    def __init__(self, nodes: Nodes, band: Band) -> None:
        self.nodes, self.band = nodes, band
        self.node = band.nodes[0]
        self.what = ""
        """What the fault says it has done."""
        self.files = self._digests()
        self.pids = self._pids()
        self.programs = self._programs()

    # --- files ---

    def _digests(self) -> dict[Path, str]:
        paths = [path for topic in OF_TOPICS for path in self.nodes.data(self.node).glob(f"{topic}/*")]
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}

    def changed_files(self) -> list[Path]:
        after = self._digests()
        return [path for path, digest in self.files.items() if after.get(path) != digest]

    # --- processes ---

    def _pids(self) -> list[int]:
        return [self.nodes.pid(node) for node in range(self.nodes.count)]

    def has_new_processes(self) -> bool:
        return not set(self._pids()) & set(self.pids)

    def _programs(self) -> list[str]:
        """What each process was started as."""
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self._pids()]
        return [command.split(b"\0")[0].decode() for command in commands]

    def runs_another_version(self) -> bool:
        """Whether another Python runs in the place of each, with what is installed for it."""
        return not set(self._programs()) & set(self.programs)

    def stopped_share(self) -> float:
        """Of a second: in how much of it the process is stopped by a signal."""
        path, states = Path(f"/proc/{self.nodes.pid(self.node)}/stat"), []
        for _ in range(100):
            states.append(path.read_text().rpartition(")")[2].split()[0])
            time.sleep(0.01)
        return states.count("T") / len(states)

    # --- records ---

    def send(self, topic: str, size: int = 10, *, timeout_ms: int = 30_000) -> float:
        """Send a record to a partition that the node leads. Returns the seconds until the acknowledgement."""
        return asyncio.run(self._send(topic, size, timeout_ms))

    async def _send(self, topic: str, size: int, timeout_ms: int) -> float:
        async with Producer(self.nodes.addresses.bootstrap, delivery_timeout_ms=timeout_ms) as producer:
            await producer.partitions(topic)
            begun = time.monotonic()
            await producer.send(topic, os.urandom(size), partition=self.led(topic))
            return time.monotonic() - begun

    def take_leaderships(self) -> None:
        """Wait until the node leads the partitions whose first replica it is: an earlier fault has moved them."""

        def leads() -> bool:
            asyncio.run(self._elect())
            return self.node in self.nodes.leaders(TOPIC).values()

        self.comes(leads, f"node {self.node} leads a partition")

    async def _elect(self) -> None:
        async with Admin(self.nodes.addresses.bootstrap) as admin:
            await admin.elect_leaders()

    def led(self, topic: str) -> int:
        """A partition that the node leads. Raises NotLeaderOrFollower."""
        led = [partition for partition, leader in self.nodes.leaders(topic).items() if leader == self.node]
        if not led:
            raise NotLeaderOrFollower(f"node {self.node} leads no partition of {topic}")
        return led[0]

    def refusal(self, topic: str) -> BaseException | None:
        """The cause for which a record is not acknowledged."""
        try:
            self.send(topic, timeout_ms=1_500)
        except DeliveryTimedOut as failure:
            return failure.__cause__
        except TidelogError as failure:
            return failure
        return None

    def seconds_ahead(self) -> float:
        """Of the wall clock by which the node stamps what it appends."""
        return asyncio.run(self._stamp()) / 1_000 - time.time()

    async def _stamp(self) -> int:
        partition = self.led(TOPIC)
        bootstrap = self.nodes.addresses.bootstrap
        async with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
            sent = await producer.send(TOPIC, b"now", partition=partition)
            consumer.assign([(TOPIC, partition)])
            await consumer.seek((TOPIC, partition), sent.offset)
            while not (records := await consumer.poll()):
                pass
            assert records[-1].timestamp is not None
            return int(records[-1].timestamp)

    def drifts(self) -> bool:
        """Whether that clock gets further and further from the right time."""
        first = abs(self.seconds_ahead())
        return self.comes(lambda: abs(self.seconds_ahead()) > first + 1, f"the clock of node {self.node} drifts")

    # --- waiting ---

    def comes(self, reached: Callable[[], object], what: str) -> bool:
        self.nodes.wait_until(reached, NOTICED_S, what)
        return True

    def is_fenced(self) -> bool:
        """Whether another node knows that this one is fenced."""
        other = next(each for each in range(self.nodes.count) if each not in self.band.nodes)
        return self.comes(lambda: self.node not in self.nodes.unfenced(other), f"node {self.node} is fenced")

    def is_fenced_or_elects(self) -> bool:
        """Whether the controller, its peer, no longer hears it: the node is fenced, or makes itself be elected by the
        third node."""
        _, peer = self.band.nodes
        return self.comes(
            lambda: self.node not in self.nodes.unfenced(peer) or self.nodes.controller() != peer,
            f"nodes {self.node} and {peer} do not see each other",
        )

    def ends_by_writing(self) -> bool:
        """Whether the node ends once it must write."""

        def ended() -> bool:
            with suppress(TidelogError):
                self.send(TOPIC, timeout_ms=500)
            return not self.nodes.is_running(self.node)

        return self.comes(ended, f"node {self.node} ends")


def _do_not_run(look: Observer) -> bool:
    return not any(look.nodes.is_running(node) for node in look.band.nodes)


def _delay_s(look: Observer) -> float:
    return float(look.what.split(" ms")[0]) / 1_000


def _is_narrow(look: Observer) -> bool:
    bytes_per_s = float(look.what.split(" kB/s")[0]) * 1_000
    return look.send(TOPIC, LARGE, timeout_ms=60_000) > LARGE / bytes_per_s * 0.9


def _memory_is_limited(look: Observer) -> bool:
    limit, _ = resource.prlimit(look.nodes.pid(look.node), resource.RLIMIT_AS)
    pages = int(Path(f"/proc/{look.nodes.pid(look.node)}/statm").read_text().split()[0])
    return 0 < limit < pages * resource.getpagesize() + (8 << 20)


BITES: Final[Mapping[str, Callable[[Observer], bool]]] = {
    "kill": _do_not_run,
    "kill-two": _do_not_run,
    "kill-all": _do_not_run,
    "terminate": _do_not_run,
    "pause": lambda look: not look.nodes.is_ready(look.node),
    "rolling-restart": lambda look: look.has_new_processes(),
    "isolate": Observer.is_fenced,
    "isolate-pair": Observer.is_fenced_or_elects,
    "isolate-one-way": Observer.is_fenced,
    "delay": lambda look: look.send(TOPIC) > _delay_s(look),
    "narrow": _is_narrow,
    "full-disk": lambda look: look.comes(lambda: isinstance(look.refusal(TOPIC), DiskFull), "writes are refused"),
    "slow-disk": lambda look: look.send(TOPIC) > _delay_s(look),
    "read-only-disk": Observer.ends_by_writing,
    "broken-disk": Observer.ends_by_writing,
    "wipe": lambda look: not list(look.nodes.data(look.node).iterdir()),
    "flip-bit": lambda look: len(look.changed_files()) == 1,
    "truncate-file": lambda look: len(look.changed_files()) == 1,
    "starve": lambda look: look.stopped_share() > 0.5,
    "memory": _memory_is_limited,
    "clock": lambda look: abs(look.seconds_ahead()) > 1,
    "drift": Observer.drifts,
    "expired-certificate": Observer.is_fenced,
    "rolling-upgrade": Observer.runs_another_version,
}
