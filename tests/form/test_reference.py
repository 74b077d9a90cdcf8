"""The reference shows what a user can call: inherited members, nothing that only C sees, and defaults as values."""

from __future__ import annotations

from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.form


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    extension = griffe.load_extensions(str(ROOT / "tools" / "site_members.py"))
    loaded = griffe.load("mainstem", search_paths=[ROOT / "src"], allow_inspection=False, extensions=extension)
    assert isinstance(loaded, griffe.Module)
    return loaded


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        (
            "aeron.client.publication.Publication",
            ["send", "offer", "try_claim", "close", "closed"],
            ["put_header", "claim"],
        ),
        ("aeron.client.subscription.Subscription", ["poll", "poll_bytes", "close"], ["start"]),
        ("aeron.client.subscription.Image", ["poll", "position"], ["hand_over_whole", "p", "base"]),
    ],
)
def test_a_compiled_class_shows_what_python_sees(
    package: griffe.Module, name: str, present: list[str], absent: list[str]
) -> None:
    members = package[name].all_members
    assert [each for each in present if each not in members] == []
    assert [each for each in absent if each in members] == []


def test_a_default_is_shown_as_its_value(package: griffe.Module) -> None:
    read = package["mux.aio_stream.BaseStream.read"]
    assert [str(each.default) for each in read.parameters if each.name == "limit"] == ["262144"]
