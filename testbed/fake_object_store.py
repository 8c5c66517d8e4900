"""An object store in memory that a test can slow down, fill, break and damage.

Invariants: objects are those of `tidelog.tiering.object_store`. A fault is planned for the next calls of an operation
and then used up; damage stays. `calls` lists every call, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.tiering.object_store import StoredObject
from tidelog.tiering.remote_errors import (
    ObjectStoreFull,
    ObjectStoreUnavailable,
    RemoteObjectDamaged,
    RemoteObjectMissing,
)
from tidelog.types import Buffer, Millis


class StoreCall(NamedTuple):
    """A call of a store. start, size: of a range; -1 for the other operations."""

    operation: str
    key: str
    start: int = -1
    size: int = -1


class _Plan:
    def __init__(self, operation: str, error: Callable[[], TidelogError], times: int, *, after: bool) -> None:
        self.operation, self.error, self.times, self.after = operation, error, times, after


class FakeObjectStore:
    """`ObjectStore` documents the methods."""

    def __init__(self, url: str = "fake://bucket", *, clock: Callable[[], int] = lambda: 0) -> None:
        """clock: milliseconds, for the listing."""
        self._url, self._clock = url, clock
        self.objects: dict[str, bytes] = {}
        self.written_ms: dict[str, int] = {}
        self.calls: list[StoreCall] = []
        self.capacity: int | None = None
        """Bytes; None: no limit."""
        self.on_call: Callable[[StoreCall], None] = lambda _: None
        """Called before each call: a slow store moves its caller's clock or waits here."""
        self._plans: list[_Plan] = []

    @property
    def url(self) -> str:
        return self._url

    # --- faults ---------------------------------------------------------------------------------------------------

    def fail(
        self,
        operation: str,
        error: Callable[[], TidelogError] = lambda: ObjectStoreUnavailable("the store does not answer; retry"),
        *,
        times: int = 1,
    ) -> None:
        """The next calls of `operation` raise this error and do nothing."""
        self._plans.append(_Plan(operation, error, times, after=False))

    def recover(self) -> None:
        """Forget the planned faults."""
        self._plans.clear()

    def answer_late(self, operation: str, *, times: int = 1) -> None:
        """The next calls of `operation` are carried out, and their answer is lost."""
        self._plans.append(
            _Plan(operation, lambda: ObjectStoreUnavailable("the answer was lost; retry"), times, after=True)
        )

    def lose(self, key: str) -> None:
        """The object is gone."""
        del self.objects[key]

    def truncate(self, key: str, size: int) -> None:
        """The object has only its first bytes."""
        self.objects[key] = self.objects[key][:size]

    def tamper(self, key: str, at: int, mask: int = 0x01) -> None:
        """A byte of the object has other bits."""
        data = bytearray(self.objects[key])
        data[at] ^= mask
        self.objects[key] = bytes(data)

    # --- the store ------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        with_answer = self._begin(StoreCall("put", key))
        data = b"".join(bytes(part) for part in parts)
        used = sum(len(other) for name, other in self.objects.items() if name != key)
        if self.capacity is not None and used + len(data) > self.capacity:
            raise ObjectStoreFull(f"{self._url} is full: {used} of {self.capacity} bytes are used; make space")
        self.objects[key] = data
        self.written_ms[key] = self._clock()
        with_answer()

    def size(self, key: str) -> int:
        self._begin(StoreCall("size", key))()
        return len(self._object(key))

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        self._begin(StoreCall("get_range", key, start, size))()
        data = self._object(key)[start : start + size]
        if len(data) != size:
            raise RemoteObjectDamaged(f"{key} has no bytes {start} to {start + size - 1}; restore it")
        return data

    def drop_cached(self, key: str) -> None:
        self._begin(StoreCall("drop_cached", key))()
        self._object(key)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._begin(StoreCall("list", prefix))()
        for key, data in sorted(self.objects.items()):
            if not prefix or key.startswith(f"{prefix}/"):
                yield StoredObject(key, len(data), Millis(self.written_ms.get(key, 0)))

    def delete(self, key: str) -> None:
        with_answer = self._begin(StoreCall("delete", key))
        self.objects.pop(key, None)
        with_answer()

    def _object(self, key: str) -> bytes:
        if key not in self.objects:
            raise RemoteObjectMissing(f"{self._url} has no object {key}; restore it")
        return self.objects[key]

    def _begin(self, call: StoreCall) -> Callable[[], None]:
        """Note the call and fail it if that is planned. Returns what to call before it is answered."""
        self.calls.append(call)
        self.on_call(call)
        plan = next((each for each in self._plans if each.operation == call.operation and each.times), None)
        if plan is None:
            return lambda: None
        plan.times -= 1
        if not plan.after:
            raise plan.error()

        def lose_answer() -> None:
            raise plan.error()

        return lose_answer
