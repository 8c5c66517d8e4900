"""Forks of a program that uses the client, as PySpark starts its JVM and a pool its processes; many event loops."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.client.memory_cluster import cluster_in_a_thread

STARTS_PROGRAMS_BESIDE_CALLS = """
import os, signal, subprocess, threading
from concurrent import futures

import tidelog
import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/echo/echo")


def keep_calling():
    while True:
        call(b"x", timeout=30)


for _ in range(2):
    threading.Thread(target=keep_calling, daemon=True).start()


def as_pyspark_does():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


ends = [subprocess.run(["true"], preexec_fn=as_pyspark_does, stderr=subprocess.DEVNULL).returncode for _ in range(200)]
print(sum(end != 0 for end in ends), "of", len(ends), "failed", flush=True)
os._exit(0)
"""


def test_a_forked_program_beside_an_active_client_does_not_abort() -> None:
    """With gRPC's fork handlers some 4 % of the children ended by SIGABRT before they became the other program."""
    command = [sys.executable, "-c", STARTS_PROGRAMS_BESIDE_CALLS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split("\n")[0] == "0 of 200 failed", run.stdout


FORKS = """
import asyncio, concurrent.futures, multiprocessing, sys
import tidelog.sync

bootstrap, kept = sys.argv[1], []


def own_clients(_):
    with tidelog.sync.Producer(bootstrap) as producer:
        return producer.send("orders", b"of the child").topic


def in_child(work, argument=None):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(work, argument).result(timeout=30)
        except tidelog.TidelogError as error:
            return f"{type(error).__name__}: {error}"


def tell(*of_child):
    print(*of_child, sep="|", flush=True)


tell(in_child(own_clients))
with tidelog.sync.Producer(bootstrap) as first:
    first.send("orders", b"of the parent")
    tell(in_child(own_clients))
tell(in_child(own_clients))  # `first` is closed, and still referenced

with tidelog.sync.Producer(bootstrap) as producer, tidelog.sync.Consumer(bootstrap) as consumer:
    producer.send("orders", b"of the parent")
    consumer.assign([("orders", 0)])

    def send(_):
        producer.send("orders", b"of the child")

    def poll(_):
        consumer.poll()

    def close(_):
        producer.close(), consumer.close()
        return "closed"

    for use in (send, poll, close):
        tell(in_child(use))


async def with_asyncio():
    global asynchronous
    async with tidelog.Producer(bootstrap) as asynchronous:
        await asynchronous.send("orders", b"of the parent")
        in_thread = asyncio.get_running_loop().run_in_executor
        for use in (asynchronous_send, asynchronous_flush, asynchronous_close):
            tell(await in_thread(None, in_child, use))
        await asynchronous.send("orders", b"of the parent")


def asynchronous_send(_):
    asyncio.run(asynchronous.send("orders", b"of the child"))


def asynchronous_flush(_):
    asyncio.run(asynchronous.flush())


def asynchronous_close(_):
    asyncio.run(asynchronous.close())
    return "closed"


asyncio.run(with_asyncio())
"""


def test_a_forked_child_uses_its_own_clients_or_learns_at_once_that_it_cannot() -> None:
    """Its own clients had no answer while one of the parent was open, or closed and not yet collected; those of the
    parent never returned in it."""
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        command = [sys.executable, "-c", FORKS, cluster.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    fresh, beside_open, beside_closed, *of_parents = run.stdout.splitlines()
    assert fresh == beside_closed == "orders"
    assert re.match(r"UsedAfterFork: process \d+ was forked .*'spawn' or 'forkserver'", beside_open)
    belongs = "UsedAfterFork: this {} belongs to the process that made it"
    starts = [belongs.format("producer"), belongs.format("consumer"), "closed"]
    starts += [belongs.format("producer")] * 2 + ["closed"]
    assert [told for told, start in zip(of_parents, starts, strict=True) if not told.startswith(start)] == []


FORKS_AFTER_CLOSING = """
import os, sys
import tidelog.sync

for _ in range(20):
    with tidelog.sync.Producer(sys.argv[1]) as producer:
        producer.send("orders", b"of the parent")
    child = os.fork()
    if child == 0:
        with tidelog.sync.Producer(sys.argv[1]) as producer:
            producer.send("orders", b"of the child")
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_grpcs_threads_have_ended_when_a_child_is_forked_after_the_last_client() -> None:
    """gRPC ends its threads beside the program, some milliseconds after the last client. Children that were forked
    meanwhile were aborted, or waited for ever, one in a hundred."""
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        command = [sys.executable, "-c", FORKS_AFTER_CLOSING, cluster.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == ["0"] * 20


LOOPS = """
import asyncio, sys
import tidelog, tidelog.sync


async def read():
    async with tidelog.Consumer(sys.argv[1]) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)], start="latest")
        await consumer.poll(timeout=0.01)


with tidelog.sync.Producer(sys.argv[1]) as producer:  # its loop is told of the others' late events
    for _ in range(20):
        asyncio.run(read())
        producer.send("orders", b"another event for its loop")
"""


def test_many_event_loops_in_turn_leave_no_events_behind() -> None:
    """gRPC has one queue of events for all loops: those of cancelled calls arrived when their loop was closed, and each
    was logged as an error of another loop, with a traceback."""
    with cluster_in_a_thread() as cluster:
        cluster.create("orders", partitions=2)
        command = [sys.executable, "-c", LOOPS, cluster.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert run.stderr == ""
