"""The name of one kind of request, with the types of its values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Api(Generic[Asked, Answered]):
    """One kind of request. Metrics, the slow-request log, authorization and quotas know a request by this name.

    name: the service and the operation, `Data.Fetch`. asked, answered: the types of the values.
    is_stream: requests and answers flow independently of each other on one open stream.
    """

    name: str
    asked: type[Asked] = field(repr=False)
    answered: type[Answered] = field(repr=False)
    is_stream: bool = False

    def __post_init__(self) -> None:
        assert self.name not in APIS, f"{self.name} is declared twice"
        APIS[self.name] = self

    @property
    def handler(self) -> str:
        """The name of the method that serves it: `offset_for_leader_epoch`."""
        return _with_underscores(self.name.partition(".")[2])

    def __str__(self) -> str:
        return self.name


APIS: Final[dict[str, Api[Any, Any]]] = {}
"""Every API that was declared, by name. A module that declares APIs is imported by their handlers."""


@cache
def _with_underscores(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
