"""The raw limits of the machine: the same bytes through a bare gRPC stream, and to a bare disk.

They are baselines for figures of a cluster, measured in the same run. A bare stream is grpc.aio between two processes:
bytes in and bytes out, nothing parsed or stored; `python -m bench.raw_limits` is its other end. Bytes are counted once,
however many copies are made.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import psutil

from tidelog.protocol.grpc_transport import MESSAGE_BYTES_MAX

COPIES: Final = 3
"""A batch crosses the network three times on its way to three replicas: to the leader, and to each follower."""

_SINK: Final = "/raw/Sink"
_ECHO: Final = "/raw/Echo"
_SOURCE: Final = "/raw/Source"
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
]


class Rate(NamedTuple):
    """Bytes per second, and the processor time of both processes."""

    megabytes_per_second: float
    cpu_ms_per_megabyte: float


class _Handler(grpc.GenericRpcHandler):
    """Sink answers each message with one byte, Echo with the message; Source sends the requested number of messages
    of the requested size."""

    def service(self, handler_call_details: Any) -> Any:
        serve = {_SINK: self._sink, _ECHO: self._echo, _SOURCE: self._source}[handler_call_details.method]
        return grpc.stream_stream_rpc_method_handler(serve)

    @staticmethod
    async def _sink(_: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(b"x")

    @staticmethod
    async def _echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    @staticmethod
    async def _source(_: Any, context: Any) -> None:
        count, size = (int(number) for number in (await context.read()).split())
        message = os.urandom(size)
        for _ in range(count):
            await context.write(message)


class Peer:
    """The other end of a bare stream, in its own process."""

    def __init__(self, target: str, pid: int) -> None:
        self._target = target
        self._processes = [psutil.Process(), psutil.Process(pid)]

    async def send(self, batch: bytes, count: int) -> Rate:
        """Send a batch `count` times, each time `COPIES` copies, as if to a leader and two followers."""
        async with grpc.aio.insecure_channel(self._target, options=_OPTIONS) as channel:
            stream: Any = channel.stream_stream(_SINK)()
            await self._write_and_read(stream, batch, 3 * COPIES)
            began, used = time.perf_counter(), self._cpu()
            await self._write_and_read(stream, batch, count * COPIES)
            return self._rate(count * len(batch), began, used)

    async def fetch(self, size: int, count: int) -> Rate:
        """Receive `count` messages of `size` bytes, once each."""
        async with grpc.aio.insecure_channel(self._target, options=_OPTIONS) as channel:
            stream: Any = channel.stream_stream(_SOURCE)()
            began, used = time.perf_counter(), self._cpu()
            await stream.write(b"%d %d" % (count, size))
            for _ in range(count):
                await stream.read()
            return self._rate(count * size, began, used)

    async def round_trips(self, message: bytes, count: int) -> list[float]:
        """Milliseconds of each of `count` round trips, one after the other."""
        async with grpc.aio.insecure_channel(self._target, options=_OPTIONS) as channel:
            stream: Any = channel.stream_stream(_ECHO)()
            found = []
            for _ in range(count):
                began = time.perf_counter()
                await stream.write(message)
                await stream.read()
                found.append((time.perf_counter() - began) * 1000)
            return found

    @staticmethod
    async def _write_and_read(stream: Any, batch: bytes, count: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_read(stream, count))
            for _ in range(count):
                await stream.write(batch)

    def _cpu(self) -> float:
        return sum(cpu_seconds(process) for process in self._processes)

    def _rate(self, size: int, began: float, used: float) -> Rate:
        took = time.perf_counter() - began
        return Rate(size / took / 1e6, (self._cpu() - used) * 1000 / (size / 1e6))


async def _read(stream: Any, count: int) -> None:
    for _ in range(count):
        await stream.read()


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has used so far."""
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def peer() -> Iterator[Peer]:
    """Start the other end; it ends with the block, or with this process."""
    command = [sys.executable, "-m", "bench.raw_limits"]
    home = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Peer(f"127.0.0.1:{int(process.stdout.readline())}", process.pid)
        finally:
            process.stdin.close()
            process.wait(10)


async def _serve() -> None:
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    await server.stop(0)


# --- the disk -----------------------------------------------------------------------------------------------------


def write_and_sync(directory: Path, batch: bytes, seconds: float) -> float:
    """MB/s of a batch repeatedly written and fdatasynced to `COPIES` files in parallel."""
    counts = [0] * COPIES
    deadline = time.perf_counter() + seconds

    def write(number: int) -> None:
        with (directory / f"raw-{number}").open("wb", buffering=0) as file:
            while time.perf_counter() < deadline:
                file.write(batch)
                os.fdatasync(file.fileno())
                counts[number] += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(COPIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for number in range(COPIES):
        (directory / f"raw-{number}").unlink()
    return min(counts) * len(batch) / took / 1e6


def sync_times(directory: Path, record: bytes, count: int) -> list[float]:
    """Milliseconds of each of `count` appends of a record to a file, each with an fdatasync."""
    found = []
    path = directory / "raw-latency"
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(record)
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - began) * 1000)
    path.unlink()
    return found


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
