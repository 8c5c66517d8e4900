"""Hostile requests for every RPC, made from the protobuf descriptors: each field at its extremes, real ids beside
made-up ones, bytes that are flipped, cut or doubled, and streams that end in the middle.

    python -m tests.fuzz.requests --count 5000 --nodes 3 --seed 7
    python -m tests.fuzz.requests --seconds 3600
    python -m tests.fuzz.requests --count 100000 --refused
    python -m tests.fuzz.requests --seconds 3600 --as passwords

A finding is a request that is answered INTERNAL (a defect of the node), that ends a node, or that leaves something
behind: the process must not grow from round to round. After each round the cluster must take records and give them
back, after all of them also elect. With `--refused` the requests go to a listener whose authorizer refuses every
request: then nothing at all may change. With `--as` they come over TLS from clients with certificates or passwords, one
without any permission and one with permission for a single topic (callers.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from node.api.table import APIS
from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from testbed.topic_requests import changed, creating, deleting
from tests.fuzz.callers import GROUP, TRANSACTIONAL_ID, WAYS, Caller, Protected, protected
from tests.fuzz.footprint import Footprint, footprint
from tests.fuzz.mutator import mutated
from tests.fuzz.refused import everything, refusing_listener
from tests.node.message_services import enveloped
from tests.node.real_coordinators import make_internal_topics
from tests.node.real_nodes import CALL_MS, OPERATOR, RealNodes, real_nodes
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.rpc import CallKind, Method
from tidelog.protocol.v1 import admin_pb2, data_pb2, quorum_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.security.tls_files import Tls
from tidelog.types import INTERNAL_TOPICS, Endpoint, Millis, NodeId, Offset

ANSWER_S: Final = 5.0
"""A request that waits for something gets no answer before that; it is given up then."""

ROUND: Final = 5_000
"""Requests between two looks at the cluster."""

AT_ONCE: Final = 16
"""Requests under way at once."""

PLAUSIBLE: Final = 0.8
"""So often a field is given what it holds in the cluster, where that is known."""

DEPTH_MAX: Final = 4
"""Messages within messages are made so deep."""

INT32: Final = (0, 1, -1, 2, 7, 99, 300, 65_536, 2**31 - 1, 2**31 - 2, -(2**31), 2**31 - 2**16)
"""A topic with the largest number below the limit of partitions must be served within the limit of `must_serve`: three
nodes in one process need a minute for a thousand on a busy machine."""
INT64: Final = (*INT32, 2**31, 2**32, 2**63 - 1, 2**63 - 2, -(2**63), 1_700_000_000_000)
TEXTS: Final = (
    "",
    "orders",
    "0",
    "__cluster_metadata",
    "__consumer_offsets",
    "../..",
    "a" * 300,
    "ä\x00\n",
    "unclean.leader.election.enable",
)
BLOBS: Final = (b"", b"\x00", b"\x00" * 16, b"\xff" * 16, b"\x01" * 17, bytes(range(200)))

UNEXPLAINED: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""What gRPC answers if a handler ended with an exception, and the node if it knows of a defect."""

OWN_SIDE: Final = "Internal error from Core"
"""What gRPC reports with INTERNAL on this side, if the stream ended while this side began to read or write."""

FEW_PARTITIONS: Final = CoordinatorSettings(GroupSettings(partitions=5), TransactionSettings(partitions=5))
"""Of the internal topics, so that requests meet the coordinators of others."""

FEW: Final[tuple[Method[Any, Any], ...]] = (
    methods.ADMIN_CREATE_TOPICS,
    methods.ADMIN_DELETE_TOPICS,
)
"""Where they succeed, the others meet many files, or no topic any more: three of each are sent, the deletions last."""

FORWARDED: Final = tuple(method for method in methods.ALL if APIS[str(method)].is_forwarded)
"""What an envelope contains."""


