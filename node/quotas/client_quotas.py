"""Client quotas as in Kafka: the limit that applies to a client, its use of the limit, and how long it must wait.

A limit is set for a user, a client id, a client id of a user, or the defaults of these. For each type of quota the most
specific limit applies (KIP-55). All clients of a user share a limit of the user, and all clients with one client id
share a limit of that id. Each node applies the limits to its own requests only, as in Kafka.

Invariant: a changed limit applies at once, also to a client that waits.
Not here: waiting, and what is charged (throttle.py); storing limits (replication/controller/).
Source: Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from node.quotas.token_bucket import TokenBucket
from tidelog.types import QuotaEntity, QuotaType
from tidelog.values import dataclass

SAMPLES: Final = 11
SAMPLE_MS: Final = 1_000
"""Kafka's defaults of `quota.window.num` and `quota.window.size.seconds`."""

ENTITIES_MAX: Final = 10_000
"""Limit of the entities whose use is tracked. One takes about 0.5 KiB: a flood of client ids takes some 5 MiB."""

_DEFAULT: Final = ""
QuotaKey = tuple[QuotaType, str | None, str | None]
"""The type of quota, and the user and the client id that share a limit; None: all of them."""
_NO_LIMITS: Final[Mapping[QuotaType, float]] = {}


@dataclass(frozen=True, slots=True)
class ThrottledEntity:
    """An entity that must wait."""

    quota: QuotaType
    named: QuotaEntity
    """The entity for which the limit is set; it may be a default."""
    wait_ms: int


@dataclass(slots=True)
class QuotaTotals:
    """Totals of one type of quota since the start of the node."""

    exceeded: int = 0
    """How often a limit was exceeded."""
    wait_ms: int = 0
    """The sum of the waits that this caused."""


class ClientQuotas:
    """The limits of the cluster, and their use on this node."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        samples: int = SAMPLES,
        sample_ms: int = SAMPLE_MS,
        entities_max: int = ENTITIES_MAX,
    ) -> None:
        """now_ms: monotonic time. samples, sample_ms: an idle client may use the quota of `samples` intervals of
        `sample_ms` at once."""
        self.now_ms = now_ms
        self.window_ms, self._entities_max = samples * sample_ms, entities_max
        self._limits: Mapping[QuotaEntity, Mapping[QuotaType, float]] = {}
        self._used: OrderedDict[QuotaKey, TokenBucket] = OrderedDict()
        self.version = 0
        """Raised by each change of the limits."""
        self.totals = {quota: QuotaTotals() for quota in QuotaType}

    @property
    def tracked(self) -> int:
        """Number of entities that are tracked."""
        return len(self._used)

    def configure(self, limits: Mapping[QuotaEntity, Mapping[QuotaType, float]]) -> None:
        """Replace all limits."""
        self._limits = limits
        self.version += 1
        now = self.now_ms()
        for key, bucket in list(self._used.items()):
            limit = self._find(key[0], _names_of_sharers(key))
            if limit is None:
                del self._used[key]
            else:
                bucket.set_limit(limit[1], now)

    def session(self, user: str, client_id: str) -> QuotaSession:
        """The quotas of one connection, stream or call."""
        return QuotaSession(self, user, client_id)

    def throttled(self, most: int) -> list[ThrottledEntity]:
        """The entities that must wait the longest, at most `most`."""
        now = self.now_ms()
        delays = [(delay, key) for key, bucket in self._used.items() if (delay := bucket.delay_ms(now))]
        delays.sort(key=lambda pair: -pair[0])
        limits = ((delay, key, self._find(key[0], _names_of_sharers(key))) for delay, key in delays[:most])
        return [ThrottledEntity(key[0], limit[0], delay) for delay, key, limit in limits if limit is not None]

    def resolve(self, quota: QuotaType, user: str, client_id: str) -> tuple[QuotaKey, float] | None:
        """The key of those who share this client's limit, and the limit; None if no limit applies."""
        applied = self._find(quota, _names_of_client(user, client_id))
        if applied is None:
            return None
        named, limit = applied
        return (quota, None if named.user is None else user, None if named.client_id is None else client_id), limit

    def charge(self, key: QuotaKey, limit: float, amount: float, *, bounded: bool = False) -> int:
        """Record use of the limit; a negative amount takes it back. bounded: see TokenBucket.take. Returns how long the
        entity must wait (milliseconds)."""
        now, bucket = self.now_ms(), self._bucket(key, limit)
        before = bucket.delay_ms(now)
        bucket.take(amount, now, bounded=bounded)
        delay = bucket.delay_ms(now)
        if delay > before:
            totals = self.totals[key[0]]
            totals.exceeded += 1
            totals.wait_ms += delay - before
        return delay

    def delay_ms(self, key: QuotaKey) -> int:
        """How long the entity must still wait (milliseconds)."""
        bucket = self._used.get(key)
        return 0 if bucket is None else bucket.delay_ms(self.now_ms())

    def _bucket(self, key: QuotaKey, limit: float) -> TokenBucket:
        bucket = self._used.get(key)
        if bucket is not None:
            self._used.move_to_end(key)
            return bucket
        # The entity that was unused for the longest time starts again with a full bucket, as after a long pause.
        if len(self._used) >= self._entities_max:
            self._used.popitem(last=False)
        bucket = self._used[key] = TokenBucket(limit, self.window_ms, self.now_ms())
        return bucket

    def _find(self, quota: QuotaType, names: Iterator[QuotaEntity]) -> tuple[QuotaEntity, float] | None:
        """The first of these entities that has a limit, with the limit."""
        for named in names:
            limit = self._limits.get(named, _NO_LIMITS).get(quota)
            if limit is not None:
                return named, limit
        return None


