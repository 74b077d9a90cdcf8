"""The options that commands share. Each is declared once, so that a name means the same in every command.

Functions of ``mainstem._internal.units`` parse durations and sizes, which commands get as seconds and bytes. If a parameter of a
command is a dataclass, its fields are the options (``App.command``). ``Command`` and ``Group`` print the help.

A dataclass of a lower package knows nothing of options: ``Annotated[IngestOptions, {"out": OutOption, ...}]`` declares them by
field. Types and defaults are the dataclass's. Its errors name fields in backticks; ``Command`` replaces them by the options' names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from mainstem._internal.units import (
    format_duration_ns,
    format_size,
    parse_duration_ns,
    parse_pairs,
    parse_size,
)
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mainstem.cli._output import Column

    F = TypeVar("F", bound=Callable[..., Any])

MAX_NUMBER = 1e9  # seconds of thirty years: more is a mistake, and clocks and waits overflow
NS_PER_SECOND = 1_000_000_000
DURATION, SIZE, ID = "DURATION", "SIZE", "ID"  # placeholders in help texts
MIN_ID, MAX_ID = -(1 << 31), (1 << 31) - 1  # stream and session ids
MAX_WIDTH = 120  # columns of help texts: longer lines are hard to read
LEAST_NAMES, MOST_NAMES, LEAST_MEANING = 16, 30, 42  # columns of names, and of what they mean
NO_BREAK = "\u2011"  # stands for a hyphen while lines are broken: names of options and URLs stay whole


# -- how options are declared: names, the word for the value, the help, and the default that the help shows -----------


def option(names: str, metavar: str, text: str, shown: str = "", **more: Any) -> Any:
    """Declare an option by its names (``"--dir -d"``)."""
    return typer.Option(*names.split(), metavar=metavar, help=text, show_default=shown or True, **more)


def flag(names: str, text: str) -> Any:
    """Declare an option without a value. ``"--check/--no-check"`` declares one that can be switched off."""
    return typer.Option(*names.split(), help=text)


def argument(text: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Argument(help=text, metavar=metavar, **more)


def duration(names: str, text: str, shown: str = "", *, minimum: float = 0.0) -> Any:
    """Declare an option whose value is a duration. The command gets seconds."""
    name = names.split()[0]

    def parse(value: str | float) -> float:
        if isinstance(value, int | float):
            return value
        seconds: float = _parsed(parse_duration_ns, value, name, plain_unit="s") / NS_PER_SECOND
        if not minimum <= seconds <= MAX_NUMBER:
            raise BadParameter(f"must be {_seconds(minimum)} to {MAX_NUMBER:,.0f}s (got {value!r})")
        return seconds

    return option(names, DURATION, text, shown, parser=parse)


def size(names: str, text: str, shown: str = "", *, minimum: int = 0, maximum: int | None = None) -> Any:
    """Declare an option whose value is a size. The command gets bytes."""
    name = names.split()[0]

    def parse(value: str | int) -> int:
        if isinstance(value, int):
            return value
        nbytes: int = _parsed(parse_size, value, name)
        if nbytes < minimum or (maximum is not None and nbytes > maximum):
            least = format_size(minimum)
            limits = f"{least} to {format_size(maximum)}" if maximum else f"at least {least}"
            raise BadParameter(f"must be {limits} (got {value!r})")
        return nbytes

    return option(names, SIZE, text, shown, parser=parse)


def choice(name: str, choices: Sequence[str], text: str, shown: str = "") -> Any:
    """Declare an option that takes one of several words."""

    def parse(value: str) -> str:
        if value and value not in choices:
            raise BadParameter(f"must be one of {', '.join(choices)} (got {value!r})")
        return value

    return option(name, "|".join(choices), text, shown, parser=parse)


def integer(names: str, text: str, shown: str = "", *, minimum: int | None = 0, metavar: str = "N", **more: Any) -> Any:
    """Declare an option whose value is an integer."""
    return option(names, metavar, text, shown, min=minimum, **more)


def id_option(names: str, text: str, shown: str = "") -> Any:
    """Declare an option whose value is the id of a stream or session."""
    return option(names, ID, text, shown, min=MIN_ID, max=MAX_ID)


def finite(value: float) -> float:
    """Return a number; a callback for options. Raises BadParameter for nan, infinity and values that must be mistakes."""
    if not abs(value) <= MAX_NUMBER:  # comparisons with nan are false
        raise BadParameter(f"must be a number of at most {MAX_NUMBER:,.0f} (got {value})")
    return value


def _parsed(parse: Callable[..., Any], value: str, name: str, **more: Any) -> Any:
    try:
        return parse(value, name=name, **more)
    except ConfigurationError as error:
        raise BadParameter(str(error).removeprefix(f"{name}: ")) from None


def _seconds(value: float) -> str:
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value and value % factor == 0:
            return f"{value // factor:.0f}{unit}"
    return format_duration_ns(round(value * NS_PER_SECOND)) if value else "0s"


# -- a media driver and its streams ----------------------------------------------------------------------------------

DIRECTORY_HELP = "The media driver's directory."
_DIRECTORY = option("--dir -d", "PATH", DIRECTORY_HELP, "AERON_DIR, or this user's own")
DirectoryOption = Annotated[str, _DIRECTORY]
DirectoriesOption = Annotated[list[str] | None, _DIRECTORY]
AllDriversOption = Annotated[bool, flag("--all-drivers", "Show every running driver of this user.")]


_running: list[Command] = []


def directory_option() -> str:
    """Return the name of the running command's option for the driver's directory; empty if it has none."""
    parameters = _running[-1].params if _running else []
    return next((each.opts[0] for each in parameters if getattr(each, "help", "") == DIRECTORY_HELP), "")


ConfigOption = Annotated[str, option("--config", "FILE", "A TOML file with settings.")]
SetOption = Annotated[list[str] | None, option("--set", "NAME=VALUE", "One setting, as name=value.")]
LossOption = Annotated[float, option("--loss", "SHARE", "Drop this share of the datagrams, of data and control alike.")]

STREAM_HELP = "The stream id."
_STREAM = id_option("--stream -s", STREAM_HELP, "all")
_SESSION = id_option("--session", "The session id.", "all")
StreamOption = Annotated[int | None, _STREAM]
StreamsOption = Annotated[list[int] | None, _STREAM]
SessionOption = Annotated[int | None, _SESSION]
SessionsOption = Annotated[list[int] | None, _SESSION]
ChannelOption = Annotated[str, option("--channel -c", "TEXT", "Show only channels that contain this text.")]
ChannelArgument = Annotated[str, argument("The channel, as in 'aeron:udp?endpoint=localhost:20121' or aeron:ipc.")]
WatchOption = Annotated[
    bool, flag("--watch/--no-watch -w", "Repeat until Ctrl-C, refreshing the screen in a terminal.")
]
IntervalOption = Annotated[
    float, duration("--interval -i", "Time from one sample, or message, to the next.", minimum=0.05)
]
TimeoutOption = Annotated[float, duration("--timeout -t", "Fail after waiting this long (0 = wait forever).")]
CountOption = Annotated[int, integer("--count -n", "Stop after N messages (0 = no limit).")]
SpinOption = Annotated[bool, flag("--spin", "Poll without pause, using a whole processor.")]
SIZE_HELP = "Bytes in each generated message."
SizeOption = Annotated[int, size("--size", SIZE_HELP)]
ExitAtEndOption = Annotated[bool, flag("--exit-at-end -e", "Stop when every publisher has ended its stream.")]
FollowOption = Annotated[bool, flag("--follow", "Continue until Ctrl-C, with data that is recorded meanwhile.")]
StatsOption = Annotated[bool, flag("--stats", "Print the rate every second.")]


@dataclass
class StreamId:
    """A stream id, given as an argument or as ``--stream``."""

    stream: Annotated[int | None, argument("The stream id (or use --stream).", min=MIN_ID, max=MAX_ID)] = None
    stream_option: Annotated[int | None, id_option("--stream -s", STREAM_HELP)] = None

    @property
    def chosen(self) -> int:
        """Return the id. Raises ConfigurationError unless exactly one is given."""
        if self.stream is not None and self.stream_option is not None:
            raise ConfigurationError(
                f"the stream id is given twice ({self.stream} and --stream {self.stream_option}); omit one"
            )
        chosen = self.stream if self.stream is not None else self.stream_option
        if chosen is None:
            raise ConfigurationError("a stream id is required, as in --stream 1001")
        return chosen


@dataclass
class PingPong:
    """The channels and streams of pings and pongs. The defaults are those of the reference's samples."""

    directory: DirectoryOption = ""
    ping_channel: Annotated[str, option("--ping-channel", "URI", "The channel of pings.")] = (
        "aeron:udp?endpoint=localhost:20123"
    )
    ping_stream: Annotated[int, id_option("--ping-stream", "The stream id of pings.")] = 1002
    pong_channel: Annotated[str, option("--pong-channel", "URI", "The channel of responses.")] = (
        "aeron:udp?endpoint=localhost:20124"
    )
    pong_stream: Annotated[int, id_option("--pong-stream", "The stream id of responses.")] = 1003
    spin: SpinOption = False


