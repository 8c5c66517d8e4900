"""Raising the feature level: a node that does not know the level ends at its record, so every node must know it."""

from __future__ import annotations

import pytest

from replication.controller import features
from replication.controller.events import AlterConfigs, ConfigChange, CreateTopic, FeaturesUpdated, UpdateFeatures
from tests.replication.controlled import Controlled
from tidelog.errors import FeatureUpdateFailed, UnsupportedVersion

BEFORE, LATEST = features.LATEST - 1, features.LATEST


def upgrading() -> Controlled:
    """Three nodes of this version, on the metadata of the one before, with a topic on all of them."""
    world = Controlled(level=BEFORE)
    world.start(1, 2, 3)
    world.made("orders", partitions=1, replicas=3)
    return world


def refused(world: Controlled, *, validate_only: bool = False) -> str:
    answer = world.ask(UpdateFeatures(LATEST, validate_only))
    assert isinstance(answer, FeatureUpdateFailed), answer
    assert world.image.feature_level == BEFORE
    return answer.message


def test_every_node_knows_the_level_before_it_is_raised() -> None:
    world = upgrading()
    world.beat(2, knows=BEFORE)
    for validate_only in (True, False):
        assert f"would end: node 2 (knows level {BEFORE})" in refused(world, validate_only=validate_only)
    assert world.ask(UpdateFeatures(BEFORE)) == FeaturesUpdated(BEFORE), "nothing is raised"
    world.beat(2)
    assert world.ask(UpdateFeatures(LATEST, validate_only=True)) == FeaturesUpdated(LATEST)
    assert world.ask(UpdateFeatures(LATEST)) == FeaturesUpdated(LATEST)
    assert world.image.feature_level == LATEST


def test_a_version_that_does_not_say_what_it_knows_is_an_older_one() -> None:
    world = upgrading()
    for node in (1, 3):
        world.beat(node, knows=0)
    assert "node 1 (has not said which levels it knows), node 3 (has not" in refused(world)


def test_what_a_process_knew_says_nothing_of_the_next_one_of_its_node() -> None:
    """It may be started with the version before again."""
    world = upgrading()
    world.kill(3, alive=(1, 2))
    world.register(3, run_number=2)
    assert "node 3 (has not said" in refused(world)
    world.beat(3)
    assert isinstance(world.ask(UpdateFeatures(LATEST)), FeaturesUpdated)


def test_a_new_controller_hears_every_node_first() -> None:
    world = upgrading()
    world.activate()
    world.commit()
    assert "node 1 (has not said" in refused(world)
    for node in (1, 2, 3):
        world.beat(node)
    assert isinstance(world.ask(UpdateFeatures(LATEST)), FeaturesUpdated)


@pytest.mark.parametrize("has_replicas", [True, False])
def test_a_node_that_is_down_counts_while_it_has_replicas(has_replicas: bool) -> None:
    """There is no way to unregister a node: without the exception a removed one would end all upgrades."""
    world = upgrading()
    world.start(4)
    world.kill(3, 4, alive=(1, 2))
    world.activate()
    world.commit()
    for node in (1, 2):
        world.beat(node)
    assert "node 3 (has not said" in refused(world)
    assert "node 4" not in refused(world)
    if not has_replicas:
        world.reassign(world.topic("orders").partitions[0].key, (1, 2))
        assert isinstance(world.ask(UpdateFeatures(LATEST)), FeaturesUpdated)


def test_an_error_names_some_of_many_nodes() -> None:
    world = Controlled(level=BEFORE)
    world.start(*range(1, 9))
    for node in range(1, 9):
        world.beat(node, knows=0)
    assert "node 5 (has not said which levels it knows) and 3 more" in refused(world)


@pytest.mark.parametrize(
    ("key", "value"),
    [("remote.storage.enable", "true"), ("local.retention.ms", "1000"), ("local.retention.bytes", "1000")],
)
def test_no_topic_gets_a_setting_that_a_node_of_the_version_before_does_not_know(key: str, value: str) -> None:
    """To that node it would be an unknown one: it would use no log of the topic after a restart."""
    world = Controlled(level=features.REMOTE_TIER - 1)
    world.start(1, 2, 3)
    world.made("orders", partitions=1, replicas=3)
    change = AlterConfigs("orders", (ConfigChange(key, value),))
    for request in (change, CreateTopic("payments", 1, 3, {key: value})):
        answer = world.ask(request)
        assert isinstance(answer, UnsupportedVersion), answer
        assert f"a change of {key} needs feature level {features.REMOTE_TIER}" in answer.message
    assert world.ask(UpdateFeatures(LATEST)) == FeaturesUpdated(LATEST)
    assert not isinstance(world.ask(change), Exception)
