"""Disk calls of a node's event loop: they take time, and fail the world where they are not allowed."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from testbed.sim import on_the_loop
from testbed.sim.loop import Defect
from testbed.sim.on_the_loop import ALLOWED, WATCHED
from testbed.sim.process import ProcessState
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC
from tidelog.types import NodeId


def test_the_allowed_functions_exist() -> None:
    for name, allowed in ALLOWED.items():
        path, _, function = name.partition(":")
        found: Any = importlib.import_module(path.replace("/", "."))
        for part in function.split("."):
            found = getattr(found, part)
        assert inspect.isfunction(found), name
        assert on_the_loop.name_of(found.__code__) == name
        assert allowed.operations <= WATCHED, name
        assert allowed.reason


def test_a_world_in_which_the_loop_writes_where_it_may_not_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ALLOWED, "storage/checkpoints/durable_offsets:DurableOffsets.put")
    monkeypatch.setattr(on_the_loop, "_names", {})
    refused = r"a write of .*held-offset-marks on the event loop, by .*DurableOffsets\.put"
    with Simulation(1) as sim, pytest.raises(Defect, match=refused):
        sim.start(nodes=3, partitions=2)


def test_a_call_that_hangs_on_the_loop_keeps_the_process_until_it_ends() -> None:
    with Simulation(2) as sim:
        sim.start(nodes=3, partitions=3)
        machine = sim.machines[1]
        process = machine.process
        assert process is not None
        sim.hang_files(1, "held-offset-marks", "write")
        sim.produce(TOPIC, b"a")
        sim.run_until(lambda: process.state is ProcessState.SLOW, within=2, what="its loop hangs in a disk call")
        sim.run_for(4)
        assert sim.image().nodes[NodeId(1)].fenced
        sim.release_disk(1)
        sim.must_heal()
        assert process.state is not ProcessState.DEAD
