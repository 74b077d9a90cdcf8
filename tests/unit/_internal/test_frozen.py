"""Records are to their users what frozen dataclasses with slots are, but for the check that nobody assigns to a field."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest

from mainstem._internal.frozen import frozen


@frozen
class Base:
    """What every boat has."""

    KIND: ClassVar[str] = "boat"
    hold: int


@frozen
class Boat(Base):
    """A boat with a name."""

    name: str = "Rana"


@frozen
class Nothing:
    """No field."""


@frozen
class Loud:
    """A record with a text of its own."""

    text: str

    def __repr__(self) -> str:
        return self.text.upper()


def test_records_with_equal_fields_of_one_class_are_equal() -> None:
    assert Boat(hold=1) == Boat(hold=1, name="Rana")
    assert Boat(hold=1) != Boat(hold=2)
    assert Base(hold=1) != Boat(hold=1)
    assert hash(Boat(hold=1)) == hash(Boat(hold=1))
    assert len({Boat(hold=1), Boat(hold=1), Boat(hold=2)}) == 2
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert Boat(hold=1) != object()


def test_a_record_prints_its_fields() -> None:
    assert repr(Boat(hold=1)) == "Boat(hold=1, name='Rana')"
    assert repr(Nothing()) == "Nothing()"
    assert repr(Loud(text="tide")) == "TIDE"


def test_a_record_is_a_dataclass_with_slots_and_keywords() -> None:
    assert [field.name for field in dataclasses.fields(Boat)] == ["hold", "name"]
    assert dataclasses.replace(Boat(hold=1), hold=2) == Boat(hold=2)
    assert not hasattr(Boat(hold=1), "__dict__")
    with pytest.raises(TypeError):
        Boat(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Boat()  # type: ignore[call-arg]
