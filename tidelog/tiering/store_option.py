"""The option `remoteStorage` of the Spark source: from where history is read. Pure, and without PySpark: jobs check it
before Spark starts."""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidConfig
from tidelog.tiering.obstore_store import ensure_store_url

REMOTE_STORAGE: Final = "remoteStorage"


def remote_storage(text: str) -> str | None:
    """The URL of the object store from which executors read what is copied there; empty: where the nodes say that it
    is; None: all is read from the nodes. Raises InvalidConfig."""
    word = text.strip()
    if word.lower() in ("off", "on"):
        return "" if word.lower() == "on" else None
    if "://" not in word:
        raise InvalidConfig(
            f"option {REMOTE_STORAGE!r} is {word!r}; it must be off, on (executors read history from the object store "
            "of the nodes), or the URL of that store as executors reach it"
        )
    ensure_store_url(word)
    return word
