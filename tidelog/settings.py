"""Declarations of settings.

A setting is declared once, as a field of a frozen dataclass, with `setting(...)`. The declaration holds the names, the
kind (type, bounds, unit) and the default; the docstring below it is the documentation. It is the source of parsing, of
error messages and of the tables in docs/configuration.md. The dataclasses are LogConfig, MaintenanceConfig and those of
node/config.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from tidelog.errors import InvalidConfig
from tidelog.types import INT32_MAX, INT64_MAX

T = TypeVar("T")

NUMBER_LENGTH_MAX: Final = 255
"""Characters of the text of a number, with leading zeros and spaces."""

_SHOWN: Final = 300
"""Characters of a value in errors."""

_WHOLE: Final = re.compile(r"[ \t\r\n]*[-+]?[0-9]+[ \t\r\n]*")


class InvalidValue(ValueError):
    """The value is not allowed; the message says why, where "must be ..." does not say enough."""


class SettingType(IntEnum):
    """The type of a setting as Kafka's tools know it, by its numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """A type of values."""

    expected: str
    """Completes "must be ..."."""
    parse: Callable[[str], T]
    """Makes a value from text (the environment, or a topic's settings). Raises ValueError."""
    check: Callable[[object], T]
    """Makes a value from a typed value of TOML. Raises ValueError."""
    show: Callable[[T], str] = str
    """The inverse of parse."""
    unit: str = ""
    """The unit in the documentation."""
    type: SettingType = SettingType.STRING


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting."""

    name: str
    """The node's key."""
    default: T
    """MISSING if it must be given."""
    kind: SettingKind[T]
    topic: str | None = None
    """The topic's key; None if only nodes have the setting."""

    @property
    def variable(self) -> str:
        """The environment variable that overrides the node's key."""
        return "TIDELOG_" + self.name.upper().replace(".", "_")

    def parse(self, text: str, name: str | None = None) -> T:
        """Read text. name: for the error, if it is not the node's. Raises InvalidConfig."""
        return self._read(self.kind.parse, text, name or self.name)

    def check(self, value: object) -> T:
        """Read a value of TOML. Raises InvalidConfig."""
        return self._read(self.kind.check, value, self.name)

    def _read(self, read: Callable[[Any], T], value: object, name: str) -> T:
        try:
            return read(value)
        except InvalidValue as error:
            reason = str(error)
        except ValueError:
            reason = f"must be {self.kind.expected}"
        shown = repr(value[:_SHOWN] if isinstance(value, str) else value)
        raise InvalidConfig(f"{name} = {shown}: {reason}")


def setting(name: str, default: T | Any, kind: SettingKind[T], *, topic: str | None = None) -> Any:
    """Declare a setting as a field of a dataclass. The parameters are those of Setting."""
    return field(default=default, metadata={"setting": Setting(name, default, kind, topic)})


def topic_setting(name: str, default: T | Any, kind: SettingKind[T], *, node: str = "") -> Any:
    """Declare a setting that topics may have. node: the node's key for the default, if it is not `log.NAME`."""
    return setting(node or f"log.{name}", default, kind, topic=name)


def settings_of(config: type) -> dict[str, Setting[Any]]:
    """The settings that a dataclass declares, by field."""
    return {each.name: each.metadata["setting"] for each in fields(config) if "setting" in each.metadata}


def given_fields(config: type, values: Mapping[str, object]) -> dict[str, Any]:
    """The fields of a dataclass for which `values` (by node's key) has a value; defaults hold for the others."""
    return {name: values[each.name] for name, each in settings_of(config).items() if each.name in values}


def ensure_distinct(what: str, names: list[str]) -> None:
    """Raise InvalidValue if a name is there twice. what: what has the names."""
    if len(set(names)) < len(names):
        raise InvalidValue(f"names a {what} twice; name each once")


def _typed(expected: type, value: object) -> Any:
    if type(value) is not expected:
        raise ValueError(value)
    return value


def _whole(text: str) -> int:
    """Read a whole number. Python's int() takes as much text as memory has, digits of any script, and underscores, and
    so its value might not be the one that other readers of the text see."""
    if len(text) > NUMBER_LENGTH_MAX or not _WHOLE.fullmatch(text):
        raise ValueError(text[:NUMBER_LENGTH_MAX])
    return int(text)


def number(
    low: int, high: int = INT64_MAX, *, unit: str = "", also: int | None = None, scale: int = 1
) -> SettingKind[int]:
    """A whole number. also: a value outside the bounds that is allowed. scale: what one unit counts in the field."""

    def check(value: object) -> int:
        found: int = _typed(int, value)
        if not low <= found <= high and found != also:
            raise ValueError(value)
        return found * scale

    return SettingKind(
        ("" if also is None else f"{also} or ") + f"a whole number from {low} to {high}",
        parse=lambda text: check(_whole(text)),
        check=check,
        show=lambda value: str(value // scale),
        unit=unit,
        type=SettingType.INT if high <= INT32_MAX else SettingType.LONG,
    )


def size(low: int, high: int = INT64_MAX) -> SettingKind[int]:
    return number(low, high, unit="bytes")


def millis(low: int, high: int = INT64_MAX) -> SettingKind[int]:
    return number(low, high, unit="ms")


def ratio() -> SettingKind[float]:
    def check(value: object) -> float:
        found = float(value) if type(value) is int else _typed(float, value)
        if not 0 <= found <= 1:
            raise ValueError(value)
        return float(found)

    return SettingKind(
        "a number from 0 to 1", parse=lambda text: check(float(text)), check=check, type=SettingType.DOUBLE
    )


def choice(values: Mapping[str, T]) -> SettingKind[T]:
    """One of some words, each for a value."""
    words = {value: word for word, value in values.items()}

    def parse(text: object) -> T:
        if not isinstance(text, str) or text not in values:
            raise ValueError(text)
        return values[text]

    return SettingKind(" or ".join(values), parse=parse, check=parse, show=words.__getitem__)


def flag() -> SettingKind[bool]:
    text = choice({"true": True, "false": False})
    return SettingKind(
        text.expected, text.parse, lambda value: bool(_typed(bool, value)), text.show, type=SettingType.BOOLEAN
    )


def text() -> SettingKind[str]:
    return SettingKind("text in quotes", parse=str, check=lambda value: str(_typed(str, value)))


def texts(what: str, convert: Callable[[list[str]], T], show: Callable[[T], str]) -> SettingKind[T]:
    """A list of texts, separated by commas in text. what: names them. convert: may raise InvalidValue."""

    def check(value: object) -> T:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise ValueError(value)
        return convert(value)

    return SettingKind(
        f"a list of one or more {what} in quotes",
        parse=lambda given: check([item.strip() for item in given.split(",") if item.strip()]),
        check=check,
        show=show,
        type=SettingType.LIST,
    )
