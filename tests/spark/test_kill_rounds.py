from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from tests.spark import kill_rounds

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1800)]


def test_each_message_is_in_the_table_once_after_rounds_of_kills() -> None:
    rounds = []
    # With this seed, the rounds kill each program once, except Spark's driver.
    result = kill_rounds.run(rounds=3, seed=70, say=rounds.append)
    assert result["rows"] == result["messages"] >= 2000 + 3 * 200
    assert len(rounds) == 3
