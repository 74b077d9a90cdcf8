from __future__ import annotations

import pytest
from tests.spark import kills

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long]


def test_each_message_arrives_once_across_kills() -> None:
    result = kills.run(kills=4, seed=4)
    assert result["each_once"], result
    assert sum(result["killed"].values()) == 4
    assert all(result["killed"].values()), result
