"""The reference's own tests pass on Mainstem's driver and archive, except those with a reason in results.toml."""

from __future__ import annotations

import pytest
from tests.interop.reference import harness
from tests.interop.reference.results import ClassResult, results

pytestmark = [pytest.mark.interop, pytest.mark.long]


@pytest.mark.parametrize("expected", results(), ids=lambda each: f"{each.name}-{each.archive or 'driver'}")
def test_every_test_passes_or_has_a_reason(expected: ClassResult) -> None:
    if reason := harness.why_not():
        pytest.skip(reason)
    outcome = harness.run(expected.name, archive=expected.archive or "java")
    unexpected = {method: why for method, why in outcome.others.items() if method not in expected.others}
    assert unexpected == {}, outcome.text[-20_000:]
    assert outcome.tests == expected.tests
    assert outcome.passed >= expected.passed, outcome.others