# -- output ----------------------------------------------------------------------------------------------------------

JsonOption = Annotated[bool, flag("--json", "Print the result as JSON.")]
CsvOption = Annotated[bool, flag("--csv", "Print the result as CSV.")]
FrameLimitOption = Annotated[int, integer("--limit", "Show at most N frames.")]
PayloadBytesOption = Annotated[int, size("--payload-bytes", "How much of each payload to show.")]
_OUT = option("--out -o", "PATH", "Where the output goes.")
OutDirectoryOption = Annotated[Path, _OUT]
OutOption = Annotated[str, _OUT]


def require_directory(path: Path, option: str) -> None:
    """Create a directory if it is missing, and check that it is writable. Raises ConfigurationError if either fails."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{option}: {path} is not a directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(1))
    except OSError as error:
        raise ConfigurationError(f"{option}: {path}: {error.strerror}") from None


# -- recordings, stores, codecs --------------------------------------------------------------------------------------

LocationArgument = Annotated[
    str, argument("Path or URL of recordings, as in tides, s3://bucket/tides or aeron-archive://localhost:8010.")
]
_RECORDING = option("--recording -r", ID, "The recording id.", "all")
RecordingOption = Annotated[int | None, _RECORDING]
RecordingsOption = Annotated[list[int] | None, _RECORDING]
SinceOption = Annotated[
    str,
    option(
        "--since",
        "WHEN",
        "Start here: a time (2026-01-31T12:00:00, in UTC), an age (24h) or, in a recording, a position.",
    ),
]
UntilOption = Annotated[
    str, option("--until", "WHEN", "End before this time or age or, in a recording, this position.")
]
StoreOption = Annotated[
    list[str] | None,
    option("--store-option", "NAME=VALUE", "An option of the location's store, as in region=eu-west-1."),
]


@dataclass
class Shipping:
    """The options of shipping, for `mainstem ship` and `mainstem record --ship-to`."""

    flush_interval: Annotated[
        float, duration("--flush-interval", "Ship what is recorded after this time, even if its segment is not full.")
    ] = 10.0
    local_retention: Annotated[
        str,
        option(
            "--local-retention",
            "DURATION|SIZE",
            "Delete local segments that are shipped and older than this (24h), or beyond this size (100g).",
            "keep all",
        ),
    ] = ""
    store_option: StoreOption = None


CodecOption = Annotated[
    str,
    option(
        "--codec",
        "NAME",
        "How messages are encoded: avro, json, protobuf, csv, msgpack, arrow, sbe, an entry point, or module:Class.",
    ),
]
CodecOptionsOption = Annotated[
    list[str] | None, option("--codec-option", "NAME=VALUE", "An option of the codec, as in schema=trade.avsc.")
]


# The options that select how messages are encoded, by field of ``CodecChoice``.
CODEC_OPTIONS: dict[str, Any] = {"codec": CodecOption, "codec_options": CodecOptionsOption}


def store_options(texts: Sequence[str] | None, location: str) -> dict[str, str]:
    """Return the values of ``--store-option`` by name. Raises ConfigurationError, also if the location is a directory."""
    options = parse_pairs(texts, name="--store-option")
    check_store_options(options, location)
    return options


def check_store_options(options: Iterable[str], location: str) -> None:
    """Raise ConfigurationError if the location is a directory, which has no options besides those of a tail."""
    from mainstem.store.open_store import scheme_of
    from mainstem.store.options import is_tail_option

    unused = next((name for name in options if not is_tail_option(name)), None)
    if unused is not None and location and scheme_of(location) in ("", "file"):
        raise ConfigurationError(
            f"--store-option {unused} is for a URL such as s3://bucket/tides: {location} is a directory, which has no options"
        )


# -- tables ----------------------------------------------------------------------------------------------------------

FORMAT_HELP = "The format to write."  # each command has its own choices
MasterOption = Annotated[str, option("--master", "URL", "Where Spark runs: 'local[*]', or a cluster's address.")]


# The options that select a Delta or Iceberg table, by field of ``TableOptions``.
TABLE_OPTIONS: dict[str, Any] = {
    "table": option("--table", "NAME", "For Iceberg: the table, as in sea.tides."),
    "catalog": option(
        "--catalog", "NAME", "For Iceberg: a catalog of pyiceberg's configuration.", "a file in the warehouse"
    ),
    "catalog_options": option(
        "--catalog-option", "NAME=VALUE", "For Iceberg: an option of the catalog, as in uri=http://x:8181."
    ),
    "store_options": StoreOption,
    "target_file_size": size("--target-file-size", "For Delta and Iceberg: the size of a data file.", minimum=1 << 10),
}


# -- servers ---------------------------------------------------------------------------------------------------------

ListenOption = Annotated[
    str, option("--listen -l", "ADDRESS", "Listen on this address, as in localhost:8480 (port 0 = any free port).")
]
MetricsListenOption = Annotated[
    str, option("--metrics-listen", "ADDRESS", "Serve metrics for Prometheus on this address, path /metrics.")
]
TlsCertOption = Annotated[
    Path | None, option("--tls-cert", "FILE", "The server's certificate, and those that lead to its authority (PEM).")
]
TlsKeyOption = Annotated[Path | None, option("--tls-key", "FILE", "The certificate's key (PEM).")]
IdleTimeoutOption = Annotated[
    float, duration("--idle-timeout", "Close a connection that is silent for this long (0 = never).")
]
InsecureOption = Annotated[
    bool, flag("--insecure", "Allow connections with other machines without TLS or access control.")
]


def token_file_option(variable: str) -> Any:
    """Declare ``--token-file``. Without the option, the token is the value of an environment variable."""
    return option("--token-file", "FILE", "A file with the secret token.", f"the variable {variable}")


def max_connections(per: str = "") -> Any:
    """Declare ``--max-connections`` or, with ``per``, the limit for each address or the like."""
    name, of_each = (f"--max-connections-per-{per}", f" from each {per}") if per else ("--max-connections", "")
    return integer(name, f"At most N connections at a time{of_each}.", minimum=1)


# -- command lines of other commands ---------------------------------------------------------------------------------


def words_of(command: str, **values: Any) -> list[str]:
    """Return the options that pass these values to a command. Raises KeyError if it has no such parameter."""
    from typer.main import get_command

    from mainstem.cli import build

    group: Any = get_command(build([command]))
    options = {each.name: each for each in group.commands[command].params}
    words = []
    for parameter, value in values.items():
        name = _long(options[parameter])
        if value is True:
            words.append(name)
        elif value:
            for each in value if isinstance(value, list) else [value]:
                words += [name, str(each)]
    return words


# -- help ------------------------------------------------------------------------------------------------------------


class HelpRow(NamedTuple):
    """A line of the help: the names of an option or argument with its value, its meaning, and its default."""

    names: list[str]
    meaning: str
    default: str
    is_argument: bool


def help_rows(command: Any) -> Iterator[HelpRow]:
    """Yield the arguments and options of a command, except hidden ones and ``--help``."""
    for each in command.params:
        if getattr(each, "hidden", False) or each.name == "help":
            continue
        meaning = getattr(each, "help", "") or ""
        if each.param_type_name == "argument":
            names = [_argument_name(each) + ("..." if each.nargs == -1 else "")]
        else:
            value = "" if getattr(each, "is_flag", False) else f" {each.metavar or _long(each)[2:].upper()}"
            names = [
                name + (value if name.startswith("--") else "")
                for name in [*sorted(each.opts, key=len), *each.secondary_opts]
            ]
            if each.multiple:
                meaning += " Repeatable."
        default = "required" if each.required else _default(each)
        yield HelpRow(names, meaning, default, each.param_type_name == "argument")


def _argument_name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[].")


def _long(option: Any) -> str:
    return str(max(option.opts, key=len))


def _default(parameter: Any) -> str:
    value = parameter.default
    if isinstance(getattr(parameter, "show_default", None), str):
        return str(parameter.show_default)
    if isinstance(value, bool):
        return _long(parameter)[2:] if value and parameter.secondary_opts else ""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int | float) and parameter.metavar == DURATION:
        return _seconds(value)
    if isinstance(value, int) and parameter.metavar == SIZE:
        return format_size(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, int | str | Path) else ""


_WRONG_VALUES = {
    "int_parsing": "must be an integer",
    "int_parsing_size": "must be an integer",
    "int_from_float": "must be an integer",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def _say_plainly(error: BadParameter) -> None:
    """Replace the message of pydantic, with which typer checks values, by a plain one."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return
    first = errors()[0]
    if text := _WRONG_VALUES.get(first["type"]):
        error.message = f"{text.format_map(first.get('ctx', {}))} (got {str(first['input'])!r})"


