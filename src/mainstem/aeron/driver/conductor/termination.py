"""TERMINATE_DRIVER: a client may end the driver where the settings allow it (aeron-behaviour §5)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import TerminateDriver
    from mainstem.aeron.driver.resources import Resources

logger = logging.getLogger(__name__)


class Termination:
    """``requested`` says that an accepted command asked the driver to end; whoever runs it looks there."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.requested = False

    def on_terminate(self, command: TerminateDriver, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Accepted only by the validator ``allow``. There is no answer either way."""
        if self._resources.settings.driver_termination_validator == "allow":
            logger.info("client %d asked the driver to end", command.client_id)
            self.requested = True
        else:
            self._resources.errors.record(f"client {command.client_id} may not end the driver")
