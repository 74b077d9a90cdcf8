"""What a client is told when it connects: where its driver is, its doors to the world, its handlers."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.files import Files, MappedFiles
from mainstem.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.command.responses import OnPublicationError

logger = logging.getLogger(__name__)


def log_error(error: BaseException) -> None:
    """The default error handler: writes to the log of this module."""
    logger.error("%s: %s", type(error).__name__, error)


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """Settings, doors and handlers of one client (behaviour, section 7).

    Handlers run on the conductor's thread and must not wait: from inside one, only the ``async_add_...`` forms may be used.
    ``on_error`` hears what no call can be told: a handler that raised, an endpoint that failed, a driver that died.
    ``use_invoker`` runs no thread: call ``Aeron.invoke`` yourself at least every second. ``driver_invoker`` is called
    while the client waits for a driver that lives in the same thread.
    """

    settings: ClientSettings = field(default_factory=ClientSettings.load)
    use_invoker: bool = False
    driver_invoker: Callable[[], int] | None = None
    files: Files = field(default_factory=MappedFiles)
    clock: Clock = SYSTEM_CLOCK
    on_available_image: Callable[[Image], object] | None = None
    on_unavailable_image: Callable[[Image], object] | None = None
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
        """A context of all that was given to ``connect``; overrides name fields of the settings or of the context."""
        own = {item.name for item in dataclasses.fields(cls)}
        made = context or (cls() if settings is None else cls(settings=settings))
        if context is not None and settings is not None:
            made = dataclasses.replace(made, settings=settings)
        changes = {name: value for name, value in overrides.items() if name not in own}
        if directory is not None:
            changes["dir"] = os.path.abspath(os.fspath(directory))
        ours = {name: value for name, value in overrides.items() if name in own}
        if changes:
            ours["settings"] = made.settings.replace(**changes)
        return dataclasses.replace(made, **ours) if ours else made
