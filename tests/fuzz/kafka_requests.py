"""Hostile frames for a listener of Kafka's protocol, in plain text, with TLS, or before the login of SASL.

    python -m tests.fuzz.kafka_requests --count 5000 --kind TLS --seed 7
    python -m tests.fuzz.kafka_requests --seconds 3600

A finding is a request that is answered for a defect or logs an error, an answer that is not of the request or cannot be
read, a client of the same listener that is not served meanwhile, and anything that is left behind: connections, tasks,
room for frames, memory from round to round. Behind each frame follows an ApiVersions request, so that it is known when
the frame has had its answer, or has none. Where SASL is required nobody logs in, and nothing may be served.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from node.config import GRPC_LISTENER
from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.listeners.kafka.kafka_server import KafkaServer
from node.listeners.kafka.kafka_tls import KafkaTls
from node.runtime.request_meter import RequestMeters
from node.security.sasl_settings import SaslConfig
from tests.certificates import Authority
from tests.fuzz.footprint import Footprint, footprint
from tests.fuzz.kafka_frames import NULL, VERSIONS, FrameMaker, Made
from tests.fuzz.requests import as_operator, batch, must_serve
from tests.node.kafka_frames import both_ways, decoded, request_frame
from tests.node.real_coordinators import make_internal_topics
from tests.node.real_nodes import OUTSIDE, RealNode, RealNodes, real_nodes
from tidelog.clock import MachineClock
from tidelog.protocol import methods
from tidelog.protocol.kafka.message_codec import MalformedMessage
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import INTERNAL_TOPICS, Endpoint

ANSWER_S: Final = 0.4
"""A request that waits for something is given up then."""

SERVED_S: Final = 10.0
"""A client that sends nothing hostile must be served within that time."""

ROUND: Final = 2_500
"""Frames between two looks at the cluster."""

AT_ONCE: Final = 8
"""Hostile connections."""

FRAME_BYTES_MAX: Final = 1 << 20
MEMORY_BYTES_MAX: Final = 4 << 20

FEW: Final = ("CreateTopics", "DeleteTopics")
"""Where they succeed, the others meet many files, or no topic any more: three of each are sent in a round."""

PROBE: Final = 2**31 - 1
"""The correlation id of the request behind a hostile one."""

QUICK: Final = CoordinatorSettings(
    GroupSettings(partitions=3, initial_rebalance_delay_ms=0, min_session_timeout_ms=1),
    TransactionSettings(partitions=3),
)


class Kind(Enum):
    """What a client must do before it is served."""

    PLAIN = "plain text"
    TLS = "TLS"
    SASL = "SASL"


@dataclass
class Door:
    """A listener of Kafka's protocol of a node."""

    server: KafkaServer
    address: Endpoint
    tls: ssl.SSLContext | None
    meters: RequestMeters
    kind: Kind

    @property
    def left_behind(self) -> list[str]:
        """What is held by no client any more."""
        state = self.server._state
        held = {"connections": len(state.connections), "requests": len(state.tasks), "room": state.budget.used}
        return [f"the listener still has {count} {what}" for what, count in held.items() if count]

    @property
    def findings(self) -> list[str]:
        """APIs with a defect, and what is served to clients that have not logged in."""
        defect = "UNKNOWN_SERVER_ERROR"
        defects = [f"{meter.api} has a defect" for meter in self.meters if defect in meter.failed]
        served = [f"{meter.api} is served" for meter in self.meters if meter.answered and self.kind is Kind.SASL]
        return [*defects, *(each for each in served if not each.startswith("Sasl."))]


@asynccontextmanager
async def kafka_door(found: RealNode, kind: Kind, authority: Authority) -> AsyncIterator[Door]:
    """Another listener of this node, on a port of its own. Its answers name the addresses of a listener for gRPC."""
    has_tls, name = kind is Kind.TLS, OUTSIDE if kind is Kind.SASL else GRPC_LISTENER
    tls = KafkaTls(name, authority.node(requires=False), MachineClock()) if has_tls else None
    meters = RequestMeters()
    server = KafkaServer(
        name,
        boundary=replace(found.boundary, meters=meters),
        frame_bytes_max=FRAME_BYTES_MAX,
        memory_bytes_max=MEMORY_BYTES_MAX,
        connections_max=100,
        tls=tls,
    )
    address = server.bind(Endpoint("127.0.0.1", 0))
    server.serve(found.node.services, found.node.sasl)
    await server.start()
    context = ssl.create_default_context(cafile=authority.ca) if has_tls else None
    try:
        yield Door(server, address, context, meters, kind)
    finally:
        await server.stop(0)


@dataclass
class Errors(logging.Handler):
    """What the node, and the loop, log as errors."""

    texts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    __hash__ = object.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self.texts[f"{record.name} logs: {record.getMessage()[:100]} ({cause!r})"] += 1


@asynccontextmanager
async def errors() -> AsyncIterator[Errors]:
    found, loggers = Errors(), [logging.getLogger(name) for name in ("node", "asyncio", "storage")]
    for each in loggers:
        each.addHandler(found)
    try:
        yield found
    finally:
        for each in loggers:
            each.removeHandler(found)