class Maker:
    """Makes requests at random; what it knows of the cluster makes them plausible."""

    def __init__(self, rng: Random, known: Mapping[str, Sequence[Any]]) -> None:
        """known: what fields of these names hold in this cluster; most of the time they are given that."""
        self._rng, self._known = rng, known

    def bytes_of(self, method: Method[Any, Any]) -> bytes:
        """One request: a message of its kind, sometimes with bytes that make it none."""
        kind = _message_of(method)
        message = self.message(kind)
        if method is methods.CONTROLLER_ENVELOPE and self._rng.random() < PLAUSIBLE:
            forwarded = self._rng.choice([each for each in FORWARDED if each not in FEW])
            message = enveloped(forwarded, self.message(_message_of(forwarded)), "User:fuzz")
        data: bytes = message.SerializeToString()
        if self._rng.random() < 0.25:
            data = mutated(self._rng, [data, self.message(kind).SerializeToString()])
        return data

    def message(self, kind: type[Message], depth: int = 0) -> Any:
        """A message with each of its fields absent, plausible or extreme."""
        made: Any = kind()
        for field in made.DESCRIPTOR.fields:
            if depth >= DEPTH_MAX or self._rng.random() < 0.15:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                entries = getattr(made, field.name)
                for _ in range(self._rng.choice((0, 1, 3))):
                    entries[self._rng.choice(TEXTS)] = self._rng.choice(TEXTS)
            elif field.is_repeated:
                for _ in range(self._rng.choice((0, 1, 1, 2, 30))):
                    self._add(made, field, depth)
            elif field.message_type is not None:
                getattr(made, field.name).CopyFrom(self._message_in(made, field, depth))
            else:
                setattr(made, field.name, self._value(field))
        return made

    def _add(self, made: Message, field: Any, depth: int) -> None:
        items = getattr(made, field.name)
        if field.message_type is not None:
            items.add().CopyFrom(self._message_in(made, field, depth))
        else:
            items.append(self._value(field))

    def _message_in(self, made: Message, field: Any, depth: int) -> Any:
        known = self._known.get(field.name)
        kind = _class_of(made, field)
        if known and isinstance(known[0], kind) and self._rng.random() < PLAUSIBLE:
            return self._rng.choice(known)
        return self.message(kind, depth + 1)

    def _value(self, field: Any) -> object:
        rng = self._rng
        known = self._known.get(field.name, ())
        if known and not isinstance(known[0], Message) and rng.random() < PLAUSIBLE:
            return rng.choice(known)
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return rng.random() < 0.5
            case FieldDescriptor.CPPTYPE_STRING:
                return rng.choice(TEXTS if field.type == FieldDescriptor.TYPE_STRING else BLOBS)
            case FieldDescriptor.CPPTYPE_ENUM:
                return rng.choice([value.number for value in field.enum_type.values] + [2**31 - 1, -1])
            case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_UINT32:
                return self._number(field, INT32, 32)
            case _:
                return self._number(field, INT64, 64)

    def _number(self, field: Any, extremes: Sequence[int], bits: int) -> int:
        number = self._rng.choice(extremes)
        if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
            return number % (1 << bits)
        return max(-(1 << (bits - 1)), min(number, (1 << (bits - 1)) - 1))


def _message_of(method: Method[Any, Any]) -> type[Message]:
    """The request's message; of one that is a value, protobuf's."""
    request = method.request
    found = data_pb2.ProduceRequest if request is ProduceRequest else request
    assert issubclass(found, Message)
    return found


def _class_of(made: Message, field: Any) -> type[Message]:
    found = getattr(made, field.name)
    kind = type(found.add()) if field.is_repeated else type(found)
    if field.is_repeated:
        del found[-1]
    return kind


