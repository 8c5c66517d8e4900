"""Client quotas in the metadata: what is accepted, what is written, and what a snapshot keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from replication.controller import features
from replication.controller.client_quota_records import ENTITIES_MAX, ENTRIES_MAX
from replication.controller.events import AlterClientQuotas, ClientQuotasAltered, QuotaAlteration, QuotaChange
from replication.controller.image import EMPTY, apply
from replication.controller.image_records import records_of
from tests.replication.controlled import Controlled
from tidelog.errors import InvalidRequest, TidelogError, UnsupportedVersion
from tidelog.types import Offset, QuotaEntity, QuotaType, QuotaValue

ALICE, LOADER, EVERYONE = QuotaEntity("alice", None), QuotaEntity("alice", "loader"), QuotaEntity("", None)
PRODUCE, REQUEST = QuotaType.PRODUCER_BYTE_RATE.value, QuotaType.REQUEST_PERCENTAGE.value


def started(level: int = features.LATEST) -> Controlled:
    world = Controlled(level=level)
    world.start(1, 2, 3)
    return world


def altering(
    *changes: tuple[QuotaEntity, Mapping[str, float | None]], validate_only: bool = False
) -> AlterClientQuotas:
    return AlterClientQuotas(
        tuple(
            QuotaAlteration(entity, tuple(QuotaChange(key, value) for key, value in limits.items()))
            for entity, limits in changes
        ),
        validate_only,
    )


def refusal(world: Controlled, request: AlterClientQuotas) -> TidelogError:
    before, answer = world.end, world.ask(request)
    assert isinstance(answer, TidelogError)
    assert world.end == before, "nothing is written"
    return answer


def test_quotas_of_an_entity_are_changed_one_by_one_until_none_is_left() -> None:
    world = started()
    answer = world.ask(altering((ALICE, {PRODUCE: 1_000, REQUEST: 50}), (LOADER, {PRODUCE: 10})))
    assert answer == ClientQuotasAltered(world.image.offset)
    world.ask(altering((ALICE, {PRODUCE: None}), (EVERYONE, {REQUEST: 0.5})))
    assert world.image.quotas == {
        ALICE: (QuotaValue(REQUEST, 50),),
        LOADER: (QuotaValue(PRODUCE, 10),),
        EVERYONE: (QuotaValue(REQUEST, 0.5),),
    }
    world.ask(altering((ALICE, {REQUEST: None}), (LOADER, {PRODUCE: None}), (EVERYONE, {REQUEST: None})))
    assert world.image.quotas == {}
    assert world.replayed().quotas == {}


def test_what_changes_nothing_is_not_written() -> None:
    world = started()
    world.ask(altering((ALICE, {PRODUCE: 1_000})))
    end, quotas = world.end, world.image.quotas
    world.ask(altering((ALICE, {PRODUCE: 1_000, REQUEST: None}), (LOADER, {PRODUCE: None})))
    world.ask(altering((ALICE, {PRODUCE: 1}), validate_only=True))
    assert (world.end, world.image.quotas) == (end, quotas)
    world.made()
    assert world.image.quotas is quotas, "nodes compare the mapping to see whether quotas changed"


def test_a_snapshot_keeps_all_quotas() -> None:
    world = started()
    world.ask(altering((ALICE, {PRODUCE: 1_000}), (EVERYONE, {REQUEST: 50}), (QuotaEntity(None, ""), {PRODUCE: 7})))
    again = apply(EMPTY, [(Offset(number), record) for number, record in enumerate(records_of(world.image))])
    assert again.quotas == world.image.quotas
    assert len(again.quotas) == 3


@pytest.mark.parametrize(
    ("entity", "limits", "says"),
    [
        (QuotaEntity(None, None), {PRODUCE: 1}, "needs a user or a client id"),
        (QuotaEntity("a" * 256, None), {PRODUCE: 1}, r"the user 'a{40}'\.\.\. of a quota has 256 bytes"),
        (QuotaEntity("ä" * 128, None), {PRODUCE: 1}, "has 256 bytes"),
        (QuotaEntity(None, "a" * 256), {PRODUCE: 1}, "the client id .* at most 255"),
        (ALICE, {"producer_bytes": 1}, "unknown quota 'producer_bytes' .* valid quotas: producer_byte_rate, "),
        (ALICE, {PRODUCE: 0}, "cannot be 0"),
        (ALICE, {PRODUCE: -1}, "cannot be -1"),
        (ALICE, {PRODUCE: math.inf}, "cannot be inf"),
        (ALICE, {PRODUCE: math.nan}, "cannot be nan"),
        (ALICE, {PRODUCE: 2.0**54}, "at most 2\\^53"),
    ],
)
def test_a_request_with_one_wrong_entry_changes_nothing(
    entity: QuotaEntity, limits: dict[str, float | None], says: str
) -> None:
    answer = refusal(started(), altering((LOADER, {PRODUCE: 1}), (entity, limits)))
    assert isinstance(answer, InvalidRequest)
    with pytest.raises(InvalidRequest, match=says):
        raise answer


def test_an_entity_or_a_quota_that_is_named_twice_is_refused() -> None:
    world = started()
    refusal(world, altering((ALICE, {PRODUCE: 1}), (ALICE, {REQUEST: 1})))
    twice = (QuotaChange(PRODUCE, 1), QuotaChange(PRODUCE, 2))
    refusal(world, AlterClientQuotas((QuotaAlteration(ALICE, twice),)))


def test_the_entities_of_a_cluster_are_bounded() -> None:
    world = started()
    names = [QuotaEntity(f"user-{number}", None) for number in range(ENTITIES_MAX + 1)]
    for begin in range(0, ENTITIES_MAX, ENTRIES_MAX):
        world.ask(altering(*((name, {PRODUCE: 1}) for name in names[begin : begin + ENTRIES_MAX])))
    assert len(world.image.quotas) == ENTITIES_MAX
    assert "a cluster may have 10000" in refusal(world, altering((names[-1], {PRODUCE: 1}))).message
    many = altering(*((name, {PRODUCE: 1}) for name in names[: ENTRIES_MAX + 1]))
    assert "split it into several requests" in refusal(world, many).message
    world.ask(altering((names[0], {PRODUCE: None}), (names[-1], {PRODUCE: 1})))
    assert len(world.image.quotas) == ENTITIES_MAX


def test_quotas_need_their_feature_level() -> None:
    world = started(features.CLIENT_QUOTAS - 1)
    answer = refusal(world, altering((ALICE, {PRODUCE: 1})))
    assert isinstance(answer, UnsupportedVersion)
    assert "tidelog cluster upgrade" in answer.message
