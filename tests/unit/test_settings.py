"""Settings: where values come from, what is rejected, and how values are explained."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import pytest

from mainstem.errors import ConfigurationError
from mainstem.settings import Settings, Source, boolean, choice, duration, integer, size, text


class Color(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


class Boat(Settings):
    """The settings of a boat.

    Example:
        >>> Boat()
    """

    SECTION: ClassVar[str] = "boat"
    ENV_PREFIX: ClassVar[str] = "BOAT_"

    hold: int = size(64 << 10, "What it carries.", low=1024, high=1 << 30, power_of_two=True)
    plank: int = size(64, "One plank.", multiple=32)
    tide_ns: int = duration(5_000_000_000, "Until the tide turns.", low=1)
    watch_ns: int = duration(10_000_000_000, "How long one watch is.", plain_unit="ms")
    rest_ns: int | None = duration(None, "How long the crew rests.")
    crew: int = integer(3, "Hands on board.", low=1, high=40)
    afloat: bool = boolean(True, "Whether it swims.")
    name: str = text("Unda", "What it is called.", accepts="at least two letters", fits=lambda value: len(value) > 1)
    color: Color = choice(Color.RED, "Its paint.")

    def validate(self):
        if self.crew > 10 and not self.afloat:
            raise ConfigurationError("a crew above 10 needs a boat that is afloat")


def load(**keywords):
    return Boat.load(environ={}, **keywords)


def test_each_setting_has_a_default_and_says_that_it_is_the_default():
    boat = load()
    assert boat == Boat()
    assert {one.source for one in boat.explain_all()} == {Source.DEFAULT}
    assert boat.rest_ns is None


def test_later_sources_win_and_each_value_remembers_its_own(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('[boat]\nhold = "1m"\ncrew = 5\ntide-ns = "10ms"\nBOAT_NAME = "Rana"\n[other]\nx = 1\n')
    boat = Boat.load(toml=file, environ={"BOAT_CREW": "7", "BOAT_TIDE": "20ms", "PATH": "/"}, tide_ns="30ms")
    assert (boat.hold, boat.crew, boat.tide_ns, boat.name) == (1 << 20, 7, 30_000_000, "Rana")
    sources = [boat.source(name) for name in ("hold", "crew", "tide_ns", "name", "afloat")]
    assert sources == [Source.TOML, Source.ENVIRONMENT, Source.KEYWORD, Source.TOML, Source.DEFAULT]


def test_an_option_wins_over_the_environment_and_is_the_origin_of_its_value(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('[boat]\nhold = "1m"\n')
    options = {"--set": {"crew": "9", "tide": "1ms"}, "--name": {"name": "Rana"}}
    boat = Boat.load(toml=file, environ={"BOAT_CREW": "7", "BOAT_AFLOAT": "0"}, options=options, tide_ns="2ms")
    origins = {one.name: (one.source, one.origin) for one in boat.explain_all()}
    assert boat.crew == 9
    assert origins["crew"] == (Source.OPTION, "--set")
    assert origins["name"] == (Source.OPTION, "--name")
    assert origins["tide_ns"] == (Source.KEYWORD, "keyword")
    assert origins["afloat"] == (Source.ENVIRONMENT, "environment BOAT_AFLOAT")
    assert origins["hold"] == (Source.TOML, f"toml {file}")
    assert origins["color"] == (Source.DEFAULT, "default")
    changed = boat.replace(crew=8)
    assert (changed.explain("crew").origin, changed.explain("name").origin) == ("keyword", "--name")
    with pytest.raises(ConfigurationError, match=r"'oars' \(--set\) is not a setting of Boat"):
        Boat.load(options={"--set": {"oars": "2"}})


@pytest.mark.parametrize(
    ("keyword", "value", "meaning"),
    [
        ("hold", "2K", 2048),
        ("hold", 4096, 4096),
        ("tide_ns", "100", 100),
        ("watch_ns", "100", 100_000_000),
        ("watch_ns", "2s", 2_000_000_000),
        ("rest_ns", "", None),
        ("rest_ns", "1us", 1000),
        ("afloat", "False", False),
        ("afloat", "1", True),
        ("afloat", "on", True),
        ("afloat", "TRUE", True),
        ("afloat", "yes", True),
        ("afloat", "Off", False),
        ("afloat", "no", False),
        ("tide_ns", "5S", 5_000_000_000),
        ("tide_ns", "5Ms", 5_000_000),
        ("crew", "0x10", 16),
        ("color", "blue", Color.BLUE),
        ("color", Color.BLUE, Color.BLUE),
    ],
)
def test_values_are_read_from_text_and_taken_typed(keyword, value, meaning):
    assert getattr(load(**{keyword: value}), keyword) == meaning


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hold": "64q"}, r"hold must be a size in bytes, 1k to 1g .*, a power of two \(got '64q'\)"),
        ({"hold": 3000}, r"a power of two \(got 3000\)"),
        ({"hold": "512"}, r"1k to 1g .* \(got '512'\)"),
        ({"hold": None}, r"hold must be a size .* \(got None\)"),
        ({"plank": 33}, r"plank must be a size .*, a multiple of 32 \(got 33\)"),
        ({"tide_ns": "5m"}, r"tide_ns must be a duration, at least 1ns .* \(got '5m'\)"),
        ({"tide_ns": 0}, r"tide_ns must be a duration, at least 1ns .* \(got 0\)"),
        ({"tide_ns": 1.5}, r"tide_ns must be a duration, at least 1ns .* \(got 1.5\)"),
        ({"crew": "many"}, r"crew must be a whole number, 1 to 40 \(got 'many'\)"),
        ({"crew": True}, r"crew must be a whole number, 1 to 40 \(got True\)"),
        ({"afloat": "maybe"}, r"afloat must be true or false \(got 'maybe'\)"),
        ({"afloat": 1}, r"afloat must be true or false \(got 1\)"),
        ({"name": "x"}, r"name must be at least two letters \(got 'x'\)"),
        ({"name": 5}, r"name must be at least two letters \(got 5\)"),
        ({"color": "green"}, r"color must be one of RED, BLUE \(got 'green'\)"),
        ({"color": 5}, r"color must be one of RED, BLUE \(got 5\)"),
        ({"crews": 5}, r"'crews' \(keyword\) is not a setting of Boat; did you mean crew"),
        ({"crew": 11, "afloat": False}, "a crew above 10 needs"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(given, message):
    with pytest.raises(ConfigurationError, match=message):
        load(**given)


def test_the_docstring_lists_the_fields_with_their_meanings():
    assert Boat.__doc__ is not None
    before, _, after = Boat.__doc__.partition("Attributes:")
    listed = [line.strip() for line in after.partition("Example:")[0].strip().splitlines()]
    assert before.strip()
    assert listed == [f"{name}: {setting.meaning}" for name, setting in Boat.declared().items()]
    assert ">>> Boat()" in after


class Anchor(Settings):
    anchored: bool = boolean(False, "Whether it holds.")
    anchor_chain_length: int = size(64, "How long its chain is.")


def test_an_unknown_name_suggests_the_one_that_begins_with_it():
    with pytest.raises(ConfigurationError, match=r"'anchor' \(keyword\) .* did you mean anchor_chain_length\?"):
        Anchor.load(environ={}, anchor=5)


@pytest.mark.parametrize(
    "name", ["tide_ns", "tide", "TIDE", "Boat_Tide", "BOAT_TIDE", "BOAT_TIDE_NS", "boat.tide", "boat-tide", " Tide "]
)
def test_a_name_is_read_in_any_case_with_or_without_prefix_and_unit(name):
    assert load(**{name: "7s"}).tide_ns == 7_000_000_000


def test_a_wrong_value_of_the_environment_is_named_as_it_was_written():
    with pytest.raises(ConfigurationError, match=r"BOAT_CREW must be a whole number, 1 to 40 \(got '0'\)"):
        Boat.load(environ={"BOAT_CREW": "0"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[boat]\nsail = 1\n", r"'sail' \(toml .*fleet.toml\) is not a setting"),
        ("boat = 5\n", "boat is not a table"),
        ("[boat\n", "settings file .*fleet.toml: "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, content, message):
    file = tmp_path / "fleet.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        Boat.load(toml=file, environ={})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        Boat.load(toml=tmp_path / "none.toml", environ={})


def test_settings_are_frozen_and_changed_by_copy():
    boat = Boat.load(environ={"BOAT_CREW": "7"})
    with pytest.raises(AttributeError, match="crew cannot be set"):
        boat.crew = 8
    other = boat.replace(hold="2m")
    assert (boat.hold, other.hold, other.crew) == (64 << 10, 2 << 20, 7)
    assert (other.source("hold"), other.source("crew")) == (Source.KEYWORD, Source.ENVIRONMENT)
    with pytest.raises(ConfigurationError, match="power of two"):
        boat.replace(hold=3000)


def test_values_given_to_the_constructor_are_checked_too():
    assert Boat(hold="2k").hold == 2048
    assert Boat(hold=2048).source("hold") is Source.KEYWORD
    with pytest.raises(ConfigurationError):
        Boat(crew=0)


def test_a_setting_explains_itself_by_either_name():
    boat = load(hold="1m")
    assert str(boat.explain("BOAT_HOLD")) == (
        "hold = 1m  [keyword]\n"
        "  What it carries.\n"
        "  a size in bytes: 1k to 1g (k, m or g may follow), a power of two; default 64k; environment BOAT_HOLD"
    )
    assert str(boat.explain("rest_ns")).startswith("rest_ns = (unset)  [default]")
    assert boat.explain("tide_ns").env == "BOAT_TIDE"


def test_settings_travel_to_another_process_through_its_environment():
    boat = load(hold="1m", tide_ns="30ms", rest_ns=5, afloat=False, color="BLUE")
    environment = boat.environment()
    assert environment == {
        "BOAT_HOLD": "1m",
        "BOAT_TIDE": "30ms",
        "BOAT_REST": "5ns",
        "BOAT_AFLOAT": "false",
        "BOAT_COLOR": "BLUE",
    }
    assert Boat.load(environ=environment) == boat
