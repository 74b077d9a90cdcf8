"""The pages of docs/reference that are tables: generated from the command line, settings, counters, errors and tables.

Entries without a meaning here cause an error, so that every new counter or error code of the driver gets one.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import extras
import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import click

# Why the driver refuses a command, by the name in ErrorCode, which is RegistrationError.code.
ERROR_CODES = {
    "UNKNOWN": "a code that this release does not know",
    "UNUSED": "never sent",
    "INVALID_CHANNEL": "the channel URI cannot be used",
    "UNKNOWN_SUBSCRIPTION": "there is no subscription of that id",
    "UNKNOWN_PUBLICATION": "there is no publication of that id",
    "CHANNEL_ENDPOINT_ERROR": "the channel's socket failed",
    "UNKNOWN_COUNTER": "there is no counter of that id",
    "UNKNOWN_COMMAND_TYPE_ID": "a command that the driver does not have",
    "MALFORMED_COMMAND": "a command that is too short or contradicts itself",
    "NOT_SUPPORTED": "a command that this driver does not do",
    "UNKNOWN_HOST": "a name that does not resolve",
    "RESOURCE_TEMPORARILY_UNAVAILABLE": "the same command may succeed a little later",
    "GENERIC_ERROR": "anything else; the text says what",
    "STORAGE_SPACE": "too little room for the log buffer",
    "IMAGE_REJECTED": "a subscriber rejected the image",
    "PUBLICATION_REVOKED": "the publication was revoked",
}


def cell(text: object) -> str:
    """Return a text as a table cell, on one line and without bars."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    lines += ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """Return a text as code; empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or the commands within it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, each in inner.items():
        yield from leaves(f"{name} {word}", each)


def option_rows(command: click.Command) -> Iterator[tuple[str, str, str]]:
    """Yield the names, meaning and default of each argument and option."""
    from mainstem.cli._options import help_rows

    for row in help_rows(command):
        default = row.default if row.default == "required" else code(row.default)
        yield ", ".join(code(name) for name in row.names), row.meaning, default


COMMAND_LINE = """# The command line

`mainstem COMMAND --help` prints the same in a terminal. An option means the same in every command.

Durations are written as in `500ms`, `10s`, `5min`, `24h` or `7d` (a bare number is seconds), sizes as in `64k`, `16m` or `1g`.
"""


def command_line() -> str:
    """Return the page of all ``mainstem`` commands, with their options."""
    import typer

    from mainstem import cli
    from mainstem.cli._options import explained_columns

    parts = [COMMAND_LINE]
    lines = cli.commands()
    for panel, names in cli.PANELS.items():
        parts.append(table([panel, ""], [(f"[`mainstem {n}`](#mainstem-{n})", lines[n]) for n in names]))
    for name in lines:
        group: Any = typer.main.get_command(cli.build([name]))
        inner = list(leaves(name, group.commands[name]))
        is_group = [path for path, _ in inner] != [name]
        if is_group:
            parts.append(f"## mainstem {name}\n\n{inspect.cleandoc(group.commands[name].help)}\n")
        for path, command in inner:
            level = "###" if is_group else "##"
            body = inspect.cleandoc(command.help or "").replace("\f", "").strip()
            parts.append(f"{level} mainstem {path}\n\n{body}\n")
            rows = list(option_rows(command))
            if rows:
                parts.append(table(["argument or option", "meaning", "default"], rows))
            if columns := explained_columns(command):
                rows = [(each.title.strip(), code(each.name), each.meaning) for each in columns]
                has_csv = any("--csv" in each.opts for each in command.params)
                parts.append(table(["column", "in JSON and CSV" if has_csv else "in JSON", "meaning"], rows))
    return "\n".join(parts)


