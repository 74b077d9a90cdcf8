"""The guide's tables match the code, and its examples run."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_mux_states", ROOT / "tools" / "draw_mux_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_state_diagrams_match_the_tables() -> None:
    drawing = tool()
    outdated = [path.name for path, text in (drawing.pages() | drawing.pictures()).items() if path.read_text() != text]
    assert outdated == [], "run tools/draw_mux_states.py"


def test_every_transition_in_a_table_is_drawn() -> None:
    drawing = tool()
    for name, table in drawing.TABLES.items():
        picture = drawing.picture(name, table)
        ET.fromstring(picture)
        for (half, following), sent in drawing.moves(table).items():
            texts = [f"{each}, stays" for each in sent] if half == following else [", ".join(sent)]
            assert all(f">{text}</text>" in picture for text in texts)
    assert "*write-after-close*" in drawing.drawings()["bymux-half"]


@pytest.mark.parametrize("number", [0, 1], ids=["blocking", "asyncio"])
def test_the_first_examples_run(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "mux.md").read_text()
    source = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number].replace("7000", "PORT")
    source = source.replace('"127.0.0.1", PORT):', '"127.0.0.1", 0) as listener:', 1).replace("PORT", "listener.port")
    exec(compile(source, "docs/mux.md", "exec"), {})
    assert capsys.readouterr().out.startswith("b'tide' ")
