"""Our dataclasses are Python's, in all that a user of an instance can see, and one class instead of two."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import gc
import inspect
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


class Archived(Fetched):
    """One that is no dataclass itself."""

    def __init__(self, replica: int) -> None:
        super().__init__(replica, b"archived")


def late() -> type[Any]:
    """A class whose methods nothing has used yet."""

    @dataclass(frozen=True, slots=True)
    class Late:
        """Some fields, of each kind."""

        replica: int
        records: list[bytes] = dataclasses.field(default_factory=list, hash=False)
        size: int = dataclasses.field(default=7, init=False)
        epoch: int = dataclasses.field(default=-1, kw_only=True, compare=False)

        def __post_init__(self) -> None:
            assert self.replica >= 0, "a node"

    return Late


def test_methods_are_written_at_their_first_use() -> None:
    kind, other = late(), late()
    methods = {name: vars(kind)[name] for name in ("__init__", "__eq__", "__hash__")}
    assert methods == {name: vars(other)[name] for name in methods}, "all classes share those that write them"
    one, same = kind(1, epoch=3), kind(1)
    assert (one.records, one.size, one.epoch) == ([], 7, 3)
    assert {name for name in methods if vars(kind)[name] is not methods[name]} == {"__init__"}
    assert one == same != kind(1, [b"r"])
    assert hash(one) == hash(kind(1, [b"r"])) != hash(kind(2))
    assert {name for name in methods if vars(kind)[name] is not methods[name]} == set(methods)
    assert one != other(1), "of another class"
    with pytest.raises(TypeError, match=r"Late.__init__\(\) missing 1 required positional argument: 'replica'"):
        kind()
    with pytest.raises(AssertionError, match="a node"):
        kind(-1)


def test_methods_that_refuse_changes_are_not_compiled_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has 900 classes: methods that are compiled at its start, and replaced at once, would delay it."""
    compiled, execute = list[str](), exec

    def note(source: str, *where: dict[str, Any]) -> None:
        compiled.append(source)
        execute(source, *where)

    monkeypatch.setattr(builtins, "exec", note)
    late()
    assert not [source for source in compiled if "__setattr__" in source or "__delattr__" in source]


def test_a_signature_is_known_before_the_first_use() -> None:
    found = inspect.signature(late())
    assert [each.name for each in found.parameters.values()] == ["replica", "records", "epoch"]
    assert found.parameters["epoch"].kind is inspect.Parameter.KEYWORD_ONLY
    assert [*inspect.signature(Archived).parameters] == ["replica"], "that of its own method"


def test_a_subclass_reaches_the_methods_that_are_not_written_yet() -> None:
    assert Archived(1) == Archived(1) != Archived(2)
    assert Archived(1).records == b"archived"


def test_two_threads_may_use_a_class_for_the_first_time_together() -> None:
    """The second one has entered the method that writes, when the first one has written."""
    kind = late()
    writes = vars(kind)["__init__"], vars(kind)["__hash__"]
    one, second = kind(1), object.__new__(kind)
    writes[0](second, 1)
    assert (second, hash(second)) == (one, writes[1](one))


def test_values_that_may_change_have_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'Counted'"):
        hash(Counted(1))


def test_values_show_compare_hash_copy_and_match_as_those_of_python() -> None:
    one = FetchedAll(1, b"records", (Fetched(2), Counted(3)))
    assert repr(one) == "FetchedAll(replica=1, partitions=(Fetched(replica=2), <3>))"
    assert dataclasses.replace(one, replica=1) == one != dataclasses.replace(one, replica=2)
    assert len({Fetched(1), Fetched(1), Fetched(2)}) == 2
    for value in (Fetched(1, b"r"), one):
        assert pickle.loads(pickle.dumps(value)) == copy.copy(value) == copy.deepcopy(value) == value
    match one:
        case FetchedAll(replica, records, partitions):
            assert (replica, records, len(partitions)) == (1, b"records", 2)


@pytest.mark.parametrize("field", ["replica", "other"])
def test_a_frozen_value_refuses_changes(field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{field}'"):
        setattr(Fetched(1), field, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{field}'"):
        delattr(Fetched(1), field)


def test_an_ancestor_and_its_heirs_are_frozen_or_none_is() -> None:
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Thawed", (Fetched,), {}))
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):
        dataclass(frozen=True)(type("Frozen", (Counted,), {}))


def test_a_value_that_may_change_does() -> None:
    counted = Counted(1)
    counted.total = 2
    assert counted == Counted(2)


def test_the_class_that_slots_replace_is_freed() -> None:
    made: type = dataclass(frozen=True, slots=True)(type("Replaced", (), {"__annotations__": {"replica": int}}))
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, type) and each.__name__ == "Replaced"] == [made]