def settings() -> str:
    """Return the page of all settings of driver, client and archive."""
    from mainstem.aeron.client.settings import ClientSettings, default_client_name
    from mainstem.aeron.directory import user_directory
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.archive.server import ArchiveSettings

    head = (
        "# Settings\n\nA setting is read from the first of these that has it: a keyword or `--set name=value`, the environment, a "
        "TOML file, its default. In the environment `mtu_length` is `AERON_MTU_LENGTH`, and `timer_interval_ns` is "
        "`AERON_TIMER_INTERVAL`. Sizes take `k`, `m`, `g`; durations `ns`, `us`, `ms`, `s`. `mainstem config show` prints the "
        "values in use and where each comes from; `mainstem config explain NAME` explains one.\n"
    )
    parts = [head]
    for kind, title in (
        (DriverSettings, "The media driver"),
        (ClientSettings, "A client"),
        (ArchiveSettings, "An archive"),
    ):
        rows = []
        for each in kind.load(environ={}).explain_all():
            default = each.default.replace(user_directory(), "/dev/shm/aeron-USER")
            default = default.replace(default_client_name(), "PROGRAM-PID")
            accepted = f"{each.kind}: {each.accepts}" + (f"; default {code(default)}" if default else "")
            rows.append((code(each.name), each.meaning, accepted))
            assert each.env == kind.ENV_PREFIX + each.name.upper().removesuffix("_NS"), each.name
        parts.append(f"## {title}\n\nThe TOML table is `[{kind.SECTION}]`.\n")
        parts.append(table(["setting", "meaning", "accepts"], rows))
    return "\n".join(parts)


def counters() -> str:
    """Return the page of all driver counters, with their Prometheus names."""
    from mainstem._core.system_counter import REFERENCE_COUNTERS, SystemCounter
    from mainstem.aeron.counters import ArchiveCounterType, CounterType
    from mainstem.metrics.families import GAUGES, PREFIX

    system = [
        (each.value, each.label, each.meaning, code(f"{PREFIX}system_{each.name.lower()}")) for each in SystemCounter
    ]
    others = []
    for kind in CounterType:
        if kind is not CounterType.SYSTEM:
            # Prometheus names of counters end in this suffix. Gauges have none, because their values can fall.
            total = "" if kind in GAUGES else "_total"
            metric = f"{PREFIX}stream_{kind.label.replace('-', '_')}{total}" if kind.label else f"{PREFIX}counter"
            others.append((kind.value, code(kind.label), kind.meaning, code(metric)))
    return (
        "# Counters\n\n`mainstem stat` prints them live, `mainstem metrics` for Prometheus. Numbers and labels are the reference "
        f"driver's, except for system counters from {REFERENCE_COUNTERS} on, which only Mainstem's driver has.\n\n"
        "## System counters\n\n"
        + table(["id", "label", "meaning", "metric"], system)
        + "\n## Of streams, channels and clients\n\nStreams' metrics have the labels of their stream.\n\n"
        + table(["type", "label", "meaning", "metric"], others)
        + "\nOf an Aeron Archive and its clients, by the names that `mainstem stat --type` takes:\n\n"
        + table(
            ["type", "name", "meaning", "metric"],
            [(each.value, code(each.label), each.meaning, code(f"{PREFIX}counter")) for each in ArchiveCounterType],
        )
        + f"\nBesides these: `{PREFIX}driver_heartbeat_age_seconds`, -1 once the driver has shut down.\n"
        + "\n## Of servers and clients of bymux, Jmux and Aqueduct\n\nA program exports them itself "
        "([Metrics](../how-to/metrics.md)). Labels: `name`, `protocol`, `role`.\n\n"
        + table(["kind", "meaning", "metric"], endpoint_metrics())
    )


def endpoint_metrics() -> list[tuple[str, str, str]]:
    """Return every metric of ``Endpoints``, from an endpoint that has all of them."""
    from mainstem._internal.endpoint_stats import EndpointCounters
    from mainstem.aqueduct.context import ConnectionCounters
    from mainstem.aqueduct.stats import connection_stats
    from mainstem.metrics import Endpoints

    class Example:
        def stats(self) -> Any:
            return connection_stats((), EndpointCounters(), ConnectionCounters(), role="server", closed=False)

    endpoints = Endpoints()
    endpoints.add("example", Example())
    rows = []
    for family in endpoints.families():
        causes = [code(sample.labels["cause"]) for sample in family.samples if "cause" in sample.labels]
        meaning = family.help[0].lower() + family.help[1:]
        if causes:
            meaning += f" (label `cause`: {', '.join(causes)})"
        total = "_total" if family.kind == "counter" else ""
        rows.append((family.kind, meaning, code(family.name + total)))
    return rows


