"""Private: the command ``mainstem``. Each command is one file of this package, imported only if that command runs.

``NAME.py`` has a function ``run`` whose parameters are the options, or a typer ``app`` if the command has subcommands. The first
line of the file's docstring is the command's line in the help. A dash in a command's name is an underscore in the file's name.
Files that start with an underscore are not commands.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPLETION_VARIABLE = "_MAINSTEM_COMPLETE"
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


# How the help lists the commands: what is run first, then what looks at it.
PANELS = {
    "Run": ("driver", "record", "archive", "tunnel", "serve"),
    "Send and receive": ("pub", "sub", "replay", "ping", "pong", "echo"),
    "Inspect": ("why", "top", "web", "doctor", "streams", "stat", "backlog", "loss", "errors", "log", "metrics"),
    "Store": ("recordings", "export", "ship", "ingest", "compact"),
    "Analyze": ("analyze", "aqueduct"),
    "Set up and develop": ("demo", "sim", "config", "cert", "completion"),
}
# What people type who know other tools.
WORDS_OF_OTHERS = {
    "consume": "sub",
    "help": "--help",
    "info": "doctor",
    "list": "streams",
    "ls": "streams",
    "monitor": "top",
    "produce": "pub",
    "publish": "pub",
    "start": "driver",
    "stats": "stat",
    "status": "doctor",
    "subscribe": "sub",
    "tail": "sub",
    "version": "--version",
}


def commands() -> dict[str, str]:
    """Return every command with its line in the help, which is the first line of its file, without importing any."""
    from pathlib import Path

    lines_by_name = {}
    for name in (name for names in PANELS.values() for name in names):
        with (Path(__file__).parent / f"{name.replace('-', '_')}.py").open(encoding="utf-8") as file:
            lines_by_name[name] = file.readline().strip().strip('"')
    return lines_by_name


def _words_to_complete() -> list[str]:
    """Return the words that a shell's completion passes in the environment, in a variable that depends on the shell."""
    import shlex

    text = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        return shlex.split(text)[1:]
    except ValueError:  # an unclosed quotation mark
        return text.split()[1:]


def _chosen(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _placeholder() -> None:
    """Stands in the help for a command that is not the one that runs."""


def build(arguments: Sequence[str]) -> Any:
    """Return the typer application for these arguments. It loads only the command that they name."""
    import typer

    from mainstem import __version__
    from mainstem.cli._options import App, Group
    from mainstem.cli._process import VARIABLE, begin

    class Commands(Group):
        words_of_others = WORDS_OF_OTHERS

    app = App(
        "Reliable message streams, and their way into Apache Spark.\n\n"
        "Durations are written as in 500ms, 10s, 5min, 24h or 7d (a bare number is seconds), sizes as in 64k, 16m or 1g.",
        name="mainstem",
        cls=Commands,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    def show_version(requested: bool) -> None:
        if requested:
            typer.echo(f"mainstem {__version__}")
            raise typer.Exit

    def log_json(requested: bool) -> None:
        if requested:
            # Child processes log in the same format as their parent.
            os.environ[VARIABLE] = "json"

    @app.callback()
    def root(
        json_logs: bool = typer.Option(
            False,
            "--json-logs",
            help=f"Log one JSON object a line ({VARIABLE}=json).",
            callback=log_json,
            is_eager=True,
        ),
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", callback=show_version, is_eager=True
        ),
    ) -> None:
        """The options of every command."""
        del json_logs, version  # their callbacks have processed them
        begin()

    chosen = _chosen(arguments)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for name, line in commands().items():
        panel = panels[name]
        if name != chosen:
            app.command(name, help=line, rich_help_panel=panel)(_placeholder)
            continue
        module = importlib.import_module(f"mainstem.cli.{name.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, rich_help_panel=panel)
        else:
            run: Callable[..., Any] = module.declared() if hasattr(module, "declared") else module.run
            app.command(name, columns=getattr(module, "COLUMNS", ()), rich_help_panel=panel)(run)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Errors from Mainstem or the operating system are printed as one sentence on standard error, without a traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    from mainstem.errors import InternalError, MainstemError, MissingExtraError

    try:
        try:
            if words[:1] == ["driver"] and COMPLETION_VARIABLE not in os.environ and _start_driver(words[1:]):
                sys.exit()
            try:
                import typer  # noqa: F401 - for a clear message if it is missing
            except ImportError:
                sys.exit("mainstem: the command line needs typer and rich: pip install 'mainstem[cli]'")
            if COMPLETION_VARIABLE in os.environ:
                from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its __all__

                completion_init()
                build(_words_to_complete())(args=words, prog_name="mainstem")
            build(words)(args=words, prog_name="mainstem")
        finally:
            sys.stdout.flush()  # flush here so that errors are reported: a full disk only shows now
    except InternalError:
        raise
    except MainstemError as error:
        _end(str(error))
    except ImportError as error:
        missing = MissingExtraError.of(error)
        if missing is None:
            raise
        _end(str(missing))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as end:
        # If the reader of the output closes it, as `head` does, typer exits with status 1, although the reader has what it wanted.
        if isinstance(end.__context__, BrokenPipeError) and _is_output_closed():
            sys.exit()
        raise
    except OSError as error:
        if not sys.stdout.closed:
            _discard_output()
        if isinstance(error, BrokenPipeError) and _is_output_closed():
            sys.exit()
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))


def _start_driver(words: Sequence[str]) -> bool:
    """Run a driver without loading typer, if its arguments are simple enough; return whether it did."""
    import gc

    # Objects made at startup stay alive, so there is nothing to collect. The driver enables the collector again when it runs.
    gc.disable()
    try:
        from mainstem.cli import driver
        from mainstem.cli._process import begin

        parameters = driver.read(words)
        if parameters is None:
            return False
        begin()
        driver.run(**parameters)
        return True
    finally:
        gc.enable()


def _end(sentence: str) -> NoReturn:
    import logging

    from mainstem.cli._process import say

    say(f"mainstem: {sentence}", logging.ERROR)
    sys.exit(EXIT_ERROR)


def _is_output_closed() -> bool:
    """Return whether the reader of standard output has closed it."""
    import select

    output = select.poll()
    output.register(1, 0)  # errors and hang-ups are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _discard_output() -> None:
    """Discard output that standard output could not take, so that the interpreter does not retry at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
