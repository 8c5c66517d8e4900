"""What netem does to the packets that a network namespace sends, where the kernel has NFQUEUE instead of netem.

A program in the namespace takes each packet from a queue of the kernel. What is late, changed or a copy leaves by a raw
socket whose mark skips the queue, and the packet itself is dropped: were it kept waiting in the queue, TCP would count
it as not sent yet, and send no more than two (a megabyte over 100 ms took 36 s, not 1). The kernel computes checksums
before the queue, and not again behind it. Packets larger than the device takes, which TCP has none of, are lost.
"""

from __future__ import annotations

import argparse
import heapq
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.nodes import Network

ROOT: Final = Path(__file__).resolve().parents[2]
QUEUE: Final = 7
MARK: Final = 7
RECEIVE_BUFFER: Final = 8 << 20

# linux/netlink.h, linux/netfilter/nfnetlink.h and nfnetlink_queue.h
_NETLINK_NETFILTER: Final = 12
_SOL_NETLINK: Final = 270
_NETLINK_NO_ENOBUFS: Final = 5
_SO_RCVBUFFORCE: Final = 33
_SO_MARK: Final = 36
_ACKNOWLEDGED_REQUEST: Final = 0x5
_REQUEST: Final = 0x1
_PACKET, _VERDICT, _CONFIG = (3 << 8 | message for message in (0, 1, 2))
_CFG_CMD, _CFG_PARAMS, _CFG_MASK, _CFG_FLAGS = 1, 2, 4, 5
_BIND: Final = 1
_COPY_PACKET: Final = 2
_FAIL_OPEN: Final = 1
_PACKET_HEADER, _VERDICT_HEADER, _PAYLOAD = 1, 2, 10
_DROP, _ACCEPT = 0, 1


class PacketFault:
    """Lasts from its making until `end`, and no longer than this process."""

    def __init__(self, pid: int, device: str, network: Network) -> None:
        """pid: of a process in the namespace. device: only what leaves there is touched."""
        self._inside = ["nsenter", "-t", str(pid), "-n"]
        self._rule = ["OUTPUT", "-o", device, "-m", "mark", "!", "--mark", str(MARK), "-j", "NFQUEUE"]
        self._rule += ["--queue-num", str(QUEUE), "--queue-bypass"]
        options = {
            "--delay-ms": network.delay_ms,
            "--reordered": network.reordered,
            "--duplicate": network.duplicate,
            "--corrupt": network.corrupt,
        }
        named = [part for name, value in options.items() for part in (name, str(value))]
        self._program = subprocess.Popen(
            [*self._inside, sys.executable, "-m", "tests.chaos.packets", *named],
            cwd=ROOT,
            stdin=subprocess.PIPE,  # never written: its end tells the program that this process has ended
            stdout=subprocess.PIPE,
        )
        assert self._program.stdout is not None
        try:
            # Before the queue has its program the kernel would let all packets pass.
            if self._program.stdout.readline().strip() != b"ready":
                raise RuntimeError(f"no packets can be taken from NFQUEUE in the network of process {pid}")
            subprocess.run([*self._inside, "iptables", "-w", "-I", *self._rule], check=True, capture_output=True)
        except BaseException:
            self._stop()
            raise

    def end(self) -> None:
        """The packets that are still late are lost."""
        # Fails where the namespace has ended with its processes.
        subprocess.run([*self._inside, "iptables", "-w", "-D", *self._rule], check=False, capture_output=True)
        self._stop()

    def _stop(self) -> None:
        self._program.kill()
        self._program.communicate()


def nfqueue_works() -> bool:
    """Whether the program can run here: in a namespace of its own, without packets, it ends with its input."""
    tried = 'iptables -A OUTPUT -j NFQUEUE --queue-bypass && exec "$0" -m tests.chaos.packets'
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", tried, sys.executable],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


