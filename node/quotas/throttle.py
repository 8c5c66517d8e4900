"""Applies client quotas to calls and streams: charges them, and delays those that exceed a quota.

A stream waits before its next message is read or its next records are sent: the flow control of its connection then
slows down a client that floods it. A call waits before it is handled. Neither keeps an answer in memory while it waits.

The table of APIs says which ones have quotas (`Api.is_throttled`). SASL has none: its own limits are in node/security.
Not here: limits and rates (client_quotas.py), bytes and messages, the identity of a client (node/listeners/).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from node.api.table import APIS, DATA_FETCH_STREAM
from node.quotas.client_quotas import ENTITIES_MAX, ClientQuotas, QuotaKey, QuotaSession
from node.quotas.throttle_log import ThrottleLog
from replication.controller.image import ClusterImage
from tidelog.errors import ThrottlingQuotaExceeded, TidelogError
from tidelog.types import QuotaType

DELAYED_BYTES_MAX: Final = 32 << 20
"""Limit of the bytes of all calls that wait because of a quota, since a call is received completely before it can be
delayed. A call beyond the limit is refused. Streams do not count: they wait before they read. A user may have as many
bytes waiting as then remain free: one user alone leaves half of the limit to others, two leave at least a quarter (the
dynamic thresholds of Choudhury and Hahne for shared buffers)."""

_BYTE_RATES: Final = (QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE)
_PERCENT_SECONDS: Final = 1e-7
"""One nanosecond of a second, in percent."""
_SMOOTHING: Final = 8
"""The number of cheaper calls after which the typical work of a call has mostly fallen to theirs."""


class Quotas:
    """The client quotas of a node. Listeners of all protocols share them. Without limits no request is delayed."""

    def __init__(self, limits: ClientQuotas | None = None) -> None:
        """limits: by default there are none, and no clock is needed."""
        self.limits = limits or ClientQuotas(lambda: 0)
        self.log = ThrottleLog(self.limits.now_ms)
        self.enabled = False
        """Whether the cluster has any quota."""
        self.closed = False
        self.waiting = 0
        """Calls and streams that wait now."""
        self._delayed: Counter[str] = Counter()
        """Bytes of the calls that wait, by user. Users without any are not kept."""
        self._typical_ns: OrderedDict[tuple[str, QuotaKey], float] = OrderedDict()
        """The typical work of a call by API and those who share a limit (nanoseconds)."""
        self._seen: object = None
        self._changed = asyncio.Event()

    def on_image(self, image: ClusterImage) -> None:
        """Apply the quotas of a committed image at once, also to clients that wait."""
        if image.quotas is self._seen:
            return
        self._seen = image.quotas
        types = {quota.value: quota for quota in QuotaType}
        limits = {
            entity: {types[value.key]: value.value for value in values if value.key in types}
            for entity, values in image.quotas.items()
        }
        self.enabled = bool(limits)
        self.limits.configure(limits)
        self.wake()

    def throttle(self, api: str, principal: str, client_id: str) -> Throttle:
        """The quotas of one call or stream. api: `Data.Fetch`. principal: in Kafka's form, `User:alice`."""
        return Throttle(self, api, principal.removeprefix("User:"), client_id)

    def typical_ns(self, api: str, key: QuotaKey) -> float:
        """The typical work of a call by those who share a limit (nanoseconds), charged before the work is known; 0 if
        no call was measured yet."""
        return self._typical_ns.get((api, key), 0.0)

    def worked(self, api: str, key: QuotaKey, spent_ns: int) -> None:
        """Note the work of a call by one of those who share a limit."""
        typical = self._typical_ns.pop((api, key), 0.0)
        # It rises at once and falls slowly: a client cannot hide expensive calls among as many cheap ones.
        self._typical_ns[api, key] = max(float(spent_ns), typical + (spent_ns - typical) / _SMOOTHING)
        if len(self._typical_ns) > ENTITIES_MAX:
            self._typical_ns.popitem(last=False)

    @property
    def delayed_bytes(self) -> int:
        """Bytes of the calls that wait."""
        return self._delayed.total()

    def has_room(self, user: str, size: int) -> bool:
        """Whether another call of this user, with `size` bytes, may wait."""
        return self._delayed.get(user, 0) + size <= DELAYED_BYTES_MAX - self.delayed_bytes - size

    @contextmanager
    def delayed(self, user: str, size: int) -> Iterator[None]:
        """Count the bytes of a call while it waits."""
        self._delayed[user] += size
        try:
            yield
        finally:
            self._delayed[user] -= size
            if not self._delayed[user]:
                del self._delayed[user]

    def wake(self) -> None:
        """Let every waiting call and stream compute its delay again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Let no call wait any more: the node stops."""
        self.closed = True
        self.wake()

    async def wait_changed(self, timeout_ms: float) -> bool:
        """Wait until the quotas change, or for this time. Returns whether they have changed."""
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1