class Assault:
    """Sends made-up requests to the nodes of a cluster."""

    def __init__(self, nodes: RealNodes, rng: Random, callers: Sequence[Caller]) -> None:
        """callers: as whom to send, and where to."""
        self._nodes, self._rng, self.callers = nodes, rng, callers
        self._channels: dict[tuple[Endpoint, Tls | None], grpc.aio.Channel] = {}
        """A caller with another session uses the same connections."""
        self.sent = 0
        self.refused: Counter[str] = Counter()
        """Requests that ended with an error, by gRPC's status."""
        self.unexplained: list[str] = []

    async def send(self, count: int) -> None:
        """So many requests, spread over all RPCs and nodes."""
        maker = Maker(self._rng, await self._known())
        slots = asyncio.Semaphore(AT_ONCE)
        plan: list[Method[Any, Any]] = [method for method in methods.ALL if method not in FEW] * (
            count // (len(methods.ALL) - len(FEW)) + 1
        )
        plan = [*plan, *FEW[:1] * 3][: count - 3]
        self._rng.shuffle(plan)
        plan += FEW[1:] * 3
        async with asyncio.TaskGroup() as sending:
            for method in plan:
                await slots.acquire()
                caller = self._rng.choice(self.callers)
                pieces = [maker.bytes_of(method) for _ in range(1 if method.kind is CallKind.UNARY else 4)]
                task = sending.create_task(self._one(method, caller, pieces, ends=self._rng.random() < 0.5))
                task.add_done_callback(lambda _: slots.release())
                self.sent += 1
                self._nodes.ensure_running()

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _known(self) -> dict[str, list[Any]]:
        """Values that exist in this cluster, by the names of fields."""
        ask = quorum_pb2.IntroduceRequest()
        who = [await self._nodes.call(node, methods.QUORUM_INTRODUCE, ask) for node in self._nodes.nodes]
        every = admin_pb2.GetMetadataRequest(all_topics=True)
        reported = await as_operator(self._nodes, 0, methods.ADMIN_GET_METADATA, every)
        names = [topic.name for topic in reported.topics if topic.name not in INTERNAL_TOPICS]
        assert names, "most requests name a real topic"
        images = [found.node.image for found in self._nodes.nodes.values()]
        entries = [entry for image in images if image is not None for entry in image.nodes.values()]
        offsets = [int(image.offset) for image in images if image is not None]
        keys = [quorum_pb2.ReplicaKey(node_id=each.node_id, directory_id=each.directory_id) for each in who]
        by_value: list[tuple[str, list[Any]]] = [
            ("receiver voter candidate replica successors", keys),
            ("node_id leader_id partition replicas", [each.node_id for each in who]),
            ("epoch leader_epoch current_leader_epoch last_fetched_epoch partition_epoch", [-1, 0, 1, 2]),
            ("fetch_offset durable_offset metadata_offset end_offset log_end", [0, *offsets]),
            ("name topic topics names", names),
            ("group_id group_ids", [GROUP, "others"]),
            ("transactional_id transactional_ids", [TRANSACTIONAL_ID, "others"]),
            ("producer_id producer_ids", [0, 1, 2, 1_000]),
            ("member_epoch", [-2, -1, 0, 1, 2]),
        ]
        return {
            **{name: values for names, values in by_value for name in names.split()},
            "directory_id": [each.directory_id for each in who],
            "cluster_id": [who[0].cluster_id],
            "topic_id": [topic.topic_id for topic in reported.topics],
            "incarnation": [entry.incarnation.bytes for entry in entries],
            "node_epoch": [int(entry.node_epoch) for entry in entries],
            "records": [batch(b"fuzz"), batch(b"")],
            "max_bytes": [1 << 20],
            "acks": [-1, 0, 1],
            "keys": [GROUP, TRANSACTIONAL_ID],
            "member_id": ["", "a", "b"],
            "subscribed_topic_regex": ["ord.*", "(", ""],
            "server_assignor": ["uniform", "range"],
            "rebalance_timeout_ms": [-1, 1_000, 300_000],
            "transaction_timeout_ms": [60_000],
            "producer_epoch": [-1, 0, 1],
            "transaction_version": [1, 2],
        }

    async def _one(self, method: Method[Any, Any], caller: Caller, pieces: list[bytes], *, ends: bool) -> None:
        channel = self._channels.get((caller.at, caller.tls))
        if channel is None:
            channel = self._channels[caller.at, caller.tls] = caller.channel()
        with contextlib.suppress(grpc.aio.BaseError, TimeoutError, asyncio.InvalidStateError):
            try:
                if method.kind is CallKind.UNARY:
                    unary: Any = channel.unary_unary(method.path)
                    caller.answered(method, pieces, await unary(pieces[0], timeout=ANSWER_S, metadata=caller.metadata))
                    return
                call: Any = channel.stream_stream(method.path)(metadata=caller.metadata)
                try:
                    async with asyncio.timeout(ANSWER_S / 5):
                        for piece in pieces:
                            await call.write(piece)
                        if ends:
                            await call.done_writing()
                        while (answer := await call.read()) is not grpc.aio.EOF:
                            caller.answered(method, pieces, answer)
                finally:
                    call.cancel()
            except grpc.aio.AioRpcError as error:
                self.refused[error.code().name] += 1
                if error.code() in UNEXPLAINED and error.details() != OWN_SIDE:
                    self.unexplained.append(f"{method}: {error.code().name} ({(error.details() or '')[:200]})")
                caller.answered(method, pieces, repr((error.details(), error.trailing_metadata())).encode())