class QuotaSession:
    """The quotas of one connection, stream or call. It keeps the limits that apply to it until one is changed."""

    __slots__ = ("_client_id", "_limits", "_quotas", "_user", "_version")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self._quotas, self._user, self._client_id = quotas, user, client_id
        self._limits: dict[QuotaType, tuple[QuotaKey, float] | None] = {}
        """The results of `ClientQuotas.resolve`, as of `_version`."""
        self._version = quotas.version

    def charge(self, quota: QuotaType, amount: float, *, bounded: bool = False) -> int:
        """As ClientQuotas.charge, for this client; 0 if no limit applies."""
        applied = self._limit(quota)
        return 0 if applied is None else self._quotas.charge(*applied, amount, bounded=bounded)

    def delay_ms(self, quota: QuotaType) -> int:
        """How long this client must still wait because of this quota (milliseconds)."""
        applied = self._limit(quota)
        return 0 if applied is None else self._quotas.delay_ms(applied[0])

    def limit(self, quota: QuotaType) -> float | None:
        """The limit that applies to this client, or None."""
        applied = self._limit(quota)
        return None if applied is None else applied[1]

    def key(self, quota: QuotaType) -> QuotaKey | None:
        """The key of those who share this client's limit; None if no limit applies."""
        applied = self._limit(quota)
        return None if applied is None else applied[0]

    def _limit(self, quota: QuotaType) -> tuple[QuotaKey, float] | None:
        quotas = self._quotas
        if self._version != quotas.version:
            self._limits, self._version = {}, quotas.version
        if quota not in self._limits:
            self._limits[quota] = quotas.resolve(quota, self._user, self._client_id)
        return self._limits[quota]


def _names_of_client(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """The entities whose limit may apply to a client, the most specific one first (KIP-55)."""
    for each_user in (user, _DEFAULT):
        for each_client in (client_id, _DEFAULT, None):
            yield QuotaEntity(each_user, each_client)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, _DEFAULT)


def _names_of_sharers(key: QuotaKey) -> Iterator[QuotaEntity]:
    """The entities whose limit may apply to those who share a key: the same, without those less specific than the
    key."""
    _, user, client_id = key
    for each_user in (None,) if user is None else (user, _DEFAULT):
        for each_client in (None,) if client_id is None else (client_id, _DEFAULT):
            yield QuotaEntity(each_user, each_client)
