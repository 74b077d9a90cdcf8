"""Records behave like frozen dataclasses with slots, except for the check that nobody assigns to a field."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest

from mainstem._internal.frozen import MISSING, fields_of, frozen, mutable, replaced


@frozen
class Base:
    """The fields that every boat has."""

    KIND: ClassVar[str] = "boat"
    hold: int


@frozen
class Boat(Base):
    """A boat with a name."""

    name: str = "Rana"


@frozen
class Nothing:
    """A record without fields."""


@frozen
class Loud:
    """A record with its own repr."""

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


@frozen
class Checked(Base):
    """A record that validates its fields."""

    masts: int = 1

    def __post_init__(self) -> None:
        if self.masts > self.hold:
            raise ValueError("too many masts")


@mutable
class Harbour:
    """A mutable object that equals only itself."""

    name: str
    boats: int = 0


@dataclasses.dataclass(kw_only=True)
class Fleet(Base):
    """A dataclass that derives from a record."""

    boats: int


def test_a_record_names_its_fields_with_their_defaults_and_is_copied() -> None:
    assert fields_of(Boat) == {"hold": MISSING, "name": "Rana"}
    assert replaced(Boat(hold=1, name="Unda"), hold=2) == Boat(hold=2, name="Unda")
    with pytest.raises(TypeError):
        replaced(Boat(hold=1), sail=2)


def test_a_record_is_checked_when_it_is_made() -> None:
    assert Checked(hold=2, masts=2).masts == 2
    with pytest.raises(ValueError, match="masts"):
        Checked(hold=2, masts=3)
    with pytest.raises(ValueError, match="masts"):
        dataclasses.replace(Checked(hold=2, masts=2), masts=3)


def test_mutable_records_equal_only_themselves() -> None:
    harbour = Harbour(name="Hamn")
    harbour.boats += 1
    assert (harbour.boats, harbour == Harbour(name="Hamn", boats=1)) == (1, False)
    assert len({harbour, Harbour(name="Hamn")}) == 2
    with pytest.raises(AttributeError):
        harbour.ships = 1  # type: ignore[attr-defined]


def test_a_dataclass_may_derive_from_a_record() -> None:
    assert Fleet(hold=1, boats=2).boats == 2
    assert [field.name for field in dataclasses.fields(Fleet)] == ["hold", "boats"]
