"""How many functions of the product carry a value, and in how many forms.

    record: from `Producer.send` to the followers' files      heartbeat: from a member to its coordinator and back

Three real nodes and the client share this process. While one record with an unmistakable value is on its way, each call
of a product function is looked at. Frames: the functions that return something that holds the value, and those that are
on the stack where it is handed over (HAND_OFFS); functions that only look at it do not count. Forms: the types of
arguments and results that hold it. A heartbeat is followed by the name of its group. Only what is seen in each of
several rounds counts, so that what the nodes do meanwhile does not. The lists go to stderr.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
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
HEARTBEAT_S: Final = 6.0
"""Longer than the interval of heartbeats."""
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
DEPTH_MAX: Final = 5
"""Of values within values: a request with topics with partitions with a batch."""


class Carriers:
    """The functions and types that carry a value, in the order in which they first do.

    frames: FILE:LINE name; forms: type names."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.frames: dict[str, None] = {}  # dictionaries keep the order
        self.forms: dict[str, None] = {}
        self.handed_over: set[str] = set()

    def see(self, frame: FrameType, event: str, arg: Any) -> None:
        """A profile function, as of `sys.setprofile`."""
        if event not in ("call", "return") or not _is_product(frame.f_code.co_filename):
            return
        held = [arg] if event == "return" else _arguments(frame)
        found = [type(each).__qualname__ for each in held if self._holds(each)]
        self.forms.update(dict.fromkeys(found))
        if found and frame.f_code.co_qualname in HAND_OFFS:
            self.frames.update(dict.fromkeys(reversed(list(_stack(frame)))))
            self.handed_over.add(frame.f_code.co_qualname)
        elif found and event == "return":
            self.frames[next(_stack(frame))] = None

    def _holds(self, held: object, depth: int = 0) -> bool:
        if isinstance(held, str):
            return self.value in held
        if isinstance(held, bytes | bytearray | memoryview):
            return self.value.encode() in bytes(held)
        if isinstance(held, EncodedAnswer):
            return self._holds(held.data)
        if isinstance(held, Message):
            return self.value.encode() in held.SerializePartialToString()
        if depth == DEPTH_MAX:
            return False
        if isinstance(held, Mapping):
            return any(self._holds(each, depth + 1) for pair in list(held.items()) for each in pair)
        if isinstance(held, list | tuple):
            return any(self._holds(each, depth + 1) for each in held)
        if is_dataclass(held) and not isinstance(held, type):
            return any(self._holds(getattr(held, each.name, None), depth + 1) for each in fields(held))
        return False


def _is_product(file: str) -> bool:
    return file.startswith(str(ROOT)) and Path(file).relative_to(ROOT).parts[0] in PRODUCT


def _arguments(frame: FrameType) -> list[object]:
    """Without `self`: an object of the node's lifetime holds everything."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name != "self" and name in frame.f_locals]


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        if _is_product(code.co_filename):
            yield f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}"
        frame = frame.f_back


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
        self, name: str, value: Callable[[int], str], doing: Callable[[str], Awaitable[object]]
    ) -> tuple[list[str], list[str]]:
        """The frames and forms of every round."""
        frames, forms = Counter[str](), Counter[str]()
        for number in range(ROUNDS):
            carriers = self._carriers = Carriers(value(number))
            sys.setprofile(self._see)
            try:
                await doing(carriers.value)
            finally:
                sys.setprofile(None)
                self._carriers = None
            frames.update(list(carriers.frames))
            forms.update(list(carriers.forms))
            self.handed_over |= carriers.handed_over
        always = _in_each_round(frames), _in_each_round(forms)
        for what, found in zip(("frames", "forms"), always, strict=True):
            print(f"{name}: {len(found)} {what}", *found, sep="\n    ", file=sys.stderr)
        return always


def _in_each_round(seen: Counter[str]) -> list[str]:
    return [name for name, times in seen.items() if times == ROUNDS]


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
            "record", lambda number: f"<the record {number:03}>", lambda value: producer.send(TOPIC, value.encode())
        )


async def _heartbeat(watch: Watch, nodes: Nodes) -> tuple[list[str], list[str]]:
    async with Consumer(nodes.bootstrap, topics=[TOPIC], group=GROUP, auto_commit=False) as consumer:
        await consumer.poll(timeout=HEARTBEAT_S)
        return await watch.follow("heartbeat", lambda _number: GROUP, lambda _value: asyncio.sleep(HEARTBEAT_S))