def explained_columns(command: Any) -> list[Column]:
    """Return the columns of the listing that a command prints, if they have a meaning."""
    return [column for column in getattr(command.callback, "columns", ()) if column.meaning]


class _Help:
    """Help for a command, as wide as the terminal. Text is wrapped; names and examples are not."""

    params: Any
    help: Any
    callback: Any

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the first line, which errors show too."""
        arguments = [row for row in help_rows(self) if row.is_argument]
        words = [row.names[0] if row.default == "required" else f"[{row.names[0]}]" for row in arguments]
        if getattr(self, "commands", {}):
            words.append("COMMAND ...")
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *words]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, text, options and examples."""
        self.format_usage(ctx, formatter)
        paragraphs = [" ".join(each.split()) for each in inspect.cleandoc(self.help or "").split("\n\n")]
        examples = [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]
        for text in paragraphs:
            if text and not text.startswith("Example: "):
                formatter.write_paragraph()
                formatter.write_text(text.replace("-", NO_BREAK))
        rows = [*help_rows(self), HelpRow(["-h", "--help"], "Show this message and exit.", "", is_argument=False)]
        sections = {
            "Arguments": [(", ".join(row.names), _with_default(row)) for row in rows if row.is_argument],
            "Options": [(", ".join(row.names), _with_default(row)) for row in rows if not row.is_argument],
            "Columns": [(column.title.strip(), column.meaning) for column in explained_columns(self)],
        }
        for name, each in getattr(self, "commands", {}).items():
            title = each.rich_help_panel or "Commands"
            sections.setdefault(title, []).append((name, inspect.cleandoc(each.help or "").split("\n\n")[0]))
        # In a narrow terminal, names have little room, so that a channel in a meaning or a default fits on one line.
        most = max(LEAST_NAMES, min(MOST_NAMES, formatter.width - LEAST_MEANING))
        for title, lines in sections.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl([(name, text.replace("-", NO_BREAK)) for name, text in lines], col_max=most)
        formatter.buffer = [text.replace(NO_BREAK, "-") for text in formatter.buffer]
        if examples:
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _with_default(row: HelpRow) -> str:
    shown = f"[{'required' if row.default == 'required' else f'default: {row.default}'}]" if row.default else ""
    return f"{row.meaning} {shown}".strip()