class _Queue:
    """The packets of this process's network namespace, as the kernel hands them out."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self.socket.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self.socket.bind((0, 0))
        # Without the flag GSO: large packets arrive as the segments that the network gets, with their checksums.
        self._configure(_attribute(_CFG_CMD, struct.pack("!BxH", _BIND, socket.AF_INET)))
        flag = struct.pack("!I", _FAIL_OPEN)
        self._configure(
            _attribute(_CFG_PARAMS, struct.pack("!IB", 0xFFFF, _COPY_PACKET))
            + _attribute(_CFG_FLAGS, flag)
            + _attribute(_CFG_MASK, flag)
        )

    def _configure(self, attributes: bytes) -> None:
        self._send(_CONFIG, _ACKNOWLEDGED_REQUEST, attributes)
        (failure,) = struct.unpack_from("=16xi", self.socket.recv(1 << 17))
        if failure:
            raise OSError(-failure, f"the kernel refuses queue {QUEUE}: {os.strerror(-failure)}")

    def _send(self, kind: int, flags: int, attributes: bytes) -> None:
        family = struct.pack("!BBH", socket.AF_UNSPEC, 0, QUEUE)
        header = struct.pack("=IHHII", 16 + len(family) + len(attributes), kind, flags, 0, 0)
        self.socket.send(header + family + attributes)

    def take(self) -> tuple[int, bytes] | None:
        """The number of a packet, and the packet with its IP header."""
        message = self.socket.recv(1 << 17)
        length, kind = struct.unpack_from("=IH", message)
        if kind != _PACKET:
            return None
        found = dict(_attributes(message[20:length]))
        return struct.unpack("!I", found[_PACKET_HEADER][:4])[0], found[_PAYLOAD]

    def decide(self, number: int, verdict: int) -> None:
        self._send(_VERDICT, _REQUEST, _attribute(_VERDICT_HEADER, struct.pack("!II", verdict, number)))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(packed: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(packed):
        length, kind = struct.unpack_from("=HH", packed, at)
        yield kind & 0x3FFF, packed[at + 4 : at + length]
        at += length + -length % 4


def _flipped(packet: bytes, rng: Random) -> bytes:
    """With another bit behind the IP header: the checksum of TCP or UDP covers it."""
    header = (packet[0] & 0x0F) * 4
    changed = bytearray(packet)
    changed[rng.randrange(header, len(packet))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _fate(network: Network, packet: bytes, rng: Random) -> list[tuple[float, bytes]] | None:
    """What leaves in the place of a packet, after how many seconds; None: itself, at once."""
    if network.delay_ms and not rng.random() < network.reordered:
        return [(network.delay_ms / 1_000, packet)]
    if rng.random() < network.corrupt:
        return [(0, _flipped(packet, rng))]
    if rng.random() < network.duplicate:
        return [(0, packet), (0, packet)]
    return None


def _play(network: Network) -> None:
    """Until the standard input ends."""
    rng = Random()
    queue = _Queue()
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.SOL_SOCKET, _SO_MARK, MARK)
    print("ready", flush=True)
    late: list[tuple[float, int, bytes]] = []
    while True:
        wait_s = max(late[0][0] - time.monotonic(), 0) if late else None
        ready, _, _ = select.select([queue.socket, sys.stdin], [], [], wait_s)
        if sys.stdin in ready:
            return
        if queue.socket in ready and (taken := queue.take()) is not None:
            number, packet = taken
            instead = _fate(network, packet, rng)
            queue.decide(number, _ACCEPT if instead is None else _DROP)
            for delay_s, each in instead or ():
                heapq.heappush(late, (time.monotonic() + delay_s, number, each))
        while late and late[0][0] <= time.monotonic():
            _, _, packet = heapq.heappop(late)
            with suppress(OSError):  # a network loses what it cannot send
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0)
    for share in ("--reordered", "--duplicate", "--corrupt"):
        parser.add_argument(share, type=float, default=0)
    _play(Network(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
