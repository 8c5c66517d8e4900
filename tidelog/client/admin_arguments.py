"""Arguments of an Admin client, checked and in the form that the messages have.

Not here: partitions, topics and numbers (options.py), access control lists (acl_options.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from tidelog.client.options import text, whole_number
from tidelog.errors import TidelogError

P = ParamSpec("P")
R = TypeVar("R")


def made_or_error(make: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | TidelogError:
    """Return what `make` returns, or the error that it raises: one wrong topic does not refuse the others."""
    try:
        return make(*args, **kwargs)
    except TidelogError as error:
        return error


def settings_of(name: str, settings: object) -> dict[str, str | None]:
    """Return checked topic settings. Raises TypeError, InvalidRequest."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"{name} must be a mapping of settings to values, not {type(settings).__name__}: {settings!r}")
    return {
        text("the name of a setting", key): None if value is None else text(f"the value of setting {key!r}", value)
        for key, value in settings.items()
    }


def mapping_of(name: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping. Raises TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}: {value!r}")
    return value


def id_bytes(name: str, value: object) -> bytes:
    """Return the bytes of an id, or empty bytes for None. Raises TypeError."""
    if value is not None and not isinstance(value, UUID):
        raise TypeError(f"{name} must be a UUID, not {type(value).__name__}: {value!r}")
    return b"" if value is None else value.bytes


def replicas_of(nodes: object) -> list[int]:
    """Return node ids, or an empty list for None. Raises TypeError."""
    if nodes is None:
        return []
    if isinstance(nodes, str | bytes | bytearray | memoryview) or not isinstance(nodes, Iterable):
        raise TypeError(
            f"the replicas of a partition must be a list of node ids or None, not {type(nodes).__name__}: {nodes!r}"
        )
    return [whole_number("a replica", node) for node in nodes]


def paths_of(name: str, paths: object) -> list[str]:
    """Return the paths of directories without a slash at the end. Raises TypeError."""
    if isinstance(paths, str | bytes | bytearray | memoryview) or not isinstance(paths, Iterable):
        raise TypeError(f"{name} must be a list of paths, not {type(paths).__name__}: {paths!r}")
    return [text("a path", each).rstrip("/") or "/" for each in paths]
