"""UpdateFeatures: Kafka's `transaction.version` is raised with the feature level of the cluster, and never lowered."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from node.api.admin_requests import FeatureUpdate, FeatureUpdateType, UpdateNamedFeatures
from node.controller import node_registration
from node.listeners.kafka.kafka_features import UPDATE_FEATURES
from node.quorum import driver
from node.requests.context import RequestContext
from node.requests.feature_updates import level_with
from replication.controller import features
from replication.controller.events import FeaturesUpdated
from replication.controller.image import EMPTY
from tests.node.kafka_exchanges import answered, begun, exchanged, request
from tests.node.metadata_world import MetadataWorld
from tidelog.errors import ClusterAuthorizationFailed, InvalidUpdateVersion

UPGRADE, SAFE, UNSAFE = FeatureUpdateType
FEATURE = "transaction.version"
BEFORE = replace(EMPTY, feature_level=features.TRANSACTIONS_2 - 1)
AFTER = replace(EMPTY, feature_level=features.TRANSACTIONS_2)
CLUSTER_AUTHORIZATION, INVALID_UPDATE = 31, 95


def asking(*updates: Any, **fields: Any) -> Any:
    return request("UpdateFeatures").UpdateFeaturesRequest(1_000, updates, **fields)


def update(name: str = FEATURE, level: int = 2, **fields: Any) -> Any:
    return request("UpdateFeatures").FeatureUpdateKey(name, level, **fields)


@pytest.mark.parametrize("version", [1, 2])
def test_an_update_names_its_type_and_may_be_only_checked(version: int) -> None:
    message = asking(update(), update("other", 0, upgrade_type=UNSAFE), validate_only=True)
    _, value = begun(UPDATE_FEATURES, version, message)
    assert value == UpdateNamedFeatures(
        (FeatureUpdate(FEATURE, 2), FeatureUpdate("other", 0, UNSAFE)), validate_only=True
    )


@pytest.mark.parametrize(("allowed", "kind"), [(False, UPGRADE), (True, SAFE)])
def test_the_first_version_says_whether_a_downgrade_is_allowed(allowed: bool, kind: int) -> None:
    _, value = begun(UPDATE_FEATURES, 0, asking(update(level=1, allow_downgrade=allowed)))
    assert value == UpdateNamedFeatures((FeatureUpdate(FEATURE, 1, kind),))


@pytest.mark.parametrize(("version", "named"), [(0, [(FEATURE, 0)]), (1, [(FEATURE, 0)]), (2, [])])
def test_a_success_names_each_feature_up_to_version_1(version: int, named: list[tuple[str, int]]) -> None:
    answer = exchanged(UPDATE_FEATURES, version, asking(update()), FeaturesUpdated(6))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [(each.feature, each.error_code) for each in answer.results] == named


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_error_is_that_of_the_whole_request(version: int) -> None:
    exchange, _ = begun(UPDATE_FEATURES, version, asking(update()))
    for error, code in (
        (ClusterAuthorizationFailed("not you"), CLUSTER_AUTHORIZATION),
        (InvalidUpdateVersion("not this"), INVALID_UPDATE),
    ):
        answer = answered(UPDATE_FEATURES, version, exchange.refuse(error))
        assert (answer.error_code, answer.error_message, answer.results) == (code, error.message, ())


def test_a_level_that_is_reached_changes_nothing() -> None:
    assert level_with(BEFORE, [FeatureUpdate(FEATURE, 1)]) == BEFORE.feature_level
    assert level_with(BEFORE, [FeatureUpdate(FEATURE, 1, SAFE)]) == BEFORE.feature_level
    assert level_with(AFTER, [FeatureUpdate(FEATURE, 2), FeatureUpdate(FEATURE, 2, UNSAFE)]) == AFTER.feature_level
    assert level_with(AFTER, []) == AFTER.feature_level


def test_the_second_version_of_transactions_raises_the_level_of_the_cluster() -> None:
    assert level_with(BEFORE, [FeatureUpdate(FEATURE, 2)]) == features.TRANSACTIONS_2
    later = replace(EMPTY, feature_level=features.LATEST + 1)
    assert level_with(later, [FeatureUpdate(FEATURE, 2)]) == features.LATEST + 1, "not lowered by a later node"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (FeatureUpdate(FEATURE, 3), "levels 0 to 2"),
        (FeatureUpdate(FEATURE, -1), "levels 0 to 2"),
        (FeatureUpdate(FEATURE, 2, 0), "update type 0"),
        (FeatureUpdate(FEATURE, 2, 4), "update type 4"),
        (FeatureUpdate("metadata.version", 27), "tidelog cluster upgrade"),
        (FeatureUpdate("x" * 30_000, 1), "cannot get level 1"),
        (FeatureUpdate(FEATURE, 2, SAFE), "by a downgrade"),
        (FeatureUpdate(FEATURE, 0), "nothing lowers"),
        (FeatureUpdate(FEATURE, 0, UNSAFE), "nothing lowers"),
    ],
)
def test_what_is_not_possible_is_refused_with_everything_beside_it(bad: FeatureUpdate, why: str) -> None:
    beside = [] if bad.name == FEATURE else [FeatureUpdate(FEATURE, 2)]
    with pytest.raises(InvalidUpdateVersion, match=why) as refused:
        level_with(BEFORE, [*beside, bad])
    assert len(refused.value.message) < 500


def test_nothing_goes_back_to_the_first_version_of_transactions() -> None:
    for kind in FeatureUpdateType:
        with pytest.raises(InvalidUpdateVersion, match="it has level 2, and nothing lowers"):
            level_with(AFTER, [FeatureUpdate(FEATURE, 1, kind)])


def test_nodes_of_the_version_before_refuse_the_upgrade_by_being_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FEATURE_LEVEL", features.TRANSACTIONS_2 - 1)
    monkeypatch.setattr(node_registration, "features", SimpleNamespace(LATEST=features.TRANSACTIONS_2 - 1))
    with MetadataWorld() as world:
        world.begin()
        handlers: Any = world.side(2).services["Admin"]
        asked = UpdateNamedFeatures((FeatureUpdate(FEATURE, 2),))
        with pytest.raises(InvalidUpdateVersion, match=r"node 0 \(knows level 5\)"):
            world.do(handlers.update_named_features(asked, RequestContext("KAFKA", "here")))
        assert world.image(0).feature_level == features.TRANSACTIONS_2 - 1


def test_a_cluster_is_upgraded_through_any_node_and_only_if_it_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FEATURE_LEVEL", features.TRANSACTIONS_2 - 1)
    with MetadataWorld() as world:
        world.begin()
        handlers: Any = world.side(2).services["Admin"]

        def ask(**fields: Any) -> int:
            asked = UpdateNamedFeatures((FeatureUpdate(FEATURE, 2),), **fields)
            answer: FeaturesUpdated = world.do(handlers.update_named_features(asked, RequestContext("KAFKA", "here")))
            return answer.level

        assert ask(validate_only=True) == features.TRANSACTIONS_2
        assert world.image(0).feature_level == features.TRANSACTIONS_2 - 1
        assert ask() == features.TRANSACTIONS_2
        assert world.image(2).feature_level == features.TRANSACTIONS_2, "where it was asked it is in effect"
        assert ask() == features.TRANSACTIONS_2, "to repeat it is harmless"
