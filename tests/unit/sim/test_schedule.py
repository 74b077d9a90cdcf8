"""Schedules of faults, and shrinking a failing run."""

from __future__ import annotations

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.runner import shrink
from mainstem.sim.schedule import Plan, Schedule

KINDS = ("cut", "crash", "pause", "drift")


def drawn(seed: int, plan: Plan | None = None) -> Schedule:
    return Schedule.drawn(seed, KINDS, hosts=3, length_ns=NS_PER_SECOND, plan=plan)


def test_a_schedule_depends_on_its_seed_and_kinds_vary() -> None:
    assert drawn(1).faults == drawn(1).faults
    kinds = {frozenset(fault.kind for fault in drawn(seed).faults) for seed in range(100)}
    assert len(kinds) > 8
    assert {kind for each in kinds for kind in each} == set(KINDS)


def test_a_link_fault_has_a_destination() -> None:
    for seed in range(100):
        assert all(fault.host != fault.other and fault.end_ns > fault.start_ns for fault in drawn(seed).faults)


def test_omitted_faults_do_not_change_the_others() -> None:
    for seed in range(50):
        whole = drawn(seed).faults
        dropped = whole[0].number
        assert drawn(seed, Plan(dropped=frozenset({dropped}))).faults == [
            each for each in whole if each.number != dropped
        ]
        kind = whole[-1].kind
        assert drawn(seed, Plan(without=frozenset({kind}))).faults == [each for each in whole if each.kind != kind]


def test_each_fault_begins_once_and_ends_once_at_its_time_or_by_healing() -> None:
    schedule = drawn(3)
    log = []
    for now_ns in range(0, NS_PER_SECOND, NS_PER_SECOND // 50):
        for fault, begins in schedule.due(now_ns):
            assert now_ns >= (fault.start_ns if begins else fault.end_ns)
            log.append((fault.number, begins))
    log += [(fault.number, False) for fault in schedule.heal()]
    begun = {number for number, begins in log if begins}
    assert sorted(log) == sorted((number, begins) for number in begun for begins in (True, False))
    assert list(schedule.due(10 * NS_PER_SECOND)) == []


def test_a_failure_is_reduced_to_the_faults_that_it_needs() -> None:
    tried = []

    def fails(plan: Plan) -> bool:
        tried.append(plan)
        size = 1.0 if plan.size is None else plan.size
        return "crash" not in plan.without and 2 not in plan.dropped and size >= 0.1

    least = shrink(Plan(), ["crash", "loss", "mtu"], range(6), fails)
    assert least == Plan(frozenset({"loss", "mtu"}), frozenset({0, 1, 3, 4, 5}), 0.1)
    assert least.arguments == " --without loss,mtu --drop 0,1,3,4,5 --scale 0.1"
    assert len(tried) < 60


def test_a_failure_that_needs_everything_stays_as_it_is() -> None:
    assert shrink(Plan(), ["loss"], [0], lambda plan: plan == Plan()) == Plan()
