"""The parameters of a client: settings, clock, files and handlers."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.files import Files, MappedFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.command.responses import OnPublicationError

_throttle = LogThrottle(logging.getLogger("mainstem.aeron.client"))


def log_error(error: BaseException) -> None:
    """Log the error. This is the default ``on_error``; it logs repeated errors as one line with a count."""
    text = f"{type(error).__name__}: {error}"
    _throttle.log(logging.ERROR, kind_of(error), text, SYSTEM_CLOCK.monotonic_ns())


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """The settings, clock, files and handlers of one client (docs/protocols/aeron.md, 7).

    Handlers run on the conductor's thread and must not wait. Inside a handler, use only the ``async_add_...`` forms.

    Attributes:
        settings: The client's settings; by default, the environment's.
        use_invoker: Whether the client runs without a conductor thread. The application must then call ``Aeron.invoke`` at least
            every second.
        driver_invoker: Called while the client waits, to run a driver in the same thread.
        files: Maps the driver's files.
        clock: The source of the time.
        on_available_image: Called with each image that becomes available, if its subscription has no handler of its own.
        on_unavailable_image: Called with each image that became unavailable, if its subscription has no handler of its own.
        on_available_counter: Called with the counters, the registration id and the counter id of each new counter.
        on_unavailable_counter: Called with the same arguments for each counter that was freed.
        on_publication_error: Called when a receiver rejects one of this client's streams.
        on_error: Called with each error that no call of the application can raise: a handler raised, a channel endpoint failed, an
            image could not be opened, the driver ended, or the driver timed the client out.
        on_close: Called after the client has closed.

    Example:
        >>> aeron = Aeron.connect(context=ClientContext(on_error=print, use_invoker=True))
    """

    settings: ClientSettings = field(default_factory=ClientSettings.load)
    use_invoker: bool = False
    driver_invoker: Callable[[], int] | None = None
    files: Files = field(default_factory=MappedFiles)
    clock: Clock = SYSTEM_CLOCK
    on_available_image: Callable[[Any], object] | None = None
    on_unavailable_image: Callable[[Any], object] | None = None
    on_available_counter: Callable[[CountersReader, int, int], object] | None = None
    on_unavailable_counter: Callable[[CountersReader, int, int], object] | None = None
    on_publication_error: Callable[[OnPublicationError], object] | None = None
    on_error: Callable[[BaseException], object] = log_error
    on_close: Callable[[], object] | None = None

    @classmethod
    def build(
        cls,
        directory: str | os.PathLike[str] | None,
        settings: ClientSettings | None,
        context: ClientContext | None,
        overrides: dict[str, Any],
    ) -> ClientContext:
        """Return the context for a ``connect`` call.

        ``settings`` override those of ``context``, ``directory`` overrides theirs, and ``overrides`` are single fields of either,
        by name. Raises ConfigurationError if one of them is unknown or invalid.
        """
        own = {item.name for item in dataclasses.fields(cls)}
        built = context or (cls() if settings is None else cls(settings=settings))
        if context is not None and settings is not None:
            built = dataclasses.replace(built, settings=settings)
        changes = {name: value for name, value in overrides.items() if name not in own}
        if directory is not None:
            changes["dir"] = os.path.abspath(os.fspath(directory))
        own_overrides = {name: value for name, value in overrides.items() if name in own}
        if changes:
            own_overrides["settings"] = built.settings.replace(**changes)
        return dataclasses.replace(built, **own_overrides) if own_overrides else built
