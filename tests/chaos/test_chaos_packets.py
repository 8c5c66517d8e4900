"""What NFQUEUE plays in the place of netem bites, and ends: two network namespaces that a pair of devices connects."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.chaos.faults.links import described
from tests.chaos.nodes import Network
from tests.chaos.packets import ROOT, PacketFault, nfqueue_works

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
PORT = 7_000
PACKETS = 300
REPEATED = 250
"""A number of four bytes, in each packet."""
BYTES = 300_000
ROOM = 8 << 20
SO_RCVBUFFORCE = 33
FIRST_COMES_S = 5
NOTHING_COMES_S = 0.5
TCP_S = 30
CLONE_NEWNET = 0x40000000
BEGIN = """
import sys
from tests.chaos.packets import Network, PacketFault
fault = PacketFault(int(sys.argv[1]), "v0", Network(delay_ms=400))
print("begun", flush=True)
sys.stdin.read()
"""


class Pair:
    """Two namespaces, each with a process in it. What the first one sends arrives in the second one."""

    def __init__(self, ended: ExitStack) -> None:
        self.sender, self.receiver = (self._namespace(ended) for _ in range(2))
        self._run(
            "ip",
            "link",
            "add",
            "v0",
            "netns",
            str(self.sender),
            "type",
            "veth",
            "peer",
            "v0",
            "netns",
            str(self.receiver),
        )
        for pid, address in ((self.sender, SENDER), (self.receiver, RECEIVER)):
            for command in (f"address add {address}/24 dev v0", "link set v0 up"):
                self._run("nsenter", "-t", str(pid), "-n", "ip", *command.split())

    @staticmethod
    def _namespace(ended: ExitStack) -> int:
        process = ended.enter_context(
            subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=PIPE, stdout=PIPE)
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def bad_checksums(self, protocol: str) -> int:
        """Of what has arrived in the second namespace."""
        lines = Path(f"/proc/{self.receiver}/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith(f"{protocol}:"))
        return int(dict(zip(names, values, strict=True))["InCsumErrors"])


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Sockets that are made here belong to the namespace of the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{pid}/ns/net").open() as other:
        assert libc.setns(other.fileno(), CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(own.fileno(), CLONE_NEWNET) == 0


@contextmanager
def pairs() -> Iterator[Pair]:
    if os.geteuid() != 0 or not nfqueue_works():
        pytest.skip("only root takes packets of a namespace, from a kernel with NFQUEUE")
    with ExitStack() as ended:
        yield Pair(ended)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with pairs() as made:
        yield made


@contextmanager
def faulty(pair: Pair, network: Network) -> Iterator[None]:
    fault = PacketFault(pair.sender, "v0", network)
    try:
        yield
    finally:
        fault.end()


def arrived(pair: Pair) -> tuple[list[int], float]:
    """The numbers of packets of UDP in the order in which they came, each intact, and the seconds until the first."""
    with inside(pair.receiver):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(pair.sender):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    came: list[int] = []
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
        receiver.bind((RECEIVER, PORT))
        receiver.settimeout(FIRST_COMES_S)
        first_s = 0.0
        begun = time.monotonic()
        for number in range(PACKETS):
            sender.sendto(number.to_bytes(4) * REPEATED, (RECEIVER, PORT))
        with suppress(TimeoutError):
            while True:
                payload = receiver.recv(1 << 16)
                first_s = first_s or time.monotonic() - begun
                receiver.settimeout(NOTHING_COMES_S)
                came.append(int.from_bytes(payload[:4]))
                assert payload == came[-1].to_bytes(4) * REPEATED
    return came, first_s


def received_by_tcp(pair: Pair, data: bytes) -> bytes:
    with inside(pair.receiver):
        listener = socket.create_server((RECEIVER, PORT))
    with inside(pair.sender):
        sender = socket.socket()
    with listener, ThreadPoolExecutor(1) as other, sender:
        listener.settimeout(TCP_S)
        sender.settimeout(TCP_S)
        sender.connect((RECEIVER, PORT))
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file:
            read = other.submit(file.read)
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            return read.result()


def test_delayed_packets_come_in_their_order_and_late_until_the_fault_ends(pair: Pair) -> None:
    with faulty(pair, Network(delay_ms=400)):
        came, first_s = arrived(pair)
    assert came == [*range(PACKETS)]
    assert first_s >= 0.4
    came, first_s = arrived(pair)
    assert came == [*range(PACKETS)]
    assert first_s < 0.4


def test_reordered_packets_all_come_once(pair: Pair) -> None:
    with faulty(pair, Network(delay_ms=20, reordered=0.1)):
        came, _ = arrived(pair)
    assert came != [*range(PACKETS)]
    assert sorted(came) == [*range(PACKETS)]


def test_duplicate_packets_come_twice(pair: Pair) -> None:
    with faulty(pair, Network(duplicate=0.1)):
        came, _ = arrived(pair)
    assert set(came) == {*range(PACKETS)}
    assert PACKETS < len(came) < PACKETS * 1.5
    assert max(Counter(came).values()) == 2


def test_corrupt_packets_are_dropped_for_their_checksums(pair: Pair) -> None:
    before = pair.bad_checksums("Udp")
    with faulty(pair, Network(corrupt=0.1)):
        came, _ = arrived(pair)
    assert PACKETS * 0.5 < len(came) < PACKETS
    # Fewer than are missing, where the length of a packet was changed.
    assert 0 < pair.bad_checksums("Udp") - before <= PACKETS - len(came)


@pytest.mark.parametrize(
    "network",
    [Network(delay_ms=50), Network(delay_ms=20, reordered=0.1), Network(duplicate=0.1), Network(corrupt=0.1)],
    ids=described,
)
def test_tcp_gets_everything_across(pair: Pair, network: Network) -> None:
    """Large writes leave as packets that a device would cut, and their checksums with them."""
    before = pair.bad_checksums("Tcp")
    data = os.urandom(BYTES)
    with faulty(pair, network):
        assert received_by_tcp(pair, data) == data
    assert (pair.bad_checksums("Tcp") > before) == (network.corrupt > 0)


def test_a_fault_ends_with_the_process_that_began_it() -> None:
    """A run that is killed leaves the rule behind: without its program the kernel lets the packets pass."""
    with pairs() as own:
        run = [sys.executable, "-c", BEGIN, str(own.sender)]
        with subprocess.Popen(run, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            assert arrived(own)[1] >= 0.4
            process.kill()
            process.communicate()  # its standard error ends with the program, which has inherited it
            came, first_s = arrived(own)
    assert came == [*range(PACKETS)]
    assert first_s < 0.4
