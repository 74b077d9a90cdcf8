"""Run a media driver until Ctrl-C or SIGTERM.

Drivers start often: with a service, in every test, behind every example. Libraries that parse command lines and print help would
take half of the time until the CnC file exists. So the table in this module parses simple arguments, and the driver starts
immediately. For help, for wrong arguments, and for any form that the table does not support, the table is declared to typer.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem._internal.units import parse_pairs
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.cli._process import configure
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds between checks whether a client has terminated the driver.
CHECK_SECONDS = 0.25
# The loss generator has a fixed seed, so that losses are reproducible.
DEFAULT_SEED = 1


class Option(NamedTuple):
    """An option: its names, the function that parses its value (None if it has none), its default, and its help."""

    names: tuple[str, ...]
    convert: Callable[[str], Any] | None
    default: Any
    help: str
    metavar: str | None = None
    show_default: str | bool = True
    is_repeatable: bool = False


def _mode(text: str) -> str:
    return next(mode.value for mode in ThreadingMode if mode.value.lower() == text.lower())


MODES = ", ".join(mode.value for mode in ThreadingMode)
# By parameter of ``run``.
OPTIONS = {
    "directory": Option(
        ("--dir", "-d"), str, "", "The media driver's directory.", "PATH", "AERON_DIR, or this user's own"
    ),
    "threading_mode": Option(
        ("--threading-mode",), _mode, "", f"Which agents share a thread: {MODES}.", "MODE", "DEDICATED"
    ),
    "loss": Option(("--loss",), float, 0.0, "Drop this share of the datagrams, of data and control alike.", "SHARE"),
    "loss_seed": Option(("--loss-seed",), int, DEFAULT_SEED, "The seed that chooses which datagrams are dropped.", "N"),
    "config": Option(("--config",), str, "", "A TOML file with settings.", "FILE"),
    "set_": Option(("--set",), str, None, "One setting, as name=value.", "NAME=VALUE", is_repeatable=True),
    "print_config": Option(("--print-config",), None, False, "Print every setting at start."),
    "verbose": Option(("--verbose", "-v"), None, False, "Log events to standard error."),
}
PARAMETERS = {name: parameter for parameter, option in OPTIONS.items() for name in option.names}


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the parameters of ``run`` for simple arguments; None if typer has to parse them."""
    parameters: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter = PARAMETERS.get(name)
        if parameter is None:
            return None
        option = OPTIONS[parameter]
        if option.convert is None:
            if equals:
                return None
            parameters[parameter] = True
            continue
        if not equals:
            value = next(remaining, "")
        if not value or value.startswith("-"):
            return None
        try:
            typed = option.convert(value)
        except (ValueError, StopIteration):
            return None
        if option.is_repeatable:
            parameters.setdefault(parameter, []).append(typed)
        else:
            parameters[parameter] = typed
    return parameters


def run(
    directory: str = "",
    threading_mode: str = "",
    loss: float = 0.0,
    loss_seed: int = DEFAULT_SEED,
    config: str = "",
    set_: list[str] | None = None,
    print_config: bool = False,
    verbose: bool = False,
) -> None:
    """Run a media driver until Ctrl-C or SIGTERM.

    Settings come from the defaults, the table `driver` of the TOML file, the environment (AERON_...), then these options.

    Example: mainstem driver --threading-mode SHARED --set term_buffer_length=1m --print-config
    """
    configure(logging.INFO if verbose else logging.WARNING)
    options = _settings(directory, threading_mode, loss, loss_seed, set_)
    settings = DriverSettings.load(toml=config or None, options=options)
    if print_config or settings.print_configuration:
        for setting in settings.explain_all():
            print(f"{setting.name} = {setting.value}  [{setting.origin}]")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with MediaDriver.launch(settings.dir, settings=settings, threads=True) as driver:
        gc.enable()
        print(f"media driver in {driver.directory}, {settings.threading_mode.value}; Ctrl-C ends it", flush=True)
        if settings.threading_mode is ThreadingMode.INVOKER:
            while driver.is_running and not stop.is_set():
                driver.do_work()
        else:
            while driver.is_running and not stop.wait(CHECK_SECONDS):
                pass


def declared() -> Callable[..., None]:
    """Return ``run`` with its options declared for typer."""
    import functools
    import inspect
    from typing import Annotated

    import typer

    def mode(text: str) -> str:
        try:
            return _mode(text) if text else ""
        except StopIteration:
            raise typer.BadParameter(f"must be one of {MODES} (got {text!r})") from None

    kinds: dict[Callable[[str], Any] | None, Any] = {str: str, float: float, int: int, _mode: str, None: bool}

    @functools.wraps(run)
    def command(**values: Any) -> None:
        run(**values)

    parameters = []
    for name, option in OPTIONS.items():
        info: Any = typer.Option(
            *option.names,
            help=option.help,
            metavar=option.metavar,
            show_default=option.show_default,
            parser=mode if option.convert is _mode else None,
        )
        kind: Any = list[str] | None if option.is_repeatable else kinds[option.convert]
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[kind, info]
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__
    return command


def _settings(
    directory: str, threading_mode: str, loss: float, seed: int, texts: list[str] | None
) -> dict[str, dict[str, object]]:
    """Return the settings that each option sets, by option."""
    options: dict[str, dict[str, object]] = {"--set": {**parse_pairs(texts, name="--set")}}
    if directory:
        options["--dir"] = {"dir": directory}
    if threading_mode:
        options["--threading-mode"] = {"threading_mode": threading_mode}
    if loss:
        if not 0.0 <= loss < 1.0:
            raise ConfigurationError(f"--loss must be at least 0 and below 1 (got {loss})")
        arguments = f"rate={loss}|seed={seed}"
        options["--loss"] = {
            "udp_channel_incoming_interceptors": "loss",
            "udp_channel_transport_bindings_loss_args": arguments,
        }
    return options
