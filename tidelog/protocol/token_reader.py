"""Obtaining the token of a user: from its file or its function, without waiting on the event loop.

Invariants: at most one call of the function, or reading of the file, is under way; who needs the token meanwhile waits
for its result, so that handshakes with many nodes cost one call. A token is not kept. Errors do not contain it.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from tidelog.errors import ConnectionFailed, InvalidConfig
from tidelog.security.oauth_bearer import checked_token
from tidelog.security.sasl_user import Sasl

_FUNCTION = "the result of the function for tokens"


class TokenReader:
    """Belongs to one running event loop."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self._reading: asyncio.Task[str] | None = None

    async def read(self, timeout_ms: int) -> str:
        """The present token. Raises InvalidConfig if there is no token, ConnectionFailed if the function failed or did
        not return in time: then callers try again."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read(), name="token")
            self._reading.add_done_callback(self._ended)
        reading = self._reading
        await asyncio.wait((reading,), timeout=timeout_ms / 1000)
        if not reading.done():
            raise ConnectionFailed("the function for tokens has not returned yet: check the identity provider")
        if reading.cancelled():
            raise ConnectionFailed("no token: this side closed the connection")
        return reading.result()

    async def close(self) -> None:
        """Cancel a read that is under way. A function that runs on a thread cannot be cancelled; its result is
        ignored."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # who waits for it raises it

    async def _read(self) -> str:
        loop, function = asyncio.get_running_loop(), self._sasl.token
        if function is None:
            return await loop.run_in_executor(None, self._sasl.read_token)
        try:
            is_async = inspect.iscoroutinefunction(function)
            found: Any = function() if is_async else await loop.run_in_executor(None, function)
            if inspect.isawaitable(found):
                found = await found
        except Exception as error:
            raise ConnectionFailed(
                f"the function for tokens failed ({type(error).__name__}): check the identity provider"
            ) from error
        if not isinstance(found, str):
            raise InvalidConfig(f"{_FUNCTION} must be a str, not {type(found).__name__}")
        return checked_token(found, _FUNCTION)
