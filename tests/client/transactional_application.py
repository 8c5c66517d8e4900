"""An application on a transaction core, driven call by call."""

from __future__ import annotations

import random

from tidelog.client.transaction_core import (
    Ask,
    Done,
    Opened,
    RecordsRefused,
    TransactionCore,
    TransactionEffect,
    TransactionPolicy,
)
from tidelog.errors import (
    ConnectionLost,
    TidelogError,
)
from tidelog.types import Millis, ProducerId

POLICY = TransactionPolicy(
    transactional_id="t",
    transaction_timeout_ms=60_000,
    max_block_ms=10_000,
    retry_backoff_ms=100,
    retry_backoff_ms_max=1_000,
)


class Application:
    """A core, driven by hand: its clock and what its calls came to."""

    def __init__(self, seed: int = 1) -> None:
        self.core = TransactionCore(POLICY, random.Random(seed))
        self.now = 1_000
        self.asked: list[Ask] = []
        self.opened: list[tuple[int, int]] = []
        self.refused: list[TidelogError] = []
        self.done: list[TidelogError | None] = []

    @property
    def at(self) -> Millis:
        return Millis(self.now)

    def apply(self, effects: list[TransactionEffect]) -> None:
        for effect in effects:
            self._apply(effect)

    def _apply(self, effect: TransactionEffect) -> None:
        match effect:
            case Ask():
                self.asked.append(effect)
                self.now += effect.pause_ms
            case Opened(producer_id, epoch):
                self.opened.append((producer_id, epoch))
            case RecordsRefused(reason):
                self.refused.append(reason)
            case Done(error):
                self.done.append(error)

    def begin(self) -> None:
        self.apply(self.core.begin(self.at))

    def commit(self, *, has_written: bool = True) -> None:
        self.apply(self.core.commit(self.at, has_written=has_written))

    def abort(self, *, has_written: bool = True) -> None:
        self.apply(self.core.abort(self.at, has_written=has_written))

    def identify(self, producer_id: int = 7, epoch: int = 0) -> None:
        self.apply(self.core.identified(ProducerId(producer_id), epoch, self.at))

    def refuse(self, error: TidelogError, *, is_applied: bool | None = False) -> None:
        self.apply(self.core.call_failed(error, is_applied, self.at))

    def lose(self) -> None:
        """The answer to the last call got lost."""
        self.refuse(ConnectionLost("the connection broke"), is_applied=None)

    def fail_records(self, error: TidelogError) -> None:
        self.apply(self.core.records_failed(error))

    def in_transaction(self) -> Application:
        self.begin()
        self.identify()
        return self
