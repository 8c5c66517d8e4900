"""Checks of what tests pass to `tidelog.testing`: a mistake is refused at the call that has it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Final

from tidelog.errors import InvalidConfig

OWN_SETTINGS: Final = (
    "node.id",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "cluster.bootstrap.node.id",
    "controller.quorum.bootstrap.servers",
)
"""Settings by which the nodes of a test find their data and each other."""


def node_number(node: object, nodes: Collection[int]) -> int:
    """The number of a node. Raises ValueError if there is none with it: Python would count from the end for -1, which
    `leader` answers for none."""
    if not isinstance(node, int) or node not in nodes:
        raise ValueError(f"there is no node {node!r}: the nodes are {', '.join(map(str, nodes))}")
    return node


def refuse_own_settings(settings: Mapping[str, object] | None) -> None:
    """Raises InvalidConfig for a setting that a test cannot choose: its nodes would wait for each other in vain."""
    if own := sorted(set(settings or ()) & set(OWN_SETTINGS)):
        raise InvalidConfig(f"settings: {', '.join(own)} is chosen by tidelog.testing: leave it out")


def not_negative(name: str, value: float) -> float:
    """A number of an argument. Raises ValueError for one below 0, and TypeError."""
    if value < 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")
    return value


def topic_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """Settings of a topic with `.` for `_`. Raises TypeError for a value that is no string."""
    for key, value in configs.items():
        if not isinstance(value, str):
            raise TypeError(f'the value of {key} must be a str, not {value!r}: {key}="{value}"')
    return {key.replace("_", "."): value for key, value in configs.items()}


def refuse_coroutine(function: object) -> None:
    """Raises TypeError for a call in the place of its function."""
    if inspect.iscoroutine(function):
        function.close()
        name = function.__name__
        raise TypeError(f"pass the function and its arguments, start({name}, ...): {name}(...) can run only once")
