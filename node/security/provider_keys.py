"""A node's copy of the keys of an identity provider: read from a file or fetched from a URL, and refreshed.

Invariants: the event loop never waits for the disk or the network, and at most one attempt to read is under way. Keys
stay in use until a usable set replaces them.
Source: KIP-768 (RefreshingHttpsJwks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from node.runtime.work import run_in
from node.security.json_web_keys import KeySet, UnusableKeys, parse_key_set
from node.security.key_source import HttpReading, file_state, is_file, path_of, read_key_file
from node.security.sasl_settings import OAuthBearerConfig
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import InvalidConfig
from tidelog.types import Millis

_log = logging.getLogger("node.security")

ATTEMPT_S: Final = 5.0
"""Time limit of an attempt. It is short because handshakes with an unknown key wait for the attempt."""
UNKNOWN_KEY_MS: Final = 10_000
"""Minimum time between attempts that callers cause by naming unknown keys, whatever their number: they must not make
the node flood the provider (Kafka: 60 s for each key)."""
FILE_CHECK_MS: Final = 5_000
"""Interval of checks whether the file has changed."""
LOG_AGAIN_MS: Final = 300_000
"""Interval of the log lines about a failure that lasts."""
TICK_MS: Final = 1_000
"""Longest sleep of the task that starts attempts: another task may bring the next one forward."""


class ProviderKeys:
    """The keys of the identity provider that one node uses."""

    def __init__(
        self, config: OAuthBearerConfig, *, clock: Clock, executor: Executor, changed: Callable[[], None]
    ) -> None:
        """executor: for disk and network. changed: called on the event loop after the keys have changed."""
        self._config, self._clock, self._executor, self._changed = config, clock, executor, changed
        self.present: KeySet | None = None
        """The keys in use; None before the first set was read."""
        self.attempts = 0
        self._state: tuple[int, int, int] | None = None
        """The state of the file when it was last read: an unchanged file is not read again."""
        self._due_ms = Millis(0)
        """When the next regular attempt begins."""
        self._allowed_ms = Millis(0)
        """When the next attempt may begin that a caller causes."""
        self._backoff_ms = config.retry_ms
        self._failure, self._logged_ms = "", Millis(0)
        """The failure that lasts, empty if there is none, and when it was last logged."""
        self._wanted = asyncio.Event()
        self._attempted: asyncio.Future[None] | None = None
        """Done after the attempt that is requested or under way; None if there is none."""

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the present keys."""
        return frozenset() if self.present is None else self.present.digests

    async def load(self) -> None:
        """Read the keys of a file for the first time. Those of a URL are fetched by `run`: a node can start while the
        provider is down. Raises InvalidConfig."""
        if not is_file(self._config.url):
            return
        try:
            await self._attempt()
        except UnusableKeys as error:
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url: {self._config.url}: {error}. Write the keys of the identity "
                "provider to this file, readable for the node"
            ) from None

    async def run(self) -> None:
        """Refresh the keys until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._request_regularly(), name="refresh of keys")
            while True:
                await self._wanted.wait()
                try:
                    await self._attempt()
                except UnusableKeys as error:
                    self._note(error)
                finally:
                    self._wanted.clear()
                    attempted, self._attempted = self._attempted, None
                    if attempted is not None and not attempted.done():
                        attempted.set_result(None)

    async def look_again(self) -> None:
        """Read the keys again, if that is allowed now, because a caller names an unknown one; return after that."""
        at = self._clock.monotonic_ms()
        if self._attempted is None and at >= self._allowed_ms:
            self._allowed_ms = Millis(at + UNKNOWN_KEY_MS)
            self._request_attempt()
        if self._attempted is not None:
            # Bounded: while the node starts, `run` does not run yet, and the attempt does not begin.
            await asyncio.wait((self._attempted,), timeout=2 * ATTEMPT_S)

    def _request_attempt(self) -> None:
        if self._attempted is None:
            self._attempted = asyncio.get_running_loop().create_future()
        self._wanted.set()

    async def _request_regularly(self) -> None:
        while True:
            left_ms = self._due_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._request_attempt()
            await self._clock.sleep_ms(TICK_MS if left_ms <= 0 else min(TICK_MS, left_ms))

    async def _attempt(self) -> None:
        """Read the keys, and use them if they can be read. Raises UnusableKeys."""
        self._due_ms = Millis(self._clock.monotonic_ms() + self._backoff_ms)
        self._backoff_ms = Millis(min(2 * self._backoff_ms, self._config.retry_max_ms))
        found = await self._read()
        self._backoff_ms = self._config.retry_ms
        pause_ms = FILE_CHECK_MS if is_file(self._config.url) else self._config.refresh_ms
        self._due_ms = Millis(self._clock.monotonic_ms() + pause_ms)
        if self._failure:
            _log.info("the keys of the identity provider can be read again", extra={"url": self._config.url})
            self._failure = ""
        before = self.present
        if found is None:
            return
        self.present = found
        if before is None or before.digests != found.digests:
            _log.info(
                "read the keys of the identity provider", extra={"keys": len(found.keys), "url": self._config.url}
            )
            self._changed()

    async def _read(self) -> KeySet | None:
        """Return the keys, or None if the file has not changed since it was last read."""
        url = self._config.url
        request = None if is_file(url) else HttpReading(url, self._config.ca_file)

        def work() -> KeySet | None:
            return self._parse_changed(path_of(url)) if request is None else parse_key_set(request.run())

        self.attempts += 1
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await run_in(self._executor, work)
        except TimeoutError:
            raise UnusableKeys(f"it was not read within {ATTEMPT_S:g} s") from None
        finally:
            if request is not None:
                request.abort()  # else the worker would wait for a slow provider, and the next attempt for the worker

    def _parse_changed(self, path: str) -> KeySet | None:
        """Runs on the executor; nothing else uses `_state`."""
        state = file_state(path)
        if state == self._state:
            return None
        found = parse_key_set(read_key_file(path))
        self._state = state
        return found

    def _note(self, error: UnusableKeys) -> None:
        """Log a failure when it is new, and at intervals while it lasts."""
        at = self._clock.monotonic_ms()
        if str(error) == self._failure and at - self._logged_ms < LOG_AGAIN_MS:
            return
        self._failure, self._logged_ms = str(error), at
        if self.present is None:
            effect = "no token is accepted until they were read once"
        else:
            effect = "the known ones stay valid; tokens signed with others are refused"
        _log.error(
            "the keys of the identity provider at %s cannot be used: %s. %s. Check the provider and "
            "sasl.oauthbearer.jwks.endpoint.url; the node tries again by itself",
            self._config.url,
            error,
            effect,
        )
