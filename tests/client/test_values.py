"""Our dataclasses are Python's, in all that a user of an instance can see, and one class instead of two."""

from __future__ import annotations

import dataclasses
import gc
import pickle
from typing import Any

import pytest

from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class Fetched:
    """One with our decorator."""

    replica: int
    records: bytes = dataclasses.field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class FetchedAll(Fetched):
    """One that inherits."""

    partitions: tuple[Any, ...] = ()


@dataclass(slots=True)
class Counted:
    """One that may change, with a text of its own."""

    total: int

    def __repr__(self) -> str:
        return f"<{self.total}>"


def test_values_show_compare_hash_copy_and_match_as_those_of_python() -> None:
    one = FetchedAll(1, b"records", (Fetched(2), Counted(3)))
    assert repr(one) == "FetchedAll(replica=1, partitions=(Fetched(replica=2), <3>))"
    assert dataclasses.replace(one, replica=1) == one != dataclasses.replace(one, replica=2)
    assert len({Fetched(1), Fetched(1), Fetched(2)}) == 2
    assert pickle.loads(pickle.dumps(Fetched(1, b"r"))) == Fetched(1, b"r")
    match one:
        case FetchedAll(replica, records, partitions):
            assert (replica, records, len(partitions)) == (1, b"records", 2)


@pytest.mark.parametrize("field", ["replica", "other"])
def test_a_frozen_value_refuses_changes(field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{field}'"):
        setattr(Fetched(1), field, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{field}'"):
        delattr(Fetched(1), field)


def test_a_value_that_may_change_does() -> None:
    counted = Counted(1)
    counted.total = 2
    assert counted == Counted(2)


def test_the_class_that_slots_replace_is_freed() -> None:
    made: type = dataclass(frozen=True, slots=True)(type("Replaced", (), {"__annotations__": {"replica": int}}))
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, type) and each.__name__ == "Replaced"] == [made]
