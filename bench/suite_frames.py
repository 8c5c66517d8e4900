"""How many functions of the product carry a value, and in how many forms.

    record: from `Producer.send` to the followers' files      heartbeat: from a member to its coordinator

Three real nodes and the client share this process. While one record with an unmistakable value is on its way, each call
of a product function is looked at. A heartbeat is followed by the name of its group.

Frames: the functions that return something that holds the value, and those that have it in a variable while it is
handed over (HAND_OFFS) by a function that they called. Functions that only look at it do not count.

Forms: the types of arguments and results in which the bytes of the value lie, in a field or in a list or tuple in a
field. bytes, bytearray and memoryview are one form. What has such an object and no bytes of its own is not another form
of the value, and is printed as `around them`: a request has its entries, an attempt to send has its batch. So do lists
and tuples, which are not printed.

A record is followed until the last follower has written it: the acknowledgement comes later. Rounds in which the value
did not arrive, as when the machine is so busy that a leader changes, are repeated. Only what is seen in each round
counts, so that what the nodes do meanwhile does not.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from google.protobuf.message import Message

from bench.figure import Better, Figure, Run
from bench.loop_nodes import Nodes
from node.boundary.boundary import EncodedAnswer
from tidelog import Consumer, Producer
from tidelog.client.admin import Admin

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ("tidelog", "node", "replication", "storage")
TOPIC: Final = "frames"
GROUP: Final = "a-group-that-is-followed"
ROUNDS: Final = 10
ROUNDS_MAX: Final = 30
HEARTBEAT_S: Final = 6.0
"""Longer than the interval of heartbeats."""
JOIN_S: Final = 60.0
HAND_OFFS: Final = frozenset(
    {
        "OsFile.pwritev",
        "GrpcStream.send",
        "ServerStream._write",
        "PartitionCoordinator.submit",
        "GroupMachine.handle",
    }
)
"""Where a value ends one part of its way: at a file, at gRPC, in the queue and the state machine of a coordinator."""
RECORD_ENDS: Final = ("OsFile.pwritev", 3)
"""The hand-off with which a record has arrived, and how often: in the files of all replicas."""
HEARTBEAT_ENDS: Final = ("GroupMachine.handle", 1)
DEPTH_MAX: Final = 5
"""Of values within values: a request with topics with partitions with a batch."""
BYTES: Final = (bytes, bytearray, memoryview)


class Carriers:
    """The functions and types that carry a value, in the order in which they first do."""

    def __init__(self, value: str, ends: tuple[str, int]) -> None:
        self.value = value
        self._end, self._left = ends
        self.frames: dict[str, None] = {}  # dictionaries keep the order
        """FILE:LINE name."""
        self.forms: dict[str, None] = {}
        """Names of types that have bytes of the value."""
        self.around: dict[str, None] = {}
        """Names of types that have an object of another form."""
        self.handed_over: set[str] = set()

    @property
    def arrived(self) -> bool:
        """The value is where it was sent to: what follows is not its way."""
        return self._left <= 0

    def see(self, frame: FrameType, event: str, arg: Any) -> None:
        """A profile function, as of `sys.setprofile`."""
        if event not in ("call", "return") or self.arrived or not _is_product(frame.f_code):
            return
        found = False
        for held in (arg,) if event == "return" else _arguments(frame):
            if self._holds(held):
                found = True
                self._note(held)
        name = frame.f_code.co_qualname
        if found and event == "return":
            self.frames[_name(frame.f_code)] = None
        elif found and name in HAND_OFFS:
            carrying = [each for each in _stack(frame) if each is frame or any(map(self._holds, _variables(each)))]
            self.frames.update(dict.fromkeys(_name(each.f_code) for each in reversed(carrying)))
            self.handed_over.add(name)
            self._left -= name == self._end

    def _note(self, held: object) -> None:
        kind = type(held)
        if isinstance(held, BYTES):
            self.forms["bytes"] = None
        elif kind in (list, tuple, dict):
            for each in held.values() if isinstance(held, dict) else held:  # type: ignore[attr-defined]
                if self._holds(each):
                    self._note(each)
        else:
            name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            (self.forms if self._has_bytes(held) else self.around)[name] = None

    def _has_bytes(self, held: object) -> bool:
        """Whether it has the bytes itself, and not only an object that has them."""
        if isinstance(held, str | Message):
            return True
        return any(self._holds(each, builtin_only=True) for each in _parts(held))

    def _holds(self, held: object, depth: int = 0, *, builtin_only: bool = False) -> bool:
        if isinstance(held, str):
            return self.value in held
        if isinstance(held, BYTES):
            return self.value.encode() in bytes(held)
        if isinstance(held, Message):
            return not builtin_only and self.value.encode() in held.SerializePartialToString()
        if depth == DEPTH_MAX or (builtin_only and type(held) not in (list, tuple, dict)):
            return False
        return any(self._holds(each, depth + 1, builtin_only=builtin_only) for each in _parts(held))


def _parts(held: object) -> Iterable[object]:
    """What a value consists of; nothing of an object with a life of its own, which may have everything."""
    if isinstance(held, Mapping):
        return [each for pair in list(held.items()) for each in pair]
    if isinstance(held, list | tuple):
        return list(held)
    if isinstance(held, EncodedAnswer):
        return (held.data, held.value)
    if is_dataclass(held) and not isinstance(held, type):
        return [getattr(held, each.name, None) for each in fields(held)]
    return ()


@cache
def _is_product(code: CodeType) -> bool:
    file = Path(code.co_filename)
    return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in PRODUCT


def _arguments(frame: FrameType) -> list[object]:
    """Without `self`: an object of the node's lifetime holds everything."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name != "self" and name in frame.f_locals]


