"""Adding the publications of sessions and replays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.client import Aeron
    from mainstem.aeron.client.operation import Operation


class AddingPublication:
    """Adds an exclusive publication. Tries again while the driver temporarily lacks the resources for it."""

    def __init__(self, aeron: Aeron, channel: str, stream_id: int) -> None:
        self._add = partial(aeron.async_add_exclusive_publication, channel, stream_id)
        self._operation: Operation[Any] | None = self._add()

    def poll(self) -> Any:
        """Return the publication; None until the driver has added it. Raises MainstemError."""
        try:
            if self._operation is None:
                self._operation = self._add()
            return self._operation.poll()
        except RegistrationError as error:
            self._operation = None
            if error.code != ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE:
                raise
            return None

    def cancel(self) -> None:
        if self._operation is not None:
            self._operation.cancel()
