"""Settings that remember where they come from.

A class of settings is a frozen, keyword-only dataclass whose fields are declared with ``size``, ``duration``, ``integer``,
``boolean``, ``text`` or ``choice``. ``load`` fills it from the defaults, then a TOML file, then the environment, then
keywords; each value remembers its source, and a wrong one is refused in a sentence that names it, its value and what would
be accepted.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from mainstem.errors import ConfigurationError
from mainstem.units import format_duration_ns, format_size, parse_duration_ns, parse_size

_NO_LIMIT = (1 << 63) - 1
_METADATA = "setting"


class Source(StrEnum):
    """Where a value comes from; later ones win."""

    DEFAULT = "default"
    TOML = "toml"
    ENVIRONMENT = "environment"
    KEYWORD = "keyword"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one field: how it is read, checked and written, and what it means."""

    meaning: str
    kind: str
    accepts: str
    parse: Callable[[str], Any]
    check: Callable[[Any], str | None]  # what is wrong with a typed value
    show: Callable[[Any], str] = str
    optional: bool = False

    def read(self, name: str, value: object) -> Any:
        """A typed value from text or from a value that is typed already. Raises ConfigurationError naming ``name``."""
        if value is None and self.optional:
            return None
        if isinstance(value, str) and self.optional and not value.strip():
            return None
        try:
            typed = self.parse(value) if isinstance(value, str) else value
        except ValueError:
            typed = value
            wrong: str | None = f"is not {self.kind}"
        else:
            wrong = self.check(typed)
        if wrong:
            raise ConfigurationError(f"{name}: {value!r} {wrong}; accepted: {self.accepts}")
        return typed

    def text(self, value: Any) -> str:
        """The value as ``read`` takes it; empty when it is unset."""
        return "" if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One setting with its value, for people: ``str`` gives a few lines."""

    name: str
    value: str
    source: Source
    default: str
    env: str
    kind: str
    accepts: str
    meaning: str

    def __str__(self) -> str:
        unset = "(unset)"
        return (
            f"{self.name} = {self.value or unset}  [{self.source}]\n"
            f"  {self.meaning}\n"
            f"  {self.kind}: {self.accepts}; default {self.default or unset}; environment {self.env}"
        )


def _field(default: Any, setting: Setting) -> Any:
    if callable(default):
        return dataclasses.field(default_factory=default, metadata={_METADATA: setting})
    return dataclasses.field(default=default, metadata={_METADATA: setting})


def _range(low: int, high: int, show: Callable[[int], str]) -> str:
    return f"at least {show(low)}" if high == _NO_LIMIT else f"{show(low)} to {show(high)}"


def _number(kind: str, low: int, high: int, show: Callable[[int], str]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"is not {kind}"
        return None if low <= value <= high else f"is not {_range(low, high, show)}"

    return check


def size(
    default: int | None,
    meaning: str,
    *,
    low: int = 0,
    high: int = _NO_LIMIT,
    power_of_two: bool = False,
    multiple: int = 1,
) -> Any:
    """A size in bytes: ``4096``, ``64k``, ``16m``."""
    kind = "a size in bytes"
    accepts = _range(low, high, format_size) + " (k, m or g may follow)"
    accepts += ", a power of two" if power_of_two else f", a multiple of {multiple}" if multiple > 1 else ""
    within = _number(kind, low, high, format_size)

    def check(value: Any) -> str | None:
        if wrong := within(value):
            return wrong
        if power_of_two and value & (value - 1):
            return "is not a power of two"
        return f"is not a multiple of {multiple}" if value % multiple else None

    return _field(default, Setting(meaning, kind, accepts, parse_size, check, format_size, default is None))


def duration(default: int | None, meaning: str, *, low: int = 0, high: int = _NO_LIMIT, plain_unit: str = "ns") -> Any:
    """A duration in nanoseconds: ``10us``, ``200ms``, ``5s``; a bare number counts ``plain_unit``."""
    kind = "a duration"
    accepts = _range(low, high, format_duration_ns) + f" (ns, us, ms or s may follow; {plain_unit} without)"

    def parse(text: str) -> int:
        text = text.strip()
        return parse_duration_ns(text + plain_unit if text.isdecimal() else text)

    check = _number(kind, low, high, format_duration_ns)
    optional = default is None
    return _field(default, Setting(meaning, kind, accepts, parse, check, format_duration_ns, optional))


def integer(default: int | None, meaning: str, *, low: int, high: int) -> Any:
    """A whole number."""
    kind = "a whole number"
    check = _number(kind, low, high, str)
    return _field(default, Setting(meaning, kind, f"{low} to {high}", int, check, optional=default is None))


def boolean(default: bool, meaning: str) -> Any:
    """True or false, as ``true``/``false`` or ``1``/``0``."""

    def parse(value: str) -> bool:
        try:
            return {"true": True, "1": True, "false": False, "0": False}[value.strip().lower()]
        except KeyError:
            raise ValueError from None

    def check(value: Any) -> str | None:
        return None if isinstance(value, bool) else "is neither true nor false"

    def show(value: bool) -> str:
        return "true" if value else "false"

    return _field(default, Setting(meaning, "a truth value", "true or false", parse, check, show))


def text(
    default: str | Callable[[], str] | None,
    meaning: str,
    *,
    accepts: str = "any text",
    wrong: Callable[[str], str | None] | None = None,
) -> Any:
    """Text; ``wrong`` says what is wrong with one, if anything is."""

    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return "is not text"
        return wrong(value) if wrong else None

    return _field(default, Setting(meaning, "text", accepts, str, check, optional=default is None))


def choice(default: Enum, meaning: str) -> Any:
    """One of an enumeration's values, in any case."""
    kinds: type[Enum] = type(default)
    names = ", ".join(str(kind.value) for kind in kinds)

    def parse(value: str) -> Enum:
        found = next((kind for kind in kinds if str(kind.value).lower() == value.strip().lower()), None)
        if found is None:
            raise ValueError
        return found

    def check(value: Any) -> str | None:
        return None if isinstance(value, kinds) else "is not one of them"

    return _field(
        default, Setting(meaning, "a choice", f"one of {names}", parse, check, lambda value: str(value.value))
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of every class of settings.

    ``SECTION`` is the table of the TOML file that it reads. An environment name is ``ENV_PREFIX`` and the attribute's name
    in upper case, without the ``_ns`` of durations.
    """

    SECTION: ClassVar[str] = ""
    ENV_PREFIX: ClassVar[str] = ""

    def __post_init__(self) -> None:
        sources = {}
        for field in dataclasses.fields(self):
            value = _setting(field).read(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            sources[field.name] = Source.DEFAULT if value == _default(field) else Source.KEYWORD
        object.__setattr__(self, "_sources", sources)
        self.validate()

    def validate(self) -> None:
        """Checks that need several values at once; raises ConfigurationError."""

    @classmethod
    def load(
        cls,
        *,
        toml: str | os.PathLike[str] | Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        **keywords: object,
    ) -> Self:
        """Defaults, then the TOML file (or a mapping of what is in it), then the environment, then keywords.

        In TOML and keywords a name is the attribute's, or the environment's; one that is unknown is refused. The
        environment may hold names of other programs, which are left alone. Raises ConfigurationError.
        """
        known = {field.name: _setting(field) for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        sources = dict.fromkeys(known, Source.DEFAULT)
        environ = os.environ if environ is None else environ
        from_environment = {name: environ[cls.env_name(name)] for name in known if cls.env_name(name) in environ}
        for source, given in (
            (Source.TOML, cls._table(toml)),
            (Source.ENVIRONMENT, from_environment),
            (Source.KEYWORD, keywords),
        ):
            for key, value in given.items():
                name = cls._name_of(key, source)
                shown = cls.env_name(name) if source is Source.ENVIRONMENT else name
                values[name] = known[name].read(shown, value)
                sources[name] = source
        made = cls(**values)
        object.__setattr__(made, "_sources", sources)
        return made

    @classmethod
    def env_name(cls, name: str) -> str:
        """The environment variable of an attribute."""
        return cls.ENV_PREFIX + name.removesuffix("_ns").upper()

    @classmethod
    def _table(cls, toml: str | os.PathLike[str] | Mapping[str, object] | None) -> Mapping[str, object]:
        if toml is None:
            return {}
        if isinstance(toml, Mapping):
            content = toml
        else:
            try:
                content = tomllib.loads(Path(toml).read_text("utf-8"))
            except OSError as error:
                raise ConfigurationError(f"settings file {os.fspath(toml)}: {error.strerror}") from None
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"settings file {os.fspath(toml)}: {error}") from None
        table = content.get(cls.SECTION, {}) if cls.SECTION else content
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"settings: {cls.SECTION} is not a table")
        return table

    @classmethod
    def _name_of(cls, key: str, source: Source) -> str:
        """The attribute that a name means."""
        plain = key.replace("-", "_")
        names = {}
        for field in dataclasses.fields(cls):
            names[field.name] = names[cls.env_name(field.name)] = field.name
        if plain in names:
            return names[plain]
        near = difflib.get_close_matches(plain, list(names), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigurationError(f"{key!r} ({source}) is not a setting of {cls.__name__}{hint}")

    def source(self, name: str) -> Source:
        """Where the value of that setting comes from."""
        sources: dict[str, Source] = self._sources  # type: ignore[attr-defined]
        return sources[self._name_of(name, Source.KEYWORD)]

    def replace(self, **keywords: object) -> Self:
        """The same settings with some values changed; what is not changed keeps its source."""
        kept: dict[str, Source] = dict(self._sources)  # type: ignore[attr-defined]
        changed = {self._name_of(key, Source.KEYWORD): value for key, value in keywords.items()}
        made = dataclasses.replace(self, **changed)
        object.__setattr__(made, "_sources", kept | dict.fromkeys(changed, Source.KEYWORD))
        return made

    def explain(self, name: str) -> Explanation:
        """Everything about one setting, named by its attribute or by its environment variable."""
        name = self._name_of(name, Source.KEYWORD)
        field = next(field for field in dataclasses.fields(self) if field.name == name)
        setting = _setting(field)
        return Explanation(
            name=name,
            value=setting.text(getattr(self, name)),
            source=self.source(name),
            default=setting.text(_default(field)),
            env=self.env_name(name),
            kind=setting.kind,
            accepts=setting.accepts,
            meaning=setting.meaning,
        )

    def explain_all(self) -> list[Explanation]:
        """Every setting, in the order of the declaration."""
        return [self.explain(field.name) for field in dataclasses.fields(self)]

    def environment(self) -> dict[str, str]:
        """What to put into the environment of another program so that it has the same settings; defaults left out."""
        explained = [one for one in self.explain_all() if one.source is not Source.DEFAULT]
        return {one.env: one.value for one in explained}


def _setting(field: dataclasses.Field[Any]) -> Setting:
    setting: Setting = field.metadata[_METADATA]
    return setting


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
