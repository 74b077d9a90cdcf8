"""The options that commands share, each declared once: a name means the same in every command.

Durations and sizes are read by ``mainstem._internal.units`` and arrive as seconds and bytes. ``Command`` and
``Group`` print the help.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from mainstem._internal.units import (
    format_duration_ns,
    format_size,
    parse_duration_ns,
    parse_pairs,
    parse_size,
    parse_time,
)
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.codecs import Codec

    F = TypeVar("F", bound=Callable[..., Any])

MAX_NUMBER = 1e9  # seconds of thirty years: what is more is a slip, and clocks and waits overflow at infinity
NS_PER_SECOND = 1_000_000_000
DURATION, SIZE, ID = "DURATION", "SIZE", "ID"  # what help texts call values
MAX_WIDTH = 120  # of help: longer lines are hard to read


# -- values ----------------------------------------------------------------------------------------------------------


def duration(*names: str, help: str, minimum: float = 0.0, **more: Any) -> Any:  # noqa: A002 - typer's name
    """Declare an option whose value is a duration; the command gets seconds."""

    def parse(value: str | float) -> float:
        if isinstance(value, int | float):
            return value
        try:
            seconds = parse_duration_ns(value, name=names[0], plain_unit="s") / NS_PER_SECOND
        except ConfigurationError as error:
            raise _usage_error(error, names[0]) from None
        if not minimum <= seconds <= MAX_NUMBER:
            raise typer.BadParameter(f"must be {_seconds(minimum)} to {MAX_NUMBER:,.0f}s (got {value!r})")
        return seconds

    return typer.Option(*names, metavar=DURATION, parser=parse, help=help, **more)


def size(*names: str, help: str, minimum: int = 0, maximum: int | None = None, **more: Any) -> Any:  # noqa: A002
    """Declare an option whose value is a size; the command gets bytes."""

    def parse(value: str | int) -> int:
        if isinstance(value, int):
            return value
        try:
            nbytes = parse_size(value, name=names[0])
        except ConfigurationError as error:
            raise _usage_error(error, names[0]) from None
        if nbytes < minimum or (maximum is not None and nbytes > maximum):
            limits = (
                f"{format_size(minimum)} to {format_size(maximum)}" if maximum else f"at least {format_size(minimum)}"
            )
            raise typer.BadParameter(f"must be {limits} (got {value!r})")
        return nbytes

    return typer.Option(*names, metavar=SIZE, parser=parse, help=help, **more)


def choice(name: str, choices: Sequence[str], *, help: str) -> Any:  # noqa: A002
    """Declare an option that takes one of some words."""

    def parse(value: str) -> str:
        if value and value not in choices:
            raise typer.BadParameter(f"must be one of {', '.join(choices)} (got {value!r})")
        return value

    return typer.Option(name, metavar="|".join(choices), parser=parse, help=help)


def stream_ids(*names: str, help: str, **more: Any) -> Any:  # noqa: A002
    """Declare an option whose value is the id of a stream or session."""
    return typer.Option(*names, metavar=ID, min=-(1 << 31), max=(1 << 31) - 1, help=help, **more)


def finite(value: float) -> float:
    """Return a number; a callback of options. Raises BadParameter for nan, infinity and what no one means."""
    if not abs(value) <= MAX_NUMBER:  # nan compares with nothing
        raise typer.BadParameter(f"{value} is not a number up to {MAX_NUMBER:,.0f}")
    return value


def _usage_error(error: ConfigurationError, name: str) -> typer.BadParameter:
    return typer.BadParameter(str(error).removeprefix(f"{name}: "))


def _seconds(value: float) -> str:
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value and value % factor == 0:
            return f"{value // factor:.0f}{unit}"
    return format_duration_ns(round(value * NS_PER_SECOND)) if value else "0s"


# -- a media driver and its streams ----------------------------------------------------------------------------------

DIRECTORY_HELP = "The media driver's directory."
OWN_DIRECTORY = "AERON_DIR, or this user's own"  # the default
DirectoryOption = Annotated[
    str, typer.Option("--dir", "-d", metavar="PATH", help=DIRECTORY_HELP, show_default=OWN_DIRECTORY)
]
DirectoriesOption = Annotated[
    list[str] | None, typer.Option("--dir", "-d", metavar="PATH", help=DIRECTORY_HELP, show_default=OWN_DIRECTORY)
]
AllDriversOption = Annotated[bool, typer.Option("--all-drivers", help="Show every running driver of this user.")]
CONFIG_HELP = "A TOML file with settings."
SET_HELP = "One setting, as name=value."
ConfigOption = Annotated[str, typer.Option("--config", metavar="FILE", help=CONFIG_HELP)]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET_HELP)]
LOSS_HELP = "Drop this share of the datagrams, of data and control alike."
LossOption = Annotated[float, typer.Option("--loss", metavar="SHARE", help=LOSS_HELP)]

STREAM_HELP = "The stream id."
StreamOption = Annotated[int | None, stream_ids("--stream", "-s", help=STREAM_HELP, show_default="all")]
StreamsOption = Annotated[list[int] | None, stream_ids("--stream", "-s", help=STREAM_HELP, show_default="all")]
StreamIdOption = Annotated[int | None, stream_ids("--stream", "-s", help=STREAM_HELP)]
SessionOption = Annotated[int | None, stream_ids("--session", help="The session id.", show_default="all")]
SessionsOption = Annotated[list[int] | None, stream_ids("--session", help="The session id.", show_default="all")]
ChannelOption = Annotated[
    str, typer.Option("--channel", "-c", metavar="TEXT", help="Show only channels that contain this text.")
]
ChannelArgument = Annotated[
    str, typer.Argument(help="The channel, as in 'aeron:udp?endpoint=localhost:20121' or aeron:ipc.")
]
StreamArgument = Annotated[
    int | None, typer.Argument(help="The stream id (or use --stream).", min=-(1 << 31), max=(1 << 31) - 1)
]
WatchOption = Annotated[
    bool,
    typer.Option("--watch/--no-watch", "-w", help="Repeat until Ctrl-C, refreshing the screen in a terminal."),
]
IntervalOption = Annotated[
    float, duration("--interval", "-i", minimum=0.05, help="Time from one sample, or message, to the next.")
]
TimeoutOption = Annotated[float, duration("--timeout", "-t", help="Fail after waiting this long (0 = wait forever).")]
CountOption = Annotated[
    int, typer.Option("--count", "-n", metavar="N", min=0, help="Stop after N messages (0 = no limit).")
]
SpinOption = Annotated[bool, typer.Option("--spin", help="Poll without pause, using a whole processor.")]
SIZE_HELP = "Bytes in each generated message."
SizeOption = Annotated[int, size("--size", help=SIZE_HELP)]
ExitAtEndOption = Annotated[
    bool, typer.Option("--exit-at-end", "-e", help="Stop when every publisher has ended its stream.")
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, with what is recorded meanwhile.")]
StatsOption = Annotated[bool, typer.Option("--stats", help="Print the rate every second.")]

PING_CHANNEL, PONG_CHANNEL = "aeron:udp?endpoint=localhost:20123", "aeron:udp?endpoint=localhost:20124"
PING_STREAM, PONG_STREAM = 1002, 1003
PingChannelOption = Annotated[str, typer.Option("--ping-channel", metavar="URI", help="The channel of pings.")]
PingStreamOption = Annotated[int, stream_ids("--ping-stream", help="The stream id of pings.")]
PongChannelOption = Annotated[str, typer.Option("--pong-channel", metavar="URI", help="The channel of responses.")]
PongStreamOption = Annotated[int, stream_ids("--pong-stream", help="The stream id of responses.")]


def stream_id(argument: int | None, option: int | None) -> int:
    """Return the stream id of an argument or of ``--stream``. Raises ConfigurationError unless exactly one is there."""
    if argument is not None and option is not None:
        raise ConfigurationError(f"the stream is {argument} and --stream {option}: one of them is enough")
    chosen = argument if argument is not None else option
    if chosen is None:
        raise ConfigurationError("which stream? add its id, as in --stream 1001")
    return chosen


# -- output ----------------------------------------------------------------------------------------------------------

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
FrameLimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show at most N frames.")]
PayloadBytesOption = Annotated[int, size("--payload-bytes", help="How much of each payload to show.")]
OutDirectoryOption = Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="Where the output goes.")]
OutOption = Annotated[str, typer.Option("--out", "-o", metavar="PATH", help="Where the output goes.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log events to standard error.")]


def require_directory(path: Path, option: str) -> None:
    """Create a directory if it is missing, and a file in it. Raises ConfigurationError if either is impossible."""
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
    str,
    typer.Argument(help="Path or URL of recordings, as in tides, s3://bucket/tides or aeron-archive://localhost:8010."),
]
RecordingOption = Annotated[
    int | None, typer.Option("--recording", "-r", metavar=ID, help="The recording id.", show_default="all")
]
RecordingsOption = Annotated[
    list[int] | None, typer.Option("--recording", "-r", metavar=ID, help="The recording id.", show_default="all")
]
SINCE_HELP = "Start here: a time (2026-01-31T12:00:00, in UTC), an age (24h), or a position of a recording."
UNTIL_HELP = "End before this time, age or position."
SinceOption = Annotated[str, typer.Option("--since", metavar="WHEN", help=SINCE_HELP)]
UntilOption = Annotated[str, typer.Option("--until", metavar="WHEN", help=UNTIL_HELP)]
StoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store-option", metavar="NAME=VALUE", help="An option of the location's store, as in region=eu-west-1."
    ),
]
CODEC_HELP = (
    "How messages are encoded: avro, json, protobuf, csv, msgpack, arrow, sbe, an entry point, or module:Class."
)
CodecOption = Annotated[str, typer.Option("--codec", metavar="NAME", help=CODEC_HELP)]
CodecOptions = Annotated[
    list[str] | None,
    typer.Option("--codec-option", metavar="NAME=VALUE", help="An option of the codec, as in schema=trade.avsc."),
]
LocalRetentionOption = Annotated[
    str,
    typer.Option(
        "--local-retention",
        metavar="DURATION|SIZE",
        help="Delete local segments that are shipped and older than this (24h), or beyond this size (100g).",
        show_default="keep all",
    ),
]
FlushIntervalOption = Annotated[
    float, duration("--flush-interval", help="Ship what is recorded after this time, even if its segment is not full.")
]


def codec_of(name: str, options: Sequence[str] | None) -> Codec | None:
    """The codec of these options; None without a name. Raises ConfigurationError."""
    from mainstem.codecs import find_codec

    if options and not name:
        raise ConfigurationError("--codec-option needs --codec")
    return find_codec(name, parse_pairs(options, name="--codec-option")) if name else None


def store_options(texts: Sequence[str] | None) -> dict[str, str]:
    """The values of ``--store-option`` by name. Raises ConfigurationError."""
    return parse_pairs(texts, name="--store-option")


def time_ns(text: str, *, name: str, now_ns: int) -> int:
    """Return a time, or an age before ``now_ns``, in nanoseconds since 1970. Raises ConfigurationError."""
    if re.fullmatch(r"[\d.]+[a-z]+", text):
        return now_ns - parse_duration_ns(text, name=name, plain_unit="")
    expected = "neither a time (2026-01-31T12:00:00) nor an age (24h)"
    return round(parse_time(text, name=name, expected=expected).timestamp() * 1_000_000) * 1000


def filters(*, since: str = "", until: str = "", **ids: Sequence[int] | None) -> list[tuple[str, str, Any]] | None:
    """The filters of ``Recordings.scan`` for these options; None for all rows."""
    from datetime import UTC, datetime

    from mainstem._internal.clock import SYSTEM_CLOCK

    chosen: list[tuple[str, str, Any]] = [(name, "in", list(values)) for name, values in ids.items() if values]
    for text, option, operator in ((since, "--since", ">="), (until, "--until", "<")):
        if text.isdecimal():
            chosen.append(("position", operator, int(text)))
        elif text:
            moment_ns = time_ns(text, name=option, now_ns=SYSTEM_CLOCK.epoch_ns())
            moment = datetime.fromtimestamp(moment_ns // NS_PER_SECOND, UTC).replace(
                microsecond=moment_ns % NS_PER_SECOND // 1000
            )
            chosen.append(("recorded_at", operator, moment))
    return chosen or None


# -- tables ----------------------------------------------------------------------------------------------------------

TableOption = Annotated[str, typer.Option("--table", metavar="NAME", help="For Iceberg: the table, as in sea.tides.")]
CatalogOption = Annotated[
    str,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="For Iceberg: a catalog of pyiceberg's configuration.",
        show_default="a file in the warehouse",
    ),
]
CatalogOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-option", metavar="NAME=VALUE", help="For Iceberg: an option of the catalog, as in uri=http://x:8181."
    ),
]
FileSizeOption = Annotated[
    int, size("--target-file-size", minimum=1 << 10, help="For Delta and Iceberg: the size of a data file.")
]
FORMAT_HELP = "The format to write."  # each command has its own choices
MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: 'local[*]', or a cluster's address.")
]

# -- servers ---------------------------------------------------------------------------------------------------------

LISTEN_HELP = "Listen on this address, as in localhost:8480 (port 0 = any free port)."
ListenOption = Annotated[str, typer.Option("--listen", "-l", metavar="ADDRESS", help=LISTEN_HELP)]
MetricsListenOption = Annotated[
    str,
    typer.Option(
        "--metrics-listen", metavar="ADDRESS", help="Serve metrics for Prometheus on this address, path /metrics."
    ),
]
TLS_CERT_HELP = "The server's certificate, and those that lead to its authority (PEM)."
TlsCertOption = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help=TLS_CERT_HELP)]
TlsKeyOption = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")]
IdleTimeoutOption = Annotated[
    float, duration("--idle-timeout", help="Close a connection that is silent for this long (0 = never).")
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Allow connections with other machines without TLS or without a token.")
]


def token_file(variable: str) -> Any:
    """Declare ``--token-file``; without it the token is the value of an environment variable."""
    return typer.Option(
        "--token-file", metavar="FILE", help="A file with the secret token.", show_default=f"the variable {variable}"
    )


def max_connections(per: str = "") -> Any:
    """Declare ``--max-connections``, or with ``per`` that of each address or the like."""
    name, of_each = (f"--max-connections-per-{per}", f" of each {per}") if per else ("--max-connections", "")
    return typer.Option(name, metavar="N", min=1, help=f"The most connections at a time{of_each}.")


# -- command lines of other commands ---------------------------------------------------------------------------------


def words_of(command: str, **values: Any) -> list[str]:
    """Return the options that give a command these values. Raises KeyError for a parameter that it lacks."""
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
    """A line of the help: an option or argument with its value, what it means, and its default."""

    names: list[str]
    meaning: str
    default: str
    is_argument: bool


def help_rows(command: Any) -> Iterator[HelpRow]:
    """The arguments and options of a command that are not hidden, without ``--help``."""
    for each in command.params:
        if getattr(each, "hidden", False) or each.name == "help":
            continue
        meaning = getattr(each, "help", "") or ""
        if each.param_type_name == "argument":
            names = [(each.metavar or str(each.name).upper()).strip("[].") + ("..." if each.nargs == -1 else "")]
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
    return str(value) if isinstance(value, int | float | str | Path) else ""


def _write_usage(command: Any, context: Any, formatter: Any) -> None:
    arguments = [row for row in help_rows(command) if row.is_argument]
    pieces = [row.names[0] if row.default == "required" else f"[{row.names[0]}]" for row in arguments]
    if getattr(command, "commands", {}):
        pieces.append("COMMAND ...")
    formatter.write_usage(context.command_path, " ".join(["[OPTIONS]", *pieces]))


def _write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write usage, text, options and examples. Text is wrapped at the terminal's width; names and examples are whole."""
    rows = list(help_rows(command))
    arguments = [row for row in rows if row.is_argument]
    options = [row for row in rows if not row.is_argument]
    commands = getattr(command, "commands", {})
    _write_usage(command, context, formatter)
    paragraphs = [" ".join(each.split()) for each in inspect.cleandoc(command.help or "").split("\n\n")]
    examples = [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]
    for text in paragraphs:
        if text and not text.startswith("Example: "):
            formatter.write_paragraph()
            formatter.write_text(text)
    options.append(HelpRow(["-h", "--help"], "Show this message and exit.", "", is_argument=False))
    for title, part in (("Arguments", arguments), ("Options", options)):
        if part:
            with formatter.section(title):
                formatter.write_dl([(", ".join(row.names), _with_default(row)) for row in part])
    if commands:
        with formatter.section("Commands"):
            lines = [(name, inspect.cleandoc(each.help or "").split("\n\n")[0]) for name, each in commands.items()]
            formatter.write_dl(lines)
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _with_default(row: HelpRow) -> str:
    shown = f"[{'required' if row.default == 'required' else f'default: {row.default}'}]" if row.default else ""
    return f"{row.meaning} {shown}".strip()


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
    """Replace the words of pydantic, by which typer checks values."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return
    first = errors()[0]
    if text := _WRONG_VALUES.get(first["type"]):
        error.message = f"{text.format_map(first.get('ctx', {}))} (got {str(first['input'])!r})"


class Command(TyperCommand):
    """A command whose help is as wide as the terminal."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command; a wrong value is reported in Mainstem's words."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            _say_plainly(error)
            raise

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the first line, which is in the errors too."""
        _write_usage(self, ctx, formatter)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _write_help(self, ctx, formatter)


class Group(TyperGroup):
    """Commands, with help as wide as the terminal."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the first line, which is in the errors too."""
        _write_usage(self, ctx, formatter)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _write_help(self, ctx, formatter)


class App(typer.Typer):
    """A typer application with this help."""

    def __init__(self, help: str = "", **more: Any) -> None:  # noqa: A002 - typer's name
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}
        super().__init__(
            help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=settings, **({"cls": Group} | more)
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        """Declare a command, as typer's ``command`` does."""
        return super().command(name, cls=Command, **more)