def errors() -> str:
    """Return the page of all errors as a tree, with the driver's codes."""
    from mainstem.aeron.command.error_code import ErrorCode

    module = importlib.import_module("mainstem.errors")
    rows: list[tuple[str, str]] = []

    def add(kind: type[Exception], depth: int) -> None:
        parents = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins"]
        meaning = (inspect.getdoc(kind) or "").partition("\n")[0]
        also = f" Also a `{'`, a `'.join(parents)}`." if parents and depth else ""
        rows.append(("· " * depth + code(kind.__name__), meaning + also))
        for each in kind.__subclasses__():
            if each.__module__ == module.__name__:
                add(each, depth + 1)

    add(module.MainstemError, 0)
    codes = [(each.value, code(each.name), ERROR_CODES[each.name]) for each in sorted(ErrorCode)]
    return (
        "# Errors\n\nOne tree: `MainstemError` is the base of all. Beside it are only Python's own `TypeError` and "
        "`ValueError` for wrong arguments. A dot is a step down. "
        "[`mainstem.errors`](errors.md) has their attributes and examples.\n\n"
        + table(["error", "meaning"], rows)
        + "\n`may_retry` is true if it is certain that the peer has processed nothing: for every `OfferError` and "
        "`ConnectTimeout`, for a `ConnectionLost` of a peer that was not reached or a request that never left, and for a "
        "`ConnectRefused` of `connect`. Otherwise it is false, also where nothing is known.\n"
        "\n## Why the driver refuses\n\nThe `code` of a `RegistrationError`, as the reference numbers them.\n\n"
        + table(["code", "name", "meaning"], codes)
    )


def tables() -> str:
    """Return the page of all tables that Spark creates from captures and recordings. Their columns are in docs/analyze.md."""
    from mainstem.spark.tables import TABLES

    rows = [
        (f"[`{each.name}`](../analyze.md#{each.name})", each.meaning, ", ".join(map(code, each.identity)))
        for each in TABLES.values()
    ]
    return (
        "# Tables\n\nWhat `mainstem.spark.tables` makes of captures and recordings, and what `mainstem analyze` writes. "
        "The link leads to the columns.\n\n" + table(["table", "a row is", "named by"], rows)
    )


# The name of each page, its title, and the function that writes it.
def families() -> str:
    """Return the page of the vocabulary: the names of each concept in each protocol family."""
    return (
        "# One vocabulary\n\n"
        "What each concept is called in each protocol family, in the bare package, which blocks, and in its `.aio` submodule,\n"
        "which has the same names for asyncio. `connect` and `serve` of `.aio` may be awaited or used with `async with`.\n\n"
        + vocabulary.table()
    )


def events() -> str:
    """Return the page of the events of the driver's event log."""
    from mainstem.aeron.driver.event_log.events import Event

    return (
        "# Events\n\n`AERON_EVENT_LOG` selects events by these names or numbers, which are the reference driver's "
        "([the event log](../tools.md#the-event-log)). Events without a number are Mainstem's.\n\n"
        + table(["number", "event", "logged when"], [(each.number or "", code(each.name), each.when) for each in Event])
    )


PAGES = {
    "extras": ("every extra: what it enables, and what needs it", extras.page),
    "vocabulary": ("what each concept is called in each protocol family", families),
    "cli": ("every command and option of `mainstem`", command_line),
    "settings": ("every setting of driver and client", settings),
    "counters": ("every counter of a driver, and its metric", counters),
    "events": ("every event of a driver's event log", events),
    "error-tree": ("every error, and the driver's error codes", errors),
    "tables": ("every table over captures and recordings", tables),
}
