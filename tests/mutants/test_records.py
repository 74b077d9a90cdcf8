"""Each known bug can still be planted, and its finder exists. A change that moves the code must update the bug."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.mutants.__main__ import sample, table
from tests.mutants.bug import MAX_SEEDS, ROOT, Bug, Simulator, Suite
from tests.mutants.bugs import BUGS
from tests.mutants.planting import Found

from mainstem.sim.scenarios import SCENARIOS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_stands_where_its_text_is_found_once(bug: Bug) -> None:
    source = (ROOT / bug.path).read_text()
    planted = bug.planted(source)
    assert planted != source
    ast.parse(planted)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_s_finder_is_there(bug: Bug) -> None:
    if isinstance(bug.finder, Suite):
        for selection in bug.finder.selection:
            path, _, name = selection.partition("::")
            assert Path(ROOT, path).exists(), selection
            assert not name or f"def {name.partition('[')[0]}(" in Path(ROOT, path).read_text(), selection
    else:
        assert 0 < bug.finder.seeds <= MAX_SEEDS
        assert set(bug.finder.scenarios) <= set(SCENARIOS)


def test_there_are_at_least_twenty_four_bugs_and_no_name_twice() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 24


def test_a_text_that_moved_is_an_error() -> None:
    bug = Bug(name="b", harm="", file="x.py", old="a + b", new="a - b", finder=Simulator(scenarios=("aqueduct",)))
    assert bug.planted("c = a + b\n") == "c = a - b\n"
    for source in ("c = a\n", "c = a + b\nd = a + b\n"):
        with pytest.raises(LookupError):
            bug.planted(source)


def test_the_sample_is_the_commit_s() -> None:
    assert sample(BUGS, 3, "one") == sample(BUGS, 3, "one")
    assert len({tuple(bug.name for bug in sample(BUGS, 3, str(commit))) for commit in range(20)}) > 10


def test_the_table_names_what_found_nothing() -> None:
    [bug, *_] = BUGS
    rows = table([Found(bug, "unicast:7", "", 3.2), Found(bug, "", "200 seeds kept every promise", 9.9)]).splitlines()
    assert "simulator, unicast, seed 7" in rows[2]
    assert "**nothing**" in rows[3]