async def as_operator(nodes: RealNodes, number: int, method: Method[Any, Any], request: Any) -> Any:
    """Call a node as one who may do everything."""
    at = nodes.further.get(OPERATOR, nodes.addresses)[number]
    return await nodes.transport.call(at, method, request, timeout_ms=CALL_MS)


def batch(value: bytes) -> bytes:
    return build_batch([Record(Offset(0), Millis(1_700_000_000_000), b"key", value)])


async def must_serve(nodes: RealNodes, name: str) -> None:
    """A leader is elected, a topic made, a record taken and given back by it. Raises TimeoutError."""
    async with asyncio.timeout(60):
        await _end_cordons(nodes)
        replicas = len(nodes.addresses)
        # The made-up record is old: with the usual retention its log would change after five minutes.
        create = creating(name, partitions=1, replication_factor=replicas, configs={"retention.ms": "-1"})
        topic_id = (await _until_served(nodes, methods.ADMIN_CREATE_TOPICS, create)).topic_id
        steps: list[tuple[Any, Any, Callable[[Any], object]]] = [
            (methods.DATA_PRODUCE, _produce(topic_id), lambda answer: not answer.partitions[0].HasField("error")),
            (methods.DATA_FETCH, _fetch(topic_id), lambda answer: answer.partitions[0].records),
        ]
        for method, request, read in steps:
            done = False
            while not done:
                for number in nodes.nodes:
                    with contextlib.suppress(TidelogError):
                        done = done or bool(read(await as_operator(nodes, number, method, request)))
                nodes.ensure_running()


async def _end_cordons(nodes: RealNodes) -> None:
    """A made-up request may have cordoned nodes: no topic is made then, as it should be."""
    for node_id in nodes.nodes:
        end = admin_pb2.AlterCordonRequest(node_id=node_id, cordoned=False)
        ended = False
        while not ended:
            for number in nodes.nodes:
                with contextlib.suppress(TidelogError):
                    await as_operator(nodes, number, methods.ADMIN_ALTER_CORDON, end)
                    ended = True
            nodes.ensure_running()


async def _until_served(nodes: RealNodes, method: Method[Any, Any], request: Any) -> Any:
    while True:
        for number in nodes.nodes:
            with contextlib.suppress(TidelogError):
                return changed(await as_operator(nodes, number, method, request))
        nodes.ensure_running()


def _produce(topic_id: bytes) -> ProduceRequest:
    entry = ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=batch(b"found"))
    return ProduceRequest(acks=-1, timeout_ms=5_000, partitions=[entry])


def _fetch(topic_id: bytes) -> data_pb2.FetchRequest:
    entry = data_pb2.FetchPartition(
        fetch_id=1, topic_id=topic_id, partition=0, current_leader_epoch=-1, last_fetched_epoch=-1, max_bytes=1 << 20
    )
    return data_pb2.FetchRequest(partitions=[entry], max_wait_ms=500, min_bytes=1)


async def assault(home: Path, *, count: int, nodes: int, seed: int, seconds: float = 0) -> list[str]:
    """Send so many requests to a new cluster, or for so long. Returns the RPCs with a defect and what has grown; raises
    what ended a node."""
    async with real_nodes(home, nodes, coordinators=FEW_PARTITIONS) as cluster:
        await must_serve(cluster, "orders")
        await make_internal_topics(cluster)
        attack = Assault(cluster, Random(seed), [Caller(each) for each in cluster.addresses])
        try:
            grown = await _rounds(cluster, attack, count, seconds)
        finally:
            await attack.close()
        for number in list(cluster.nodes):  # an election, and a start with what was written meanwhile
            await cluster.stop(number)
            await cluster.start(number)
            await cluster.wait_present(NodeId(number))
        await must_serve(cluster, "after")
        return [*_defects(cluster), *grown]


