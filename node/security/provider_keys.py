"""The keys of an identity provider, as a node has them: read from a file or fetched from a URL, and kept present.

Invariants: nothing here waits for the disk or the network on the event loop, and at most one attempt is under way. What
callers send decides little: keys that are not known cause at most one attempt in `UNKNOWN_KEY_MS`, whatever their
number. Keys that were read stay in use until another set was read that can be used.
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
"""Limit of an attempt. Handshakes that need a new key wait for it, and a client for them."""
UNKNOWN_KEY_MS: Final = 10_000
"""Least interval of attempts that callers cause (Kafka: 60 s for each key)."""
FILE_CHECK_MS: Final = 5_000
"""Interval of looking whether the file was changed."""
LOG_AGAIN_MS: Final = 300_000
"""Interval of log lines for one failure that lasts."""
TICK_MS: Final = 1_000
"""Longest sleep between looks at the clock."""


class ProviderKeys:
    """The keys of the provider of one node."""

    def __init__(
        self, config: OAuthBearerConfig, *, clock: Clock, executor: Executor, changed: Callable[[], None]
    ) -> None:
        """executor: for disk and network. changed: called with each new set of keys, on the event loop."""
        self._config, self._clock, self._executor, self._changed = config, clock, executor, changed
        self.present: KeySet | None = None
        """None: none was read yet."""
        self.attempts = 0
        self._state: tuple[int, int, int] | None = None
        self._due_ms = self._allowed_ms = Millis(0)
        self._backoff_ms = config.retry_ms
        self._failure, self._logged_ms = "", Millis(0)
        self._wanted = asyncio.Event()
        self._attempted: asyncio.Future[None] | None = None
        """Done after the attempt that is under way or wanted; None: there is none."""

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
        """Keep the keys present, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_time(), name="time of keys")
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
        """A caller names a key that is not known: read the keys again if that is allowed now, and wait for it."""
        at = self._clock.monotonic_ms()
        if self._attempted is None and at >= self._allowed_ms:
            self._allowed_ms = Millis(at + UNKNOWN_KEY_MS)
            self._want()
        if self._attempted is not None:
            await asyncio.wait((self._attempted,), timeout=2 * ATTEMPT_S)  # while a node starts, none begins

    def _want(self) -> None:
        if self._attempted is None:
            self._attempted = asyncio.get_running_loop().create_future()
        self._wanted.set()

    async def _keep_time(self) -> None:
        while True:
            left_ms = self._due_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._want()
            await self._clock.sleep_ms(TICK_MS if left_ms <= 0 else min(TICK_MS, left_ms))

    async def _attempt(self) -> None:
        """Read the keys. Raises UnusableKeys."""
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
        """The keys; None: the file is as it was when it was read last."""
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
                request.abort()

    def _parse_changed(self, path: str) -> KeySet | None:
        """Runs on the worker, the only one that uses `_state`."""
        state = file_state(path)
        if state == self._state:
            return None
        found = parse_key_set(read_key_file(path))
        self._state = state
        return found

    def _note(self, error: UnusableKeys) -> None:
        """Log a failure, but not each time."""
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
