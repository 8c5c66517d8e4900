"""`dataclass` of the standard library, with less memory for each class. A node has 900 of them.

The methods that never differ are shared: `__repr__`, and those that refuse changes of a frozen instance. Python makes a
second class for `slots=True`, and the refusing methods that it writes keep the first one in memory.
`__init__`, `__eq__` and `__hash__`, which Python writes and compiles for each class, are written at their first use:
most classes are requests and answers that a process never sees, or values that it never compares. Together that is
8 KiB of the 13 KiB of a class. To type checkers it is the standard decorator.
"""

from __future__ import annotations

import dataclasses
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, repr=True, eq=True, order=False, frozen=False, **options):  # noqa: A002 (as in the standard library)
        """The decorator, with the arguments of the standard one, except `init`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, repr=repr, eq=eq, order=order, frozen=frozen, **options)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else Python writes one, with the arguments of an `__init__`
        if order:  # few: not worth four more methods here
            made = dataclasses.dataclass(cls, repr=False, order=True, frozen=frozen, **options)
        else:
            made = _with_fields(cls, frozen=frozen, **options)
            _write_later(made, eq=eq, frozen=frozen)
        if repr and "__repr__" not in vars(cls):
            made.__repr__ = _shown
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_change, _refuse_deletion
        return made


def _with_fields(cls: Any, *, frozen: bool, **options: Any) -> Any:
    """The class with its fields, and without the methods that are made otherwise. Of a frozen one Python would compile
    the two that refuse changes, for nothing: a sixth of the time in which a node starts."""
    of_dataclass = any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__)
    if not frozen or of_dataclass:  # Python compares it with its ancestors
        return dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=frozen, **options)
    made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    made.__dataclass_params__.frozen = True
    if options.get("slots"):
        for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
            if name not in vars(made):
                setattr(made, name, method)
    return made


def _write_later(made: Any, *, eq: bool, frozen: bool) -> None:
    own = vars(made)
    if "__init__" not in own:
        made.__init__, made.__signature__ = _first_init, _SIGNATURE
    if eq and own.get("__hash__") is None:  # Python has set it to None if the class has an `__eq__`
        made.__hash__ = _first_hash if frozen else None
    if eq and "__eq__" not in own:
        made.__eq__ = _first_eq


def _first_init(self: Any, *args: Any, **named: Any) -> None:
    _written(type(self), "__init__")(self, *args, **named)


def _first_eq(self: object, other: object) -> Any:
    return _written(type(self), "__eq__")(self, other)


def _first_hash(self: object) -> Any:
    return _written(type(self), "__hash__")(self)


_FIRST = {"__init__": _first_init, "__eq__": _first_eq, "__hash__": _first_hash}


class _Signature:
    """Writes `__init__`, from which `inspect` reads the signature if it finds None here."""

    def __get__(self, instance: object, cls: type) -> None:
        if any(vars(each).get("__init__") is _first_init for each in cls.__mro__):
            _written(cls, "__init__")


_SIGNATURE = _Signature()


def _written(cls: type, name: str) -> Any:
    """The method of the class, or of the ancestor that has it, written by the standard decorator."""
    owners = [each for each in cls.__mro__ if "__dataclass_fields__" in vars(each) and name in vars(each)]
    # That of an ancestor, if a subclass has called it. None: another thread has just written it.
    owner: Any = next((each for each in owners if vars(each)[name] is _FIRST[name]), None)
    if owner is None:
        return vars(owners[0])[name]
    copied = {each: getattr(owner, each) for each in ("__module__", "__qualname__", "__doc__")}
    written = dataclasses.dataclass(
        type(owner)(owner.__name__, (owner,), copied),
        init=name == "__init__",
        repr=False,
        eq=name != "__init__",
        frozen=vars(owner).get("__setattr__") is _refuse_change,
        slots="__slots__" in vars(owner),
    )
    for each, first in _FIRST.items():
        if vars(owner).get(each) is first and each in vars(written):
            setattr(owner, each, vars(written)[each])
    return vars(owner)[name]


@recursive_repr()
def _shown(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_change(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """For copies and pickles of frozen instances with slots, as in the standard library."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