class Throttle:
    """The quotas of one call or stream."""

    __slots__ = (
        "_advance_ns",
        "_api",
        "_client_id",
        "_known",
        "_quota",
        "_quotas",
        "_session_or_none",
        "_user",
        "exempt",
    )

    def __init__(self, quotas: Quotas, api: str, user: str, client_id: str) -> None:
        self._quotas, self._api, self._user, self._client_id = quotas, api, user, client_id
        declared = APIS.get(api)  # None: a request of this process itself
        self._quota = None if declared is None else declared.quota
        """The type of quota that its bytes or changes are charged to, beside that of the processing time."""
        self._known = declared is not DATA_FETCH_STREAM
        """Whether the kind of sender is known. A fetch stream may be that of another node, which has no quotas: only
        its first request tells."""
        self.exempt = declared is not None and not declared.is_throttled
        self._session_or_none: QuotaSession | None = None
        self._advance_ns = 0.0
        """Work of the present call that was charged in advance."""

    @property
    def applies(self) -> bool:
        """Whether any quota can apply to this call or stream."""
        return self._quotas.enabled and not self.exempt

    def received(self, size: int) -> None:
        """Charge a request (bytes)."""
        self._known = True
        if self._quota is QuotaType.PRODUCER_BYTE_RATE and self.applies:
            self._charge(self._quota, size)

    def sent(self, size: int) -> int:
        """Charge an answer (bytes). Returns how long this client must wait now (milliseconds)."""
        if not self.applies:
            return 0
        if self._quota is QuotaType.CONSUMER_BYTE_RATE:
            self._charge(self._quota, size)
        return self.delay_ms()

    def worked(self, spent_ns: int) -> None:
        """Charge the time that a request took on the event loop (nanoseconds)."""
        if self.applies:
            key = self._session.key(QuotaType.REQUEST_PERCENTAGE)
            if key is not None and spent_ns:  # 0: it was refused before it was handled
                self._quotas.worked(self._api, key, spent_ns)
            advance_ns, self._advance_ns = self._advance_ns, 0.0
            # Bounded: a client cannot know the time before, and one slow request must not stop it for longer than a
            # window.
            self._charge(QuotaType.REQUEST_PERCENTAGE, (spent_ns - advance_ns) * _PERCENT_SECONDS, bounded=True)

    @contextmanager
    def mutation(self, partitions: int) -> Iterator[None]:
        """Charge the partitions that the request creates or deletes. The charge is taken back if the request certainly
        changed nothing. Raises ThrottlingQuotaExceeded (KIP-599)."""
        quota = QuotaType.CONTROLLER_MUTATION_RATE
        if partitions <= 0 or self._quota is not quota or not self.applies or self._session.limit(quota) is None:
            yield
            return
        if delay := self._session.delay_ms(quota):
            self._quotas.limits.totals[quota].exceeded += 1
            raise ThrottlingQuotaExceeded(
                f"{self._api} by {self._client}: the quota {quota.value}={self._session.limit(quota):.15g} is "
                f"exceeded; try again in {delay} ms, or raise the quota (`tidelog quota set`)",
                throttle_time_ms=delay,
            )
        self._charge(quota, partitions)
        try:
            yield
        except TidelogError as error:
            if error.written is False:
                self._session.charge(quota, -partitions)
            raise

    def delay_ms(self) -> int:
        """How long this client must still wait (milliseconds)."""
        if not self.applies:
            return 0
        session = self._session
        delay = session.delay_ms(QuotaType.REQUEST_PERCENTAGE)
        if self._quota in _BYTE_RATES:
            delay = max(delay, session.delay_ms(self._quota))
        return delay

    async def wait(self) -> None:
        """Wait until this client may continue."""
        while delay := self.delay_ms():
            await self._quotas.wait_changed(delay)

    async def wait_to_read(self) -> None:
        """Wait until the next message of a stream may be read."""
        if self._known:  # else the message must be read first: it is small, and its answer waits
            await self.wait()

    async def admit(self, size: int, deadline_ms: int | None) -> None:
        """Charge a call, then wait until it may be handled or the node stops. size: in bytes. deadline_ms: how long the
        caller waits; None if that is not known. Raises ThrottlingQuotaExceeded if the caller would not wait that long,
        or if too many bytes wait.
        """
        if not (delay := self.delay_ms()):
            self.reserve(size)
            return
        quotas = self._quotas
        if deadline_ms is not None and delay >= deadline_ms:
            raise self._refusal(delay, f"its caller waits for {deadline_ms} ms only")
        if not quotas.has_room(self._user, size):
            waiting = f"its {size} bytes and those of calls that wait already, {quotas.delayed_bytes}, are too many"
            raise self._refusal(delay, waiting)
        self.reserve(size)  # before the wait: the next call of this client is then delayed for longer than this one
        try:
            with quotas.delayed(self._user, size):
                await self._wait_turn(delay)
        except BaseException:
            self._take_back(size)
            raise

    async def _wait_turn(self, delay_ms: int) -> None:
        quotas = self._quotas
        turn = quotas.limits.now_ms() + delay_ms
        while not quotas.closed and (left := turn - quotas.limits.now_ms()) > 0:
            if await quotas.wait_changed(left):
                turn = min(turn, quotas.limits.now_ms() + self.delay_ms())

    def reserve(self, size: int) -> None:
        """Charge a call of `size` bytes, and its typical work in advance, without a wait."""
        if self._quota is QuotaType.PRODUCER_BYTE_RATE:
            self._charge(self._quota, size)
        quota = QuotaType.REQUEST_PERCENTAGE
        key, limit = self._session.key(quota), self._session.limit(quota)
        if key is None or limit is None:
            return
        typical_ns = self._quotas.typical_ns(self._api, key)
        amount = typical_ns * _PERCENT_SECONDS
        # An advance must not delay a client for longer than a window, as the work itself cannot (`worked`).
        if self._session.delay_ms(quota) + amount / limit * 1_000 <= self._quotas.limits.window_ms:
            self._advance_ns = typical_ns
            self._charge(quota, amount)

    def _take_back(self, size: int) -> None:
        if self._quota is QuotaType.PRODUCER_BYTE_RATE:
            self._session.charge(self._quota, -size)
        self._session.charge(QuotaType.REQUEST_PERCENTAGE, -self._advance_ns * _PERCENT_SECONDS)
        self._advance_ns = 0.0

    def _charge(self, quota: QuotaType, amount: float, *, bounded: bool = False) -> None:
        if delay := self._session.charge(quota, amount, bounded=bounded):
            limit = self._session.limit(quota)
            assert limit is not None, "only a limit delays"
            self._quotas.log.note(quota, limit, self._user, self._client_id, delay)

    @property
    def _session(self) -> QuotaSession:
        if self._session_or_none is None:
            self._session_or_none = self._quotas.limits.session(self._user, self._client_id)
        return self._session_or_none

    @property
    def _client(self) -> str:
        return f"user {self._user!r}, client id {self._client_id!r}"

    def _refusal(self, delay: int, reason: str) -> ThrottlingQuotaExceeded:
        return ThrottlingQuotaExceeded(
            f"{self._api} by {self._client} must wait {delay} ms because of a quota, and {reason}: try again later, or "
            "raise the quota (`tidelog quota list` shows them)",
            throttle_time_ms=delay,
        )


NO_THROTTLE: Final = Quotas().throttle("", "", "")
"""For requests of this process itself."""
