from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.spark import session

PAGE = Path(__file__).parents[3] / "docs" / "spark-options.md"


@pytest.mark.parametrize("has_read_limits", [False, True])
def test_the_page_names_every_setting_of_create_session(monkeypatch: pytest.MonkeyPatch, has_read_limits: bool) -> None:
    monkeypatch.setattr(session, "HAS_READ_LIMITS", has_read_limits)
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in session.settings("local[2]", 2) if f"`{name}`" not in page] == []
