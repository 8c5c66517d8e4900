"""A failed plan loses every fault that it does not need."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.plan import Plan, make_plan
from tests.sim.random_world import Outcome
from tests.sim.shrink import kind_of, shrink

NOTHING = Outcome(0, None, "", 0, 0, 0, 0, 0, 0)


def test_only_the_faults_that_matter_stay() -> None:
    plan = make_plan(3)
    assert len(plan.faults) > 8
    guilty = {plan.faults[2], plan.faults[7]}

    def world(smaller: Plan) -> Outcome:
        return replace(NOTHING, failure="Violation: lost 7" if guilty <= set(smaller.faults) else None)

    dropped = shrink(plan, "Violation: lost 12", run_world=world)
    assert set(plan.without(dropped).faults) == guilty


def test_another_failure_is_not_the_one_looked_for() -> None:
    plan = make_plan(3)
    dropped = shrink(plan, "Violation: lost 1", run_world=lambda _: replace(NOTHING, failure="OutOfTime: not healed"))
    assert dropped == frozenset()
    assert kind_of("Violation: orders-1: offset 5\nmore") == kind_of("Violation: orders-2: offset 6")


def test_it_gives_up_after_so_many_worlds() -> None:
    plan, count = make_plan(3), 0

    def world(_: Plan) -> Outcome:
        nonlocal count
        count += 1
        return NOTHING

    shrink(plan, "Violation: lost", runs_max=5, run_world=world)
    assert count == 5