def _variables(frame: FrameType) -> list[object]:
    return [held for name, held in frame.f_locals.items() if name != "self"]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The functions of the product that are being executed, the innermost first."""
    while frame is not None:
        if _is_product(frame.f_code):
            yield frame
        frame = frame.f_back


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}"


class Watch:
    """Follows one value at a time, in all threads that begin after it was made."""

    def __init__(self) -> None:
        self._carriers: Carriers | None = None
        self.handed_over: set[str] = set()
        threading.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._carriers is not None:
            self._carriers.see(frame, event, arg)

    async def follow(
        self,
        name: str,
        value: Callable[[int], str],
        doing: Callable[[str], Awaitable[object]],
        ends: tuple[str, int],
    ) -> tuple[list[str], list[str]]:
        """The frames and forms of every round. Raises RuntimeError if the value does not arrive often enough."""
        rounds: list[Carriers] = []
        for number in range(ROUNDS_MAX):
            carriers = self._carriers = Carriers(value(number), ends)
            sys.setprofile(self._see)
            try:
                await doing(carriers.value)
            finally:
                sys.setprofile(None)
                self._carriers = None
            self.handed_over |= carriers.handed_over
            if carriers.arrived:
                rounds.append(carriers)
            if len(rounds) == ROUNDS:
                break
        else:
            raise RuntimeError(
                f"a {name} arrived in {len(rounds)} of {ROUNDS_MAX} rounds: is the machine busy, or was {ends[0]} "
                "renamed? Then correct HAND_OFFS"
            )
        frames, forms, around = (
            [each for each in found[0] if all(each in others for others in found)]
            for found in zip(*((each.frames, each.forms, each.around) for each in rounds), strict=True)
        )
        for what, found in (("frames", frames), ("forms", forms), ("around them", around)):
            print(f"{name}: {len(found)} {what}", *found, sep="\n    ", file=sys.stderr)
        return frames, forms


def figures(run: Run) -> Iterator[Figure]:
    yield from asyncio.run(_measure(run.scratch))


async def _measure(directory: Path) -> list[Figure]:
    watch = Watch()
    try:
        nodes = Nodes(directory, 3)
        async with nodes.running(), Admin(nodes.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
            record = await _record(watch, nodes)
            heartbeat = await _heartbeat(watch, nodes)
    finally:
        threading.setprofile(None)
    if unseen := HAND_OFFS - watch.handed_over:
        raise RuntimeError(f"nothing was handed over in {sorted(unseen)}: were they renamed? Correct HAND_OFFS")
    return [
        Figure(f"{what} of a {name}", len(found), what, target=target, better=Better.LESS)
        for name, counts, targets in (("record", record, (35, 7)), ("heartbeat", heartbeat, (20, 4)))
        for what, found, target in zip(("frames", "forms"), counts, targets, strict=True)
    ]


async def _record(watch: Watch, nodes: Nodes) -> tuple[list[str], list[str]]:
    async with Producer(nodes.bootstrap) as producer:
        await producer.send(TOPIC, b"first: connects and registers the producer")
        return await watch.follow(
            "record",
            lambda number: f"<the record {number:03}>",
            lambda value: producer.send(TOPIC, value.encode()),
            RECORD_ENDS,
        )


async def _heartbeat(watch: Watch, nodes: Nodes) -> tuple[list[str], list[str]]:
    async with Consumer(nodes.bootstrap, topics=[TOPIC], group=GROUP, auto_commit=False) as consumer:
        async with asyncio.timeout(JOIN_S):
            while not consumer.assignment:  # the coordinator may still be loading
                await consumer.poll(timeout=HEARTBEAT_S)
        return await watch.follow(
            "heartbeat", lambda _number: GROUP, lambda _value: asyncio.sleep(HEARTBEAT_S), HEARTBEAT_ENDS
        )
