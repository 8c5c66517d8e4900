"""Applies client quotas to calls and streams: charges them, and delays what exceeds a quota.

A stream waits before its next message is read or its next records are sent, so that a client that floods it is slowed
by the flow control of its connection. A call waits before it is handled. Neither keeps answers while it waits.

The table of APIs says what has quotas (`Api.is_throttled`). SASL, which has none, has bounds of its own.
Not here: limits and rates (client_quotas.py), bytes and messages (node/listeners/), who a client is (its listener).
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
"""Limit of the bytes of all calls that wait because of a quota: gRPC has received a call completely before it can be
delayed. A call beyond it is refused. Streams do not count: they wait before they read. Each user may have as many bytes
waiting as then remain free, so that one user alone leaves half of them to others, and two a quarter (the dynamic
thresholds of Choudhury and Hahne for shared buffers)."""

_BYTE_RATES: Final = (QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE)
_PERCENT_SECONDS: Final = 1e-7
"""One nanosecond of a second, in percent."""
_SMOOTHING: Final = 8
"""Calls over which the typical work of a call falls to that of cheaper ones."""


class Quotas:
    """The client quotas of a node. Listeners of all protocols share them. Without limits no request is delayed."""

    def __init__(self, limits: ClientQuotas | None = None) -> None:
        """limits: by default none, and no clock."""
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
        known = {quota.value: quota for quota in QuotaType}
        limits = {
            entity: {known[each.key]: each.value for each in values if each.key in known}
            for entity, values in image.quotas.items()
        }
        self.enabled = bool(limits)
        self.limits.configure(limits)
        self.wake()

    def throttle(self, api: str, principal: str, client_id: str) -> Throttle:
        """The quotas of one call or stream. api: `Data.Fetch`. principal: in Kafka's form, `User:alice`."""
        return Throttle(self, api, principal.removeprefix("User:"), client_id)

    def typical_ns(self, api: str, key: QuotaKey) -> float:
        """The typical work of a call of those who share a limit; 0 if it is not known. Calls take it in advance."""
        return self._typical_ns.get((api, key), 0.0)

    def worked(self, api: str, key: QuotaKey, spent_ns: int) -> None:
        """Add a call of those who share a limit. The typical work rises at once and falls slowly, so that a client
        cannot hide expensive calls among as many cheap ones. Cheap calls of others leave it as it is."""
        typical = self._typical_ns.pop((api, key), 0.0)
        self._typical_ns[api, key] = max(float(spent_ns), typical + (spent_ns - typical) / _SMOOTHING)
        if len(self._typical_ns) > ENTITIES_MAX:
            self._typical_ns.popitem(last=False)

    @property
    def delayed_bytes(self) -> int:
        """Bytes of the calls that wait."""
        return self._delayed.total()

    def has_room(self, user: str, size: int) -> bool:
        """Whether another call of this user may wait (bytes)."""
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
        """Let every wait compute its end again."""
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
        declared = APIS.get(api)  # None: this process itself asks
        self._quota = None if declared is None else declared.quota
        self._known = declared is not DATA_FETCH_STREAM
        """Whether it is known who sends the requests: another node may fetch on a stream."""
        self.exempt = declared is not None and not declared.is_throttled
        self._session_or_none: QuotaSession | None = None
        self._advance_ns = 0.0

    @property
    def applies(self) -> bool:
        """Whether any quota can hold for this call or stream."""
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
        """Charge time on the event loop (nanoseconds). It is known only after the work: one slow request must not stop
        a client for longer than a window."""
        if self.applies:
            key = self._session.key(QuotaType.REQUEST_PERCENTAGE)
            if key is not None and spent_ns:  # 0: it was refused before it was handled
                self._quotas.worked(self._api, key, spent_ns)
            advance_ns, self._advance_ns = self._advance_ns, 0.0
            self._charge(QuotaType.REQUEST_PERCENTAGE, (spent_ns - advance_ns) * _PERCENT_SECONDS, bounded=True)

    @contextmanager
    def mutation(self, partitions: int) -> Iterator[None]:
        """Charge partitions that the request creates or deletes; a request that certainly fails is not charged. Raises
        ThrottlingQuotaExceeded (KIP-599)."""
        quota = QuotaType.CONTROLLER_MUTATION_RATE
        if partitions <= 0 or self._quota is not quota or not self.applies or self._session.limit(quota) is None:
            yield
            return
        if delay := self._session.delay_ms(quota):
            self._quotas.limits.totals[quota].exceeded += 1
            raise ThrottlingQuotaExceeded(
                f"{self._api} by {self._who}: the quota {quota.value}={self._session.limit(quota):.15g} is exceeded; "
                f"try again in {delay} ms, or raise the quota (`tidelog quota set`)",
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
        """Wait until the next message of a stream may be read. The first one of a fetch stream is read at once: it
        tells whether another node sends it. It is small, and its answer waits."""
        if self._known:
            await self.wait()

    async def admit(self, size: int, deadline_ms: int | None) -> None:
        """Charge a call, and wait until its turn, or until the node stops. size: its bytes. deadline_ms: how long its
        caller waits; None: not known. Raises ThrottlingQuotaExceeded if the caller would not wait that long, or too
        many bytes wait.

        A call is charged before it waits, so each one that waits has a turn of its own, and none looks at the others.
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
        self.reserve(size)
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
        """Charge a call (bytes), and its typical work in advance, without a wait."""
        if self._quota is QuotaType.PRODUCER_BYTE_RATE:
            self._charge(self._quota, size)
        quota = QuotaType.REQUEST_PERCENTAGE
        key, limit = self._session.key(quota), self._session.limit(quota)
        if key is None or limit is None:
            return
        typical_ns = self._quotas.typical_ns(self._api, key)
        amount = typical_ns * _PERCENT_SECONDS
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
    def _who(self) -> str:
        return f"user {self._user!r}, client id {self._client_id!r}"

    def _refusal(self, delay: int, reason: str) -> ThrottlingQuotaExceeded:
        return ThrottlingQuotaExceeded(
            f"{self._api} by {self._who} must wait {delay} ms because of a quota, and {reason}: try again later, or "
            "raise the quota (`tidelog quota list` shows them)",
            throttle_time_ms=delay,
        )


NO_THROTTLE: Final = Quotas().throttle("", "", "")
"""For requests of this process itself."""
