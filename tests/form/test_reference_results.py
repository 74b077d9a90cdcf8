"""The documentation has the recorded results of the reference's test classes, and a reason for each test that does not pass."""

from __future__ import annotations

import pytest
from tests.interop.reference.results import PAGE, page, results

pytestmark = pytest.mark.form


def test_the_page_has_the_recorded_results() -> None:
    text = PAGE.read_text()
    assert text == page(text), "python -m tests.interop.reference.results writes the table"


def test_each_class_accounts_for_its_tests() -> None:
    names = [(each.name, each.archive) for each in results()]
    assert len(names) == len(set(names))
    for each in results():
        assert each.archive in {"", "java", "mainstem"}
        assert 0 <= each.passed <= each.tests
        missing = each.tests - each.passed
        assert bool(each.others) == bool(missing), each.name
        assert len(each.others) <= missing, each.name
        assert all(each.others.values()), each.name
