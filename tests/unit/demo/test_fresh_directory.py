"""The demo deletes only its own directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.demo.run import _fresh_directory
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["work", "table"])
def test_a_directory_not_made_by_the_demo_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigurationError, match=name):
        _fresh_directory(tmp_path)
    assert (tmp_path / name / "thesis.tex").exists()


def test_the_directories_of_an_earlier_demo_are_emptied(tmp_path: Path) -> None:
    for end in ("killed", "done"):
        work = _fresh_directory(tmp_path)
        (work / "recordings").mkdir()
        (tmp_path / "table").mkdir()
        if end == "done":
            (tmp_path / "report.html").touch()
    assert [path.name for path in _fresh_directory(tmp_path).iterdir()] == [".mainstem-demo"]
    assert not (tmp_path / "table").exists()
