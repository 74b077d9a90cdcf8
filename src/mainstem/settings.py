"""Settings that remember where their values come from.

A settings class derives from ``Settings`` and declares each field once, with its default, limits and meaning: with ``size``,
``duration``, ``integer``, ``fraction``, ``boolean``, ``text`` or ``choice``. Its environment variable, its name in TOML and its
line in the class's docstring follow. ``load`` applies the defaults, then a TOML file, then the environment, then
command-line options, then keywords. Each value remembers its source and its origin (the file, the variable or the option).
Instances are immutable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from mainstem._internal.frozen import frozen
from mainstem._internal.units import format_duration_ns, format_size, parse_duration_ns, parse_size
from mainstem.errors import ConfigurationError

__all__ = [
    "Explanation",
    "Setting",
    "Settings",
    "Source",
    "boolean",
    "choice",
    "duration",
    "fraction",
    "integer",
    "size",
    "text",
]

_NO_LIMIT = (1 << 63) - 1
_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class Source(StrEnum):
    """Where a value comes from. Later sources take precedence.

    Example:
        >>> DriverSettings.load(mtu_length="4k").source("mtu_length")
        <Source.KEYWORD: 'keyword'>
    """

    DEFAULT = "default"
    TOML = "toml"
    ENVIRONMENT = "environment"
    OPTION = "option"
    KEYWORD = "keyword"


@frozen
class Setting:
    """The declaration of one field: how its value is parsed, checked and written, and what it means.

    Attributes:
        default: The typed default, or a function that returns it.
        meaning: A sentence that explains the setting.
        kind: The kind of value, such as ``a size in bytes``.
        accepts: The accepted values, such as ``64k to 1g``.
        parse: Parses a value from text; raises ValueError.
        fits: Whether a typed value is accepted.
        show: Formats a value as text that ``parse`` accepts.
        optional: Whether the setting can be unset (None).
        limits: The smallest and the largest number, for settings classes that clamp; None if nothing is clamped.

    Example:
        >>> setting = DriverSettings.declared()["mtu_length"]
    """

    default: Any
    meaning: str
    kind: str
    accepts: str
    parse: Callable[[str], Any]
    fits: Callable[[Any], bool]
    show: Callable[[Any], str] = str
    optional: bool = False
    limits: tuple[float, float] | None = None

    def read(self, name: str, value: object) -> Any:
        """Return a typed value from text, or from a value that already has the type.

        Args:
            name: The name for the error message.
            value: Text or a typed value. None and blank text leave an optional setting unset.

        Returns:
            The typed value.

        Raises:
            ConfigurationError: The value is invalid.

        Example:
            >>> setting.read("count", "7")
            7
        """
        if value is None and self.optional:
            return None
        if isinstance(value, str) and self.optional and not value.strip():
            return None
        try:
            typed = self.parse(value) if isinstance(value, str) else value
            if self.fits(typed):
                return typed
        except ValueError:
            pass
        expected = self.accepts if self.limits is None else f"{self.kind}, {self.accepts}"
        raise ConfigurationError(f"{name} must be {expected} (got {value!r})")

    def clamp(self, value: str) -> str:
        """Return the text of a number, brought within ``limits``.

        Args:
            value: The text. If it is not a number, it is returned unchanged, and ``read`` rejects it.

        Returns:
            The text to pass to ``read``.

        Example:
            >>> setting.clamp("12")
            '9'
        """
        if self.limits is None or not value.strip():
            return value
        try:
            typed = self.parse(value)
        except ValueError:
            return value
        low, high = self.limits
        return value if low <= typed <= high else self.show(type(typed)(min(max(typed, low), high)))

    def initial(self) -> Any:
        """Return the typed default.

        Returns:
            The default, or what its function returns.

        Example:
            >>> setting.initial()
            7
        """
        return self.default() if callable(self.default) else self.default

    def text(self, value: Any) -> str:
        """Return a value as text that ``read`` accepts.

        Args:
            value: A typed value, or None if unset.

        Returns:
            The text; empty if the value is unset.

        Example:
            >>> setting.text(7)
            '7'
        """
        return "" if value is None else self.show(value)


@frozen
class Explanation:
    """One setting with its value, for people to read. ``str`` formats it in a few lines.

    Attributes:
        name: The attribute's name.
        value: The value as text; empty if it is unset.
        source: Where the value comes from.
        origin: The same in readable form, such as ``environment AERON_MTU_LENGTH``, ``toml driver.toml`` or ``--set``.
        default: The default as text.
        env: The environment variable.
        kind: The kind of value.
        accepts: The accepted values.
        meaning: What the setting means.

    Example:
        >>> print(DriverSettings.load().explain("mtu_length"))
    """

    name: str
    value: str
    source: Source
    origin: str
    default: str
    env: str
    kind: str
    accepts: str
    meaning: str

    def __str__(self) -> str:
        unset = "(unset)"
        return (
            f"{self.name} = {self.value or unset}  [{self.origin}]\n"
            f"  {self.meaning}\n"
            f"  {self.kind}: {self.accepts}; default {self.default or unset}; environment {self.env}"
        )


def _range(low: int, high: int, show: Callable[[int], str]) -> str:
    return f"at least {show(low)}" if high == _NO_LIMIT else f"{show(low)} to {show(high)}"


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def size(
    default: int | None,
    meaning: str,
    *,
    low: int = 0,
    high: int = _NO_LIMIT,
    power_of_two: bool = False,
    multiple: int = 1,
    clamp: tuple[int, int] | None = None,
) -> Any:
    """Declare a size in bytes: ``4096``, ``64k``, ``16m``.

    Args:
        default: The default in bytes; None declares an optional setting.
        meaning: A sentence that explains the setting.
        low: The smallest value, in bytes.
        high: The largest value, in bytes.
        power_of_two: Whether the value must be a power of two.
        multiple: The number of bytes that the value must be a multiple of.
        clamp: The limits for settings classes that clamp, if they differ from the smallest and the largest value.

    Returns:
        The declaration.

    Example:
        >>> mtu_length: int = size(1408, "The longest datagram.", low=32, high=65504, multiple=32)
    """
    accepts = _range(low, high, format_size) + " (k, m or g may follow)"
    accepts += ", a power of two" if power_of_two else f", a multiple of {multiple}" if multiple > 1 else ""

    def parse(text: str) -> int:
        value = parse_size(text)
        if value < 0:
            raise ValueError
        return value

    def fits(value: Any) -> bool:
        return _is_int(value, low, high) and value % multiple == 0 and not (power_of_two and value & (value - 1))

    return Setting(
        default=default,
        meaning=meaning,
        kind="a size in bytes",
        accepts=accepts,
        parse=parse,
        fits=fits,
        show=format_size,
        optional=default is None,
        limits=clamp or (low, high),
    )


def duration(
    default: int | None,
    meaning: str,
    *,
    low: int = 0,
    high: int = _NO_LIMIT,
    plain_unit: str = "ns",
    clamp: tuple[int, int] | None = None,
) -> Any:
    """Declare a duration in nanoseconds: ``10us``, ``200ms``, ``5s``.

    Args:
        default: The default in nanoseconds; None declares an optional setting.
        meaning: A sentence that explains the setting.
        low: The smallest value, in nanoseconds.
        high: The largest value, in nanoseconds.
        plain_unit: The unit of a number without a unit: ns, us, ms or s.
        clamp: The limits for settings classes that clamp, if they differ from the smallest and the largest value.

    Returns:
        The declaration.

    Example:
        >>> linger_ns: int = duration(5_000_000_000, "How long an ended publication stays.")
    """
    accepts = _range(low, high, format_duration_ns) + f" (ns, us, ms, s, min, h or d may follow; {plain_unit} without)"

    def parse(text: str) -> int:
        return parse_duration_ns(text, plain_unit=plain_unit)

    return Setting(
        default=default,
        meaning=meaning,
        kind="a duration",
        accepts=accepts,
        parse=parse,
        fits=lambda value: _is_int(value, low, high),
        show=format_duration_ns,
        optional=default is None,
        limits=clamp or (low, high),
    )


def integer(default: int | None, meaning: str, *, low: int, high: int) -> Any:
    """Declare a whole number: decimal, hexadecimal with ``0x``, or octal with a leading ``0``.

    Args:
        default: The default; None declares an optional setting.
        meaning: A sentence that explains the setting.
        low: The smallest value.
        high: The largest value.

    Returns:
        The declaration.

    Example:
        >>> max_resend: int = integer(16, "Retransmissions at once.", low=1, high=256)
    """

    def parse(value: str) -> int:
        digits = value.strip().lower().lstrip("+-")
        return int(value, 16 if digits.startswith("0x") else 8 if digits[:1] == "0" else 10)

    return Setting(
        default=default,
        meaning=meaning,
        kind="a whole number",
        accepts=f"{low} to {high}",
        parse=parse,
        fits=lambda value: _is_int(value, low, high),
        optional=default is None,
        limits=(low, high),
    )


def fraction(default: float, meaning: str) -> Any:
    """Declare a fraction, from 0 to 1.

    Args:
        default: The default.
        meaning: A sentence that explains the setting.

    Returns:
        The declaration.

    Example:
        >>> loss_rate: float = fraction(0.0, "How much is lost.")
    """
    return Setting(
        default=default,
        meaning=meaning,
        kind="a fraction",
        accepts="0 to 1",
        parse=float,
        fits=lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
        show=lambda value: f"{value:g}",
        limits=(0, 1),
    )


def boolean(default: bool, meaning: str) -> Any:
    """Declare a boolean: ``true``/``false``, ``on``/``off``, ``yes``/``no`` or ``1``/``0``, in any case.

    Args:
        default: The default.
        meaning: A sentence that explains the setting.

    Returns:
        The declaration.

    Example:
        >>> reliable: bool = boolean(True, "Whether loss is repaired.")
    """

    def parse(value: str) -> bool:
        word = value.strip().lower()
        if word not in _TRUE and word not in _FALSE:
            raise ValueError
        return word in _TRUE

    def show(value: bool) -> str:
        return "true" if value else "false"

    return Setting(
        default=default,
        meaning=meaning,
        kind="a boolean",
        accepts="true or false",
        parse=parse,
        fits=lambda value: isinstance(value, bool),
        show=show,
    )


def text(
    default: str | Callable[[], str] | None,
    meaning: str,
    *,
    accepts: str = "any text",
    fits: Callable[[str], bool] = lambda _: True,
) -> Any:
    """Declare a text.

    Args:
        default: The default, or a function that returns it; None declares an optional setting.
        meaning: A sentence that explains the setting.
        accepts: The accepted values, for the error message.
        fits: Whether a text is accepted.

    Returns:
        The declaration.

    Example:
        >>> client_name: str = text("", "The client's name.")
    """
    return Setting(
        default=default,
        meaning=meaning,
        kind="text",
        accepts=accepts,
        parse=str,
        fits=lambda value: isinstance(value, str) and fits(value),
        optional=default is None,
    )


def choice(default: Enum, meaning: str) -> Any:
    """Declare a choice between the values of an enumeration, in upper or lower case.

    Args:
        default: The default, a member of the enumeration.
        meaning: A sentence that explains the setting.

    Returns:
        The declaration.

    Example:
        >>> threading_mode: ThreadingMode = choice(ThreadingMode.SHARED, "Which agents share a thread.")
    """
    kinds: type[Enum] = type(default)
    names = ", ".join(str(kind.value) for kind in kinds)

    def parse(value: str) -> Enum:
        member = next((kind for kind in kinds if str(kind.value).lower() == value.strip().lower()), None)
        if member is None:
            raise ValueError
        return member

    return Setting(
        default=default,
        meaning=meaning,
        kind="a choice",
        accepts=f"one of {names}",
        parse=parse,
        fits=lambda value: isinstance(value, kinds),
        show=lambda value: str(value.value),
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """The base class of all settings classes. Instances are created from keywords, immutable, and equal if their values are.

    Attributes:
        SECTION: The table of the TOML file to read; empty for the whole file.
        ENV_PREFIX: The prefix of every environment variable. The rest is the attribute's name in upper case, without the ``_ns`` of
            durations.
        CLAMPS: Whether a number in the environment that is outside its limits is changed to the nearest limit. Keywords, options
            and values in a file that are outside their limits always raise an error.

    Example:
        >>> class GreeterSettings(Settings):
        ...     SECTION = "greeter"
        ...     ENV_PREFIX = "GREETER_"
        ...     greeting: str = text("hello", "What is sent.")
    """

    SECTION: ClassVar[str] = ""
    ENV_PREFIX: ClassVar[str] = ""
    CLAMPS: ClassVar[bool] = False

    _declared: ClassVar[Mapping[str, Setting]] = {}
    # The attributes by all names that they may be given.
    _names: ClassVar[dict[str, str]] = {}
    # Set on each instance. Origins exist only for values that are neither defaults nor keywords.
    _sources: ClassVar[Mapping[str, Source]]
    _origins: ClassVar[Mapping[str, str]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        cls._declared = {**cls._declared, **own}
        prefix, cls._names = cls.ENV_PREFIX.lower(), {}
        for name in cls._declared:
            short = name.removesuffix("_ns")
            cls._names |= dict.fromkeys((name, short, prefix + short, prefix + name), name)
        for name in own:
            delattr(cls, name)
        if cls.__doc__:
            # Since Python 3.13, the compiler removes the indentation of docstrings.
            first = re.search(r"\n( *)\S", cls.__doc__)
            indent = first[1] if first else ""
            text, example, rest = cls.__doc__.partition(f"\n{indent}Example:\n")
            fields = "".join(f"{indent}    {name}: {setting.meaning}\n" for name, setting in cls._declared.items())
            cls.__doc__ = f"{text.rstrip()}\n\n{indent}Attributes:\n{fields}{example}{rest}"

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self._declared.keys():
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        own = vars(self)
        sources: dict[str, Source] = {}
        for name, setting in self._declared.items():
            own[name] = initial = setting.initial()
            sources[name] = Source.DEFAULT
            if name in values:
                own[name] = setting.read(name, values[name])
                if own[name] != initial:
                    sources[name] = Source.KEYWORD
        own["_sources"], own["_origins"] = sources, {}
        self.validate()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: settings do not change; make others with replace")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be deleted: settings do not change; make others with replace")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._declared}

    @classmethod
    def declared(cls) -> Mapping[str, Setting]:
        """Return the declaration of every setting, in order, by its name.

        Returns:
            The declarations.

        Example:
            >>> names = list(ClientSettings.declared())
        """
        return cls._declared

    def validate(self) -> None:
        """Check rules that involve several values. A class with such rules overrides this method.

        Raises:
            ConfigurationError: The values contradict each other.

        Example:
            >>> def validate(self) -> None:
            ...     if self.low > self.high:
            ...         raise ConfigurationError(f"low: {self.low} is above high: {self.high}")
        """

    @classmethod
    def load(
        cls,
        *,
        toml: str | os.PathLike[str] | Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        options: Mapping[str, Mapping[str, object]] | None = None,
        **keywords: object,
    ) -> Self:
        """Load settings: first the defaults, then the TOML file, the environment, and finally options and keywords.

        A name in TOML or in keywords is the attribute's name or the environment variable, in any case and with or without the
        prefix. An unknown name raises an error. The environment may contain variables of other programs, which are ignored.

        Args:
            toml: The path of a TOML file, or a mapping with its content; None if there is none.
            environ: The environment; by default, that of the process.
            options: Values from a command line, by the option that set them, such as ``{"--set": {"mtu_length": "4k"}}``.
            **keywords: Individual values, typed or as text.

        Returns:
            The settings; each value remembers its source.

        Raises:
            ConfigurationError: A name is unknown, a value is invalid, values contradict each other, or the file is unreadable.

        Example:
            >>> settings = DriverSettings.load(toml="driver.toml", mtu_length="4k")
        """
        known = cls._declared
        values: dict[str, Any] = {}
        sources = dict.fromkeys(known, Source.DEFAULT)
        origins: dict[str, str] = {}
        environ = os.environ if environ is None else environ
        from_environment = {name: environ[cls.env_name(name)] for name in known if cls.env_name(name) in environ}
        file = "" if toml is None or isinstance(toml, Mapping) else f" {os.fspath(toml)}"
        for source, origin, assignments in (
            (Source.TOML, f"{Source.TOML}{file}", cls._table(toml)),
            (Source.ENVIRONMENT, str(Source.ENVIRONMENT), from_environment),
            *((Source.OPTION, option, by_name) for option, by_name in (options or {}).items()),
            (Source.KEYWORD, str(Source.KEYWORD), keywords),
        ):
            for key, value in assignments.items():
                name = cls._name_of(key, origin)
                sources[name] = source
                if source is not Source.ENVIRONMENT:
                    values[name], origins[name] = known[name].read(name, value), origin
                    continue
                shown = cls.env_name(name)
                used = known[name].clamp(str(value)) if cls.CLAMPS else value
                values[name] = known[name].read(shown, used)
                origins[name] = f"{origin} {shown}" + (f", clamped from {value}" if used != value else "")
        settings = cls(**values)
        vars(settings).update(_sources=sources, _origins=origins)
        return settings

    @classmethod
    def env_name(cls, name: str) -> str:
        """Return the environment variable of an attribute.

        Args:
            name: The attribute's name.

        Returns:
            The variable's name.

        Example:
            >>> ClientSettings.env_name("driver_timeout_ns")
            'AERON_DRIVER_TIMEOUT'
        """
        return cls.ENV_PREFIX + name.removesuffix("_ns").upper()

    @classmethod
    def has(cls, name: str) -> bool:
        """Return whether there is a setting with this name.

        Args:
            name: The attribute's name, or the environment variable, in any case.

        Returns:
            Whether ``load`` would accept the name.

        Example:
            >>> ClientSettings.has("mtu_length")
            False
        """
        try:
            cls._name_of(name, "")
        except ConfigurationError:
            return False
        return True

    @classmethod
    def _table(cls, toml: str | os.PathLike[str] | Mapping[str, object] | None) -> Mapping[str, object]:
        if toml is None:
            return {}
        if isinstance(toml, Mapping):
            content = toml
        else:
            import tomllib

            try:
                with open(toml, "rb") as file:
                    content = tomllib.load(file)
            except OSError as error:
                raise ConfigurationError(f"settings file {os.fspath(toml)}: {error.strerror}") from None
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"settings file {os.fspath(toml)}: {error}") from None
        table = content.get(cls.SECTION, {}) if cls.SECTION else content
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"settings: {cls.SECTION} is not a table")
        return table

    @classmethod
    def _name_of(cls, key: str, origin: str) -> str:
        """Return the attribute for a name in any case, with or without the prefix, the ``_ns`` and any of ``-_.``."""
        plain = re.sub(r"[-.]", "_", key.strip()).lower()
        if plain in cls._names:
            return cls._names[plain]
        from mainstem._internal.overrides import did_you_mean  # only a wrong name needs it

        hint = did_you_mean(plain, cls._names)
        raise ConfigurationError(f"{key!r} ({origin}) is not a setting of {cls.__name__}{hint}")

    def source(self, name: str) -> Source:
        """Return where a setting's value comes from.

        Args:
            name: The attribute's name, or the environment variable.

        Returns:
            The source.

        Raises:
            ConfigurationError: There is no such setting.

        Example:
            >>> ClientSettings.load().source("dir")
            <Source.DEFAULT: 'default'>
        """
        return self._sources[self._name_of(name, Source.KEYWORD)]

    def replace(self, **keywords: object) -> Self:
        """Return the same settings with some values changed. The other values keep their source.

        Args:
            **keywords: The changes, by attribute or environment variable.

        Returns:
            New settings.

        Raises:
            ConfigurationError: A name is unknown, or a value is invalid.

        Example:
            >>> settings = settings.replace(client_name="pricing")
        """
        changed = {self._name_of(key, Source.KEYWORD): value for key, value in keywords.items()}
        settings = type(self)(**{**self._values(), **changed})
        sources = {**self._sources, **dict.fromkeys(changed, Source.KEYWORD)}
        origins = {name: origin for name, origin in self._origins.items() if name not in changed}
        vars(settings).update(_sources=sources, _origins=origins)
        return settings

    def explain(self, name: str) -> Explanation:
        """Return everything about one setting.

        Args:
            name: The attribute's name, or the environment variable.

        Returns:
            The setting's value, source, default, limits and meaning.

        Raises:
            ConfigurationError: There is no such setting.

        Example:
            >>> print(settings.explain("AERON_DRIVER_TIMEOUT"))
        """
        name = self._name_of(name, Source.KEYWORD)
        setting, source = self._declared[name], self._sources[name]
        return Explanation(
            name=name,
            value=setting.text(getattr(self, name)),
            source=source,
            origin=self._origins.get(name, str(source)),
            default=setting.text(setting.initial()),
            env=self.env_name(name),
            kind=setting.kind,
            accepts=setting.accepts,
            meaning=setting.meaning,
        )

    def explain_all(self) -> list[Explanation]:
        """Return every setting, in the order of declaration.

        Returns:
            One explanation per setting.

        Example:
            >>> changed = [e for e in settings.explain_all() if e.source is not Source.DEFAULT]
        """
        return [self.explain(name) for name in self._declared]

    def environment(self) -> dict[str, str]:
        """Return the environment variables that give another program the same settings, omitting defaults.

        Returns:
            Values by environment variable.

        Example:
            >>> subprocess.run(["aeronmd"], env=os.environ | settings.environment())
        """
        explained = [one for one in self.explain_all() if one.source is not Source.DEFAULT]
        return {one.env: one.value for one in explained}