async def _rounds(cluster: RealNodes, attack: Assault, count: int, seconds: float) -> list[str]:
    """Send the requests in rounds. Returns what has grown since the second one; the first ones fill caches."""
    until, left = time.monotonic() + seconds, count
    seen: list[Footprint] = []
    while left > 0 or time.monotonic() < until:
        await attack.send(ROUND if seconds else min(left, ROUND))
        left -= ROUND
        await must_serve(cluster, "a-round")
        await _until_served(cluster, methods.ADMIN_DELETE_TOPICS, deleting(name="a-round"))
        seen.append(footprint(cluster))
        if len(seen) > 1:
            print(f"{attack.sent} requests, {seen[-1]}", flush=True)
        await must_serve(cluster, f"orders-{len(seen)}")  # the round has deleted topics
    return seen[-1].grown_since(seen[1]) if len(seen) > 2 else []


async def assault_on_refusal(home: Path, *, count: int, seed: int) -> list[str]:
    """Send so many requests to a listener of a new node that refuses all of them. Returns the RPCs with a defect, and
    what has changed."""
    async with real_nodes(home) as cluster, refusing_listener(cluster.nodes[0]) as refusing:
        await must_serve(cluster, "orders")
        before = everything(cluster.nodes[0])
        attack = Assault(cluster, Random(seed), [Caller(refusing.address)])
        try:
            await attack.send(count)
        finally:
            await attack.close()
        after = everything(cluster.nodes[0])
        changed = [name for name, value in before.items() if after[name] != value]
        await must_serve(cluster, "after")
        return [*_defects(cluster), *refusing.defects, *refusing.served, *changed]


async def assault_as(
    home: Path, *, way: str, count: int, seed: int, seconds: float = 0, round_requests: int = ROUND
) -> list[str]:
    """Send so many requests, or for so long, as clients that authenticate: in turn as one without permission and as one
    with permission for one topic. Returns the RPCs with a defect, what has grown, and what was changed or shown
    without permission."""
    async with protected(home, way) as here:
        cluster = here.nodes
        await must_serve(cluster, "orders")
        await here.prepare()
        attack = Assault(cluster, Random(seed), ())
        try:
            found = await _rounds_as(here, attack, count, seconds, round_requests)
        finally:
            await attack.close()
        await must_serve(cluster, "after")
        return [*_defects(cluster), *found]


async def _rounds_as(here: Protected, attack: Assault, count: int, seconds: float, size: int) -> list[str]:
    until, left, number = time.monotonic() + seconds, count, 0
    found: list[str] = []
    seen: list[Footprint] = []
    while left > 0 or time.monotonic() < until:
        permitted = number % 2 == 1
        attack.callers = await here.callers(permitted=permitted)
        before = here.unchangeable(permitted=permitted)
        await attack.send(size if seconds else min(left, size))
        after = here.unchangeable(permitted=permitted)
        found += [f"{name} changed: {value} to {after[name]}" for name, value in before.items() if after[name] != value]
        left, number = left - size, number + 1
        await must_serve(here.nodes, f"round-{number}")
        gone = deleting(name=f"round-{number}")
        await _until_served(here.nodes, methods.ADMIN_DELETE_TOPICS, gone)
        seen.append(footprint(here.nodes))
        print(f"{attack.sent} requests, refused {dict(attack.refused)}, {seen[-1]}", flush=True)
    found += [*here.shown, *attack.unexplained]
    return [*found, *(seen[-1].grown_since(seen[1]) if len(seen) > 2 else ())]


def _defects(cluster: RealNodes) -> list[str]:
    return sorted({method for node in cluster.past for method in node.defects})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.requests", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="instead of a count")
    parser.add_argument("--refused", action="store_true", help="to a listener that refuses every request")
    parser.add_argument("--as", dest="way", choices=WAYS, help="over TLS as clients who prove who they are so")
    options = parser.parse_args()
    count = 0 if options.seconds else options.count
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory() as home:
        if options.refused:
            found = asyncio.run(assault_on_refusal(Path(home), count=options.count, seed=options.seed))
        elif options.way:
            at = {"way": options.way, "count": count, "seed": options.seed, "seconds": options.seconds}
            found = asyncio.run(assault_as(Path(home), **at))
        else:
            run = assault(Path(home), count=count, nodes=options.nodes, seed=options.seed, seconds=options.seconds)
            found = asyncio.run(run)
    much = f"{options.seconds:g} seconds of requests" if options.seconds else f"{options.count} requests"
    print(f"{much}, seed {options.seed}: {', '.join(found) or 'nothing'} found")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