class Command(_Help, TyperCommand):
    """A command with Mainstem's help and errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments, and report wrong values in Mainstem's wording."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            _say_plainly(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Messages can name its options meanwhile."""
        _running.append(self)
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            # The same error, because its class and attributes say more than its text.
            error.args = (self._with_names(str(error)), *error.args[1:])
            raise
        finally:
            _running.pop()

    def _with_names(self, text: str) -> str:
        """Replace each field in backticks by the name of its option. A value may follow it, as in `format=delta`."""
        parameters = {each.name: each for each in self.params}

        def name(match: re.Match[str]) -> str:
            parameter = parameters.get(match[1])
            if parameter is None:
                return match[0]
            if parameter.param_type_name == "argument":
                return _argument_name(parameter)
            return f"{_long(parameter)} {match[2]}" if match[2] else _long(parameter)

        return re.sub(r"`(\w+)(?:=(\w+))?`", name, text)


class Group(_Help, TyperGroup):
    """Commands with Mainstem's help, which lists them under the panels that they name."""

    words_of_others: Mapping[str, str] = {}
    """What a word that is no command here, but one of other tools, means in words of this one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or suggest one for a word that other tools use."""
        meant = self.words_of_others.get(args[0]) if args else None
        if meant is not None and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """A typer application with Mainstem's help."""

    def __init__(self, text: str = "", **more: Any) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}
        super().__init__(
            help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=settings, **({"cls": Group} | more)
        )

    def command(self, name: str | None = None, *, columns: Sequence[Column] = (), **more: Any) -> Callable[[F], F]:
        """Declare a command, like typer's ``command``. If a parameter is a dataclass, its fields become options.

        The help explains ``columns``, those of the listing that the command prints.
        """
        declare = super().command(name, cls=Command, **more)

        def add(function: F) -> F:
            run = _expanded(function)
            run.columns = columns  # type: ignore[attr-defined]
            declare(run)
            return function

        return add


