"""Defines options of Spark sources as dataclass fields, which give their names, parsing, defaults, SQL rules and documentation.

To add an option, add a field with ``option(...)``. Spark ignores the case of option names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem._internal.units import parse_size
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

C = TypeVar("C", bound=type)

_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h)")
_DELAY_UNITS_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a source or sink.

    ``is_tuning``: the option does not change the rows, so a query over a SQL table may set it. ``is_limit``: the option limits
    micro-batches, which needs Spark 4.2.
    """

    name: str
    parse: Callable[[str, str], Any]
    meaning: str
    default: str
    is_tuning: bool
    is_limit: bool


def option(
    name: str,
    parse: Callable[[str, str], Any],
    meaning: str,
    *,
    default: str | None = None,
    shown: str = "",
    tuning: bool = False,
    limit: bool = False,
) -> Any:
    """Make a dataclass field for the option ``name``.

    ``parse`` is called with the text and with the name, for errors. ``default`` is the text of the default, or None for the value
    None. The documentation shows ``shown`` instead of the default if it is given.
    """
    value = None if default is None else parse(default, name)
    entry = Option(name, parse, meaning, shown or (f"`{default}`" if default else ""), tuning or limit, limit)
    return field(default=value, metadata={"option": entry})


def table_of(kind: type) -> dict[str, Option]:
    """Return the options of a class, by field name."""
    # A class's own options come before inherited ones.
    own = sorted(fields(kind), key=lambda each: each.name not in kind.__annotations__)
    return {each.name: each.metadata["option"] for each in own if "option" in each.metadata}


def parsed(kind: type, source: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse the given options into values by field. Raises ConfigurationError with the option and the accepted values."""
    table = {entry.name.lower(): (name, entry) for name, entry in table_of(kind).items()}
    values = {}
    for given, text in sorted(texts.items()):
        if given.lower() not in table:
            names = ", ".join(sorted(entry.name for _, entry in table.values()))
            raise ConfigurationError(f"{source} has no option {given.lower()!r}; it has {names}")
        name, entry = table[given.lower()]
        values[name] = entry.parse(text, entry.name)
    return values


def tuning_names(*kinds: type) -> frozenset[str]:
    """Return the lower-case names of the options that do not change the rows."""
    return frozenset(entry.name.lower() for kind in kinds for entry in table_of(kind).values() if entry.is_tuning)


def markdown(kind: type) -> str:
    """Return the options as a Markdown table for the documentation, and those that a query over a SQL table may set."""
    options = table_of(kind).values()
    rows = "".join(f"| `{each.name}` | {each.default} | {each.meaning} |\n" for each in options)
    tuning = ", ".join(f"`{each.name}`" for each in options if each.is_tuning)
    queries = f"\n[A query over a SQL table](spark-sql.md) may set {tuning}.\n" if tuning else ""
    return f"| option | default | meaning |\n| --- | --- | --- |\n{rows}{queries}"


def documents(kind: type) -> Callable[[C], C]:
    """Return a decorator that appends the options to the docstring of a source or sink."""

    def document(source: C) -> C:
        lines = (
            f"- ``{each.name}``{f' ({each.default})' if each.default else ''}: {each.meaning}"
            for each in table_of(kind).values()
        )
        source.__doc__ = "\n".join((str(source.__doc__), "", "Options:", "", *lines))
        return source

    return document


# -- values ----------------------------------------------------------------------------------------------------------


def text(value: str, name: str) -> str:  # noqa: ARG001 - all parsers have the same signature
    return value


def positive(value: str, name: str) -> int:
    """Parse a size or a count above zero."""
    number = parse_size(value, name=name)
    if number <= 0:
        raise ConfigurationError(f"{name} must be above 0 (got {value!r})")
    return number


def flag(value: str, name: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name} must be true or false (got {value!r})")
    return value.lower() == "true"


def choice(*values: str) -> Callable[[str, str], str]:
    def parse(value: str, name: str) -> str:
        if value not in values:
            raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, values))} (got {value!r})")
        return value

    return parse


def delay_ns(value: str, name: str) -> int:
    """Parse a duration, and return it in nanoseconds."""
    match = _DELAY.fullmatch(value.strip().lower())
    if match is None:
        raise ConfigurationError(f"{name} must be a duration such as 500ms, 30s, 15m or 1h (got {value!r})")
    return int(match[1]) * _DELAY_UNITS_NS[match[2]]


def integers(value: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError:
        raise ConfigurationError(f"{name} must be integers separated by commas, such as 1,2 (got {value!r})") from None


# -- limits of micro-batches, which several sources have -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TriggerOptions:
    """The limits of a micro-batch in bytes."""

    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        positive,
        "the most bytes that a micro-batch reads, but at least one message, or 1 MiB of a capture. Needs Spark 4.2",
        limit=True,
    )
    min_bytes: int | None = option(
        "minBytesPerTrigger",
        positive,
        "wait for this many new bytes before a micro-batch, but at most `maxTriggerDelay` since the last one. The first "
        "micro-batch of a run and `Trigger.AvailableNow` do not wait. Needs Spark 4.2",
        limit=True,
    )
    max_trigger_delay_ns: int = option(
        "maxTriggerDelay",
        delay_ns,
        "how long `minBytesPerTrigger` may delay a micro-batch, such as `500ms`, `30s`, `15m`, `1h`",
        default="15m",
        limit=True,
    )


def check_trigger(texts: Mapping[str, str], options: TriggerOptions) -> None:
    """Raise ConfigurationError if the limits contradict each other."""
    lowered = {name.lower(): value for name, value in texts.items()}
    if options.min_bytes is None:
        if "maxtriggerdelay" in lowered:
            raise ConfigurationError("maxTriggerDelay limits the delay of minBytesPerTrigger, which is not set")
    elif options.max_bytes is not None and options.min_bytes > options.max_bytes:
        raise ConfigurationError(
            f"minBytesPerTrigger must not exceed maxBytesPerTrigger (got {lowered['minbytespertrigger']!r} and"
            f" {lowered['maxbytespertrigger']!r})"
        )


# -- when a micro-batch is worth its cost, as in Kafka's connector -----------------------------------------------------


class TriggerDelay:
    """A delay of micro-batches until enough new data arrives or a maximum time passes. The driver has one per run of a query.

    It never delays the first micro-batch of a run, so a restart does not add latency.
    """

    def __init__(self, min_bytes: int | None, max_delay_ns: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._min_bytes, self._max_delay_ns, self._clock = min_bytes, max_delay_ns, clock
        self._last_ns: int | None = None

    def holds(self, waiting: int) -> bool:
        """Return whether ``waiting`` bytes should wait for more data before they become a micro-batch."""
        if self._min_bytes is None:
            return False
        now = self._clock.monotonic_ns()
        if self._last_ns is None:
            self._last_ns = now
        elif waiting < self._min_bytes and now - self._last_ns < self._max_delay_ns:
            return True
        elif waiting:
            self._last_ns = now
        return False