class Client:
    """A connection that sends frames one by one."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def answers(self, frame: bytes) -> list[bytes]:
        """What comes before the answer to a request behind this frame. Raises EOFError if the connection ends."""
        if self._streams is None:
            at, tls = self._door.address, self._door.tls
            self._streams = await asyncio.open_connection(at.host, at.port, ssl=tls, limit=4 << 20)
        reader, writer = self._streams
        writer.write(frame + _PROBE_FRAME)
        answers: list[bytes] = []
        while True:
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if answer[:4] == PROBE.to_bytes(4, "big"):
                return answers
            answers.append(answer)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


_PROBE_FRAME: Final = request_frame(
    "ApiVersions", 0, both_ways("ApiVersionsRequest").module.ApiVersionsRequest(), PROBE
)


class Assault:
    """Sends made-up frames to a listener."""

    def __init__(self, door: Door, rng: Random, known: dict[str, Any]) -> None:
        self._door, self._rng = door, rng
        self._members: deque[str] = deque([""], 20)
        """Ids of members that groups have given."""
        self._joining: deque[str] = deque(["", ""], 4)
        """Of those, the last ones, and that of a new member."""
        self._generations: deque[int] = deque([-1, 0], 6)
        """Those that members have joined."""
        learned: dict[str, Any] = {
            "generation_id": self._generations,
            "generation_id_or_member_epoch": self._generations,
        }
        learned |= {"member_id": self._members, "JoinGroup.member_id": self._joining}
        self._maker = FrameMaker(rng, {**known, **learned})
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.findings: list[str] = []
        self.slowest_s = 0.0
        """The longest time for which a client that sends nothing hostile has waited."""

    async def send(self, count: int) -> None:
        """So many frames, over all APIs."""
        often = [api for api in VERSIONS if api not in FEW]
        plan = [often[number % len(often)] for number in range(count - 6)] + [*FEW] * 3
        self._rng.shuffle(plan)
        over = asyncio.Event()
        bystander = asyncio.create_task(self._live(over))
        shares = [plan[first::AT_ONCE] for first in range(AT_ONCE)]
        await asyncio.gather(*map(self._attack, shares))
        over.set()
        await bystander

    async def _live(self, over: asyncio.Event) -> None:
        """A client that asks for metadata, again and again; where it would have to log in, for versions."""
        client, api = Client(self._door), "ApiVersions" if self._door.kind is Kind.SASL else "Metadata"
        module = both_ways(f"{api}Request").module
        version = 0 if self._door.kind is Kind.SASL else 9
        frame = request_frame(api, version, module.MetadataRequest(None) if version else module.ApiVersionsRequest())
        while not over.is_set():
            began = time.monotonic()
            try:
                async with asyncio.timeout(SERVED_S):
                    (answer,) = await client.answers(frame)
                decoded(api, version, answer, plain=api == "ApiVersions")
            except (TimeoutError, EOFError, OSError) as error:
                self.findings.append(f"a client that does no harm is not served: {error!r}")
                return
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.02)
        client.close()

    async def _attack(self, apis: list[str]) -> None:
        client = Client(self._door)
        for api in apis:
            made = self._maker.make(api)
            self.sent += 1
            try:
                async with asyncio.timeout(ANSWER_S if made.is_whole else ANSWER_S / 8):
                    answers = await client.answers(made.data)
            except (EOFError, OSError):
                self.outcomes["closed"] += 1
                client.close()
            except TimeoutError:
                self.outcomes["waits"] += 1
                client.close()
            else:
                self.outcomes["answered" if answers else "no answer"] += 1
                self._check(made, answers)
        client.close()

    def _check(self, made: Made, answers: list[bytes]) -> None:
        """An answer must be that of the request, and one of its version to the last byte."""
        expected = made.correlation_id.to_bytes(4, "big")
        if [answer[:4] for answer in answers] not in ([], [expected]):
            return  # the frame was another request by chance; that nothing else is answered, the checks below see
        for answer in answers:
            try:
                _, message = decoded(made.api, made.version, answer, plain=made.api == "ApiVersions")
            except (MalformedMessage, AssertionError):
                if not self._is_another(made, answer):
                    self.findings.append(f"the answer to {made.api} {made.version} cannot be read: {made.data.hex()}")
                return
            if made.api == "JoinGroup" and message.member_id:
                self._members.append(message.member_id)
                self._joining.extend((message.member_id, ""))
                self._generations.append(message.generation_id)

    def _is_another(self, made: Made, answer: bytes) -> bool:
        """Whether key or version in the frame are not those that it was made with: then another answer is right."""
        key, version = int.from_bytes(made.data[4:6], "big"), int.from_bytes(made.data[6:8], "big", signed=True)
        return (key, version) != (both_ways(f"{made.api}Request").codec.api_key, made.version)


async def known_of(cluster: RealNodes) -> dict[str, list[Any]]:
    """Values that exist in this cluster, by the names of fields."""
    every = admin_pb2.GetMetadataRequest(all_topics=True)
    reported = await as_operator(cluster, 0, methods.ADMIN_GET_METADATA, every)
    names = [topic.name for topic in reported.topics if topic.name not in INTERNAL_TOPICS]
    assert names, "most requests name a real topic"
    by_value: list[tuple[str, list[Any]]] = [
        ("topic topics topic_names resource_name", names),
        ("name", names),
        ("JoinGroup.name", ["range"]),
        ("DescribeConfigs.configuration_keys AlterConfigs.name IncrementalAlterConfigs.name", ["retention.ms"]),
        ("group_instance_id instance_id rack_id server_assignor reason Produce.transactional_id", [NULL]),
        ("subscribed_topic_names", names),
        ("subscribed_topic_regex", [NULL, NULL, "ord.*"]),
        ("member_epoch", [0, 0, 1, 2, -1]),
        ("partition partition_index index partition_indexes partitions", [0, 0, 0, 1]),
        ("current_leader_epoch leader_epoch last_fetched_epoch committed_leader_epoch", [-1, 0, 1]),
        ("fetch_offset committed_offset offset", [0, 1, 5]),
        ("group_id key coordinator_keys", ["readers", "others"]),
        ("transactional_id", ["billing"]),
        ("session_timeout_ms rebalance_timeout_ms", [6_000, 300, 1_000]),
        ("resource_pattern_type resource_type_filter pattern_type_filter", [1, 2, 3]),
        ("operation permission_type", [2, 3]),
        ("protocol_type", ["consumer"]),
        ("protocol_name", ["range"]),
        ("replica_id", [-1]),
        ("session_id", [0]),
        ("session_epoch", [0, -1]),
        ("isolation_level key_type", [0, 1]),
        ("max_wait_ms timeout_ms", [0, 10]),
        ("min_bytes", [0, 1]),
        ("max_bytes partition_max_bytes", [1 << 20]),
        ("acks", [-1, 0, 1]),
        ("timestamp", [-1, -2, -3, 1_700_000_000_000]),
        ("resource_type", [2]),
        ("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]),
        ("num_partitions replication_factor", [1, -1]),
        ("client_software_name client_software_version", ["fuzz"]),
        ("producer_id", [0, 1, -1]),
        ("producer_epoch", [0, -1]),
    ]
    return {
        **{name: values for texts, values in by_value for name in texts.split()},
        "topic_id": [UUID(bytes=topic.topic_id) for topic in reported.topics],
        "records": [batch(b"fuzz"), batch(b"")],
        "auth_bytes": [b"n,,n=alice,r=nonce", b"\0alice\0tulip", b"c=biws,r=nonce,p=AAAA"],
    }


async def assault(home: Path, *, count: int, seed: int, kind: Kind = Kind.PLAIN, seconds: float = 0) -> list[str]:
    """Send so many frames to a new node, or for so long. Returns what was found; raises what ended the node."""
    sasl = SaslConfig() if kind is Kind.SASL else None
    async with real_nodes(home, coordinators=QUICK, sasl=sasl) as cluster, errors() as logged:
        await must_serve(cluster, "orders")
        await make_internal_topics(cluster)
        rng, left, until, number = Random(seed), count, time.monotonic() + seconds, 0
        seen: list[Footprint] = []
        findings: list[str] = []
        async with kafka_door(cluster.nodes[0], kind, Authority(home / "authority")) as door:
            while left > 0 or time.monotonic() < until:
                attack = Assault(door, rng, await known_of(cluster))
                await attack.send(ROUND if seconds else min(left, ROUND))
                left, number = left - ROUND, number + 1
                findings += attack.findings
                findings += [*await _left_behind(door), *door.findings]
                cluster.ensure_running()
                await must_serve(cluster, f"orders-{number}")  # the round has deleted topics
                seen.append(footprint(cluster))
                print(f"{attack.sent} frames, {dict(attack.outcomes)}, slowest {attack.slowest_s:.2f} s, {seen[-1]}")
        if len(seen) > 2:
            findings += seen[-1].grown_since(seen[1])
        defects = sorted({f"{api} has a defect" for node in cluster.past for api in node.defects})
        return [*findings, *defects, *logged.texts]


async def _left_behind(door: Door) -> list[str]:
    """What the listener still holds a while after all clients are gone."""
    clock = MachineClock()
    with suppress(TimeoutError):
        async with asyncio.timeout(SERVED_S):
            while door.left_behind:
                await clock.sleep_ms(20)
    return door.left_behind


def main() -> int:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kafka_requests", description=summary)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="instead of a count")
    parser.add_argument("--kind", type=Kind, choices=Kind, default=Kind.PLAIN)
    options = parser.parse_args()
    count = 0 if options.seconds else options.count
    logging.getLogger("node").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as home:
        run = assault(Path(home), count=count, seed=options.seed, kind=options.kind, seconds=options.seconds)
        found = asyncio.run(run)
    for each in found:
        print(each)
    return min(len(found), 100)


if __name__ == "__main__":
    sys.exit(main())
