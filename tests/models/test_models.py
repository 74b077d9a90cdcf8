"""Memory ordering: every execution of small programs of the real code, and of its mutants, under release-acquire.

``SURVIVORS`` lists the mutants that no scenario finds, each with its reason. The test fails if an unlisted mutant survives or a
listed one is found.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.models import modelled, scenarios
from tests.models.explorer import Explorer, Fence, Load, Recorder, Store, Update

import mainstem._core

if TYPE_CHECKING:
    from collections.abc import Callable

CORE = modelled.load()


# -- the explorer itself: litmus tests whose outcomes are known ------------------------------------------------------


def outcomes(threads: list[Callable[[Recorder], Any]], locations: int) -> set[tuple[Any, ...]]:
    seen: set[tuple[Any, ...]] = set()
    result = Explorer(
        [0] * locations,
        len(threads),
        lambda thread, recorder: threads[thread](recorder),
        lambda results, values: seen.add((*results, *values)),
    ).explore()
    assert result.fault is None
    return seen


def put(r: Recorder, location: int, value: int, release: bool = False) -> None:
    r.do(Store(((location, value),), release))


def get(r: Recorder, location: int, acquire: bool = False) -> int:
    return r.read(Load(location, acquire, False))


@pytest.mark.parametrize(("release", "acquire"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("fences", [False, True])
def test_message_passing_needs_both_sides(release: bool, acquire: bool, fences: bool) -> None:
    def write(r: Recorder) -> None:
        put(r, 0, 1)
        if fences and release:
            r.do(Fence(True, False))
        put(r, 1, 1, release and not fences)

    def read(r: Recorder) -> tuple[int, int]:
        flag = get(r, 1, acquire and not fences)
        if fences and acquire:
            r.do(Fence(False, True))
        return flag, get(r, 0)

    stale = any(result[1] == (1, 0) for result in outcomes([write, read], 2))
    assert stale == (not (release and acquire))


def test_store_buffering_is_seen_and_a_thread_reads_its_own_store() -> None:
    def side(mine: int, other: int) -> Callable[[Recorder], Any]:
        def run(r: Recorder) -> tuple[int, int]:
            put(r, mine, 1, True)
            return get(r, mine, True), get(r, other, True)

        return run

    results = {(a[1], b[1], a[0], b[0]) for a, b, *_ in outcomes([side(0, 1), side(1, 0)], 2)}
    assert results == {(0, 0, 1, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)}


def test_two_plus_two_writes_end_in_every_order_of_relaxed_stores() -> None:
    def side(first: int, second: int) -> Callable[[Recorder], Any]:
        def run(r: Recorder) -> None:
            put(r, first, 1)
            put(r, second, 2)

        return run

    assert {end[2:] for end in outcomes([side(0, 1), side(1, 0)], 2)} == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_reads_of_one_location_never_go_back_in_time() -> None:
    def read(r: Recorder) -> tuple[int, int]:
        return get(r, 0), get(r, 0)

    def write(r: Recorder) -> None:
        put(r, 0, 1)
        put(r, 0, 2)

    assert {end[1] for end in outcomes([write, read], 1)} == {(a, b) for a in range(3) for b in range(a, 3)}


def test_updates_never_read_the_same_message_and_resume_after_a_release() -> None:
    def add(r: Recorder) -> int:
        return r.read(Update(0, None, 1, False, False))

    assert {end[:2] for end in outcomes([add, add], 1)} == {(0, 1), (1, 0)}

    def write(r: Recorder) -> None:
        put(r, 1, 1)
        put(r, 0, 1, True)

    def read(r: Recorder) -> tuple[int, int]:
        return get(r, 0, True), get(r, 1)

    results = {end[2] for end in outcomes([write, add, read], 2)}
    assert (2, 0) not in results
    assert (2, 1) in results


def test_overwriting_a_record_being_read_is_an_overrun() -> None:
    def read(r: Recorder, release: bool) -> None:
        r.read(Load(0, False, True))
        put(r, 1, 1, release)

    def write(r: Recorder) -> None:
        if get(r, 1, True):
            put(r, 0, 1)

    for release in (True, False):
        bodies: list[Callable[[Recorder], Any]] = [lambda r, release=release: read(r, release), write]  # type: ignore[misc]
        outcome = Explorer(
            [0, 0],
            2,
            lambda t, r, bodies=bodies: bodies[t](r),
            lambda *_: None,
            frozenset([0]),  # type: ignore[misc]
        ).explore()
        assert (outcome.fault is None) == release


def test_primitives_have_the_ordering_that_the_models_give_them() -> None:
    """Check that atomics.pxd gives each name the ordering that tests/models/modelled.py assumes."""
    text = Path(mainstem._core.__path__[0], "memory", "atomics.pxd").read_text()
    bodies = dict(re.findall(r"MS_INLINE \w+ (\w+)\(([^\n]*(?:\n {8}return[^\n]*)?)", text))
    order = {name: tuple(re.findall(r"__ATOMIC_(\w+)", body)) for name, body in bodies.items()}
    assert order["ld32"] == order["ld64"] == ("ACQUIRE",)
    assert order["st32"] == order["st64"] == ("RELEASE",)
    assert order["fadd64"] == ("ACQ_REL",)
    assert order["cas32"] == order["cas64"] == ("ACQ_REL", "ACQUIRE")
    assert order["fence_release"] == ("RELEASE",)
    assert order["fence_acquire"] == ("ACQUIRE",)
    plain = {name for name, names in order.items() if not names}
    assert {"get32", "get64", "put32", "put64", "copy_bytes", "zero_out", "zero_past_caches"} <= plain


# -- the code --------------------------------------------------------------------------------------------------------


# These take seconds.
LARGE = (scenarios.TwoPublications, scenarios.Rotation, scenarios.Cleaning, scenarios.TwoProducers)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(s, id=s.__name__, marks=[pytest.mark.long] * (s in LARGE)) for s in scenarios.SCENARIOS],
)
def test_no_execution_violates_a_property(scenario: type[scenarios.Scenario]) -> None:
    outcome = scenario(CORE).explore()
    print(f"{scenario.__name__}: {outcome.states} states, {outcome.ends} ends")
    assert outcome.fault is None
    assert outcome.ends > 1


# -- mutants of the code -----------------------------------------------------------------------------------------------

DEATH = (
    "the negative length is for the driver, after this process died: by then all its stores have arrived, and their order "
    "is what test_stopped_writer.py examines"
)
NUMBER = "its value is all that is used: nothing that it published is read afterward"
COVERED = "a release store or a fence of the same thread, later and before anything is read, covers it"
ATOMIC = "that it is atomic is enough: the zeroes that are written over come with the acquire of limit or head"
OWN = "the same thread wrote it, or reads it afterward"
SMALL = "the scenarios are too small to show it"

# The mutants that survive: function, regular expression of the change, reason. All others must be found.
SURVIVORS = [
    ("Appender.put_header", r".*", DEATH),
    ("Appender.put_run", r"fence_release.*|put64.* before fence_release.*|relaxed fence_release.*", DEATH),
    ("Appender.put_run", r"if p != first.*|relaxed st64.*", COVERED),
    ("Appender.put_pad", r"relaxed st32.*", "a reader needs nothing of padding but its length: 0 is its type already"),
    ("ConcurrentAppender.next_offset", r"relaxed ld64\(base, .*", "the fetch-and-add finds a tail that moved"),
    ("ConcurrentAppender.take", r"relaxed fadd64.*", ATOMIC),
    ("ConcurrentAppender.rotate", r"relaxed (ld64|cas64).*", ATOMIC),
    ("tail_position", r"relaxed ld64.*", NUMBER),
    ("Appender.position", r"relaxed ld64.*", NUMBER),
    ("ExclusiveAppender.publish_tail", r"relaxed st64.*", NUMBER),
    ("insert_frames", r"relaxed ld64.*", OWN),
    ("IpcPath.work", r"relaxed st64\(cells, produced_at.*", "operators read it"),
    ("IpcPath.work", r"relaxed st64\(cells, limit_at, consumer_position.*", "it takes room away and publishes nothing"),
    ("clean_bytes", r"relaxed st64.*", COVERED),
    ("PositionSet.lowest", r"relaxed fence_acquire.*", SMALL),
    ("ManyToOneRingBuffer.claim_record", r".*fence_release.*", DEATH),
    ("ManyToOneRingBuffer.claim_record", r"relaxed (ld|cas)64\(base, capacity \+ RING_TAIL_OFFSET.*", ATOMIC),
    ("ManyToOneRingBuffer.claim_record", r"relaxed .*RING_HEAD.* \(2\)", SMALL),
    ("ManyToOneRingBuffer.try_claim", r"put32.* before fence_release.*", DEATH),
    ("ManyToOneRingBuffer.try_claim", r"relaxed ld64.*", NUMBER),
    (
        "ManyToOneRingBuffer.unblock_record",
        r"st32.* before .*|relaxed ld64.*|relaxed st32.*|relaxed ld32\(base, index\)",
        OWN,
    ),
    ("ManyToOneRingBuffer.unblock_record", r"relaxed ld32\(base, back\)", SMALL),
    ("BroadcastTransmitter.transmit", r"st64.*TAIL_OFFSET.* before st64.*LATEST.*", SMALL),
    (
        "BroadcastTransmitter.transmit",
        r"st64.*LATEST.* before .*|relaxed st64.*LATEST.*",
        "a receiver that begins at the latest record waits until the tail is beyond it",
    ),
    ("BroadcastTransmitter.transmit", r"put32.* before fence_release.*", SMALL),
    ("BroadcastTransmitter.transmit", r"relaxed st64.*INTENT.*", COVERED),
    ("BroadcastReceiver.validate", r"relaxed ld64.*", NUMBER),
    ("BroadcastReceiver.receive_next", r"relaxed ld64.*TAIL.*", "the acquire fence of validate comes next"),
    ("BroadcastReceiver.receive", r"relaxed ld64.*", "the next load of the tail acquires"),
    ("CountersManager.allocate", r".*st64\(value_base.*", COVERED),
    ("CountersReader.find", r"relaxed ld64.*", "the state's acquire comes before it"),
]

SURVIVORS += [
    ("is_free", r"relaxed ld64.*", "a free place's next generation is stored after it: they are one location"),
    ("publish", r"relaxed ld64.*|st64.*BEGIN.* before .*CUT.*|relaxed st64.*CUT.*", OWN),
    (
        "publish",
        r"st64.*END.* before .*BEGIN.*",
        "the range has no order: the generation says whether both belong together",
    ),
    ("withdraw", r"relaxed ld64.*", OWN),
    ("withdraw", r"relaxed st64.*", "the next range's stores are releases, and follow it in its own location"),
    ("end_around", r"relaxed ld64\(base, place\) \(2\)", NUMBER),
    ("cover", r"relaxed st64.*", "the thread that asks for the flag is the one that was interrupted"),
]

FUNCTIONS = sorted({function for scenario in scenarios.SCENARIOS for function in scenario.functions})


def found_by(mutant: modelled.Mutant) -> str | None:
    """Return the scenario that finds a mutant, trying the small scenarios first."""
    about = [s for s in scenarios.SCENARIOS if (mutant.module, mutant.function) in s.functions]
    for scenario in sorted(about, key=LARGE.__contains__):
        if scenario(modelled.load(mutant)).explore().fault is not None:
            return scenario.__name__
    return None


@pytest.mark.long
@pytest.mark.parametrize(("module", "function"), FUNCTIONS, ids=[function for _, function in FUNCTIONS])
def test_weakened_and_exchanged_stores_are_found(module: str, function: str) -> None:
    mutants = modelled.mutants(module, function)
    assert mutants
    rows = [(change, reason) for name, change, reason in SURVIVORS if name == function]
    used = set()
    for mutant in mutants:
        expected = [row for row in rows if re.fullmatch(row[0], mutant.what)]
        scenario = found_by(mutant)
        print(f"{mutant}: {scenario or expected}")
        assert (scenario is None) == bool(expected), str(mutant)
        used |= set(expected)
    assert used == set(rows)