def _is_group(annotation: Any) -> bool:
    return dataclasses.is_dataclass(annotation)


def _declarations(annotation: Any) -> Mapping[str, Any] | None:
    """Return the options by field if ``annotation`` declares a dataclass of a lower package."""
    found = _info(annotation)
    return found if isinstance(found, dict) else None


def _options_of(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function, with each dataclass replaced by its fields."""
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if (declarations := _declarations(each.annotation)) is not None:
            yield from _fields_of(each.annotation.__origin__, declarations)
        elif _is_group(each.annotation):
            yield from _options_of(each.annotation)
        else:
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _info(declaration: Any) -> Any:
    """Return how an option is declared, whether by itself or with its type."""
    return next(iter(getattr(declaration, "__metadata__", ())), declaration)


def _fields_of(kind: Any, declarations: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    parameters = inspect.signature(kind, eval_str=True).parameters
    for name, declaration in declarations.items():
        each = parameters[name]
        annotation, default = each.annotation, each.default
        match get_origin(annotation):
            case collections if collections in (dict, tuple):
                annotation = list[str if collections is dict else get_args(annotation)[0]] | None  # type: ignore[misc]
                default = None
            case origin if origin is not None and str in get_args(annotation):
                annotation = str  # a path or a URL
        yield each.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, _info(declaration)]
        )


def _call(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    arguments = {}
    for name, each in inspect.signature(function, eval_str=True).parameters.items():
        if (declarations := _declarations(each.annotation)) is not None:
            arguments[name] = _made(each.annotation.__origin__, declarations, values)
        else:
            arguments[name] = _call(each.annotation, values) if _is_group(each.annotation) else values[name]
    return function(**arguments)


def _made(kind: Any, declarations: Mapping[str, Any], values: dict[str, Any]) -> Any:
    """Return the dataclass of a lower package with these values of its options."""
    parameters = inspect.signature(kind, eval_str=True).parameters
    fields = {name: values[name] for name in declarations}
    for name, declaration in declarations.items():
        origin = get_origin(parameters[name].annotation)
        if origin is dict:
            # Of a declaration, typer takes the first name for the default until it has seen the annotation.
            fields[name] = parse_pairs(fields[name], name=_info(declaration).default)
        elif origin is tuple:
            fields[name] = tuple(fields[name] or ())
    return kind(**fields)


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose parameters are the options of ``function``."""

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        return _call(function, values)

    parameters = list(_options_of(function))
    del run.__wrapped__  # the signature differs
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
