"""The adapter that decodes client commands, runs handlers, and turns errors into responses (docs/protocols/aeron.md, 3, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.command.commands import Command, correlation_id_of, decode_command
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.errors import error_code_of
from mainstem.errors import MainstemError, RegistrationError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainstem.aeron.driver.conductor.resources import Resources

# Limit on the commands in one duty cycle, as in the reference: creating a log can take milliseconds.
COMMANDS_PER_CYCLE = 1
# How long a command waits for a socket to close before the driver refuses it.
WAIT_LIMIT_NS = 2 * NS_PER_SECOND


class ClientCommandAdapter:
    """The reader of client commands, which calls ``handlers[type(command)](command, now_ns)`` for each.

    If a handler raises, the client gets ON_ERROR, and the error is recorded.
    """

    def __init__(
        self, resources: Resources, handlers: Mapping[type[Command], Callable[[Any, int], None]], now_ns: int
    ) -> None:
        self._resources = resources
        self._handlers = handlers
        self._now_ns = now_ns
        self._waiting: Command | None = None
        self._deadline_ns = 0
        self._head = resources.to_driver.consumer_position
        self._head_since_ns = now_ns

    @property
    def has_more(self) -> bool:
        return self._waiting is not None or self._resources.to_driver.size > 0

    def poll(self, now_ns: int) -> int:
        """Handle up to COMMANDS_PER_CYCLE commands and return how many. A command that must wait delays those after it."""
        self._now_ns = now_ns
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._handle(waiting)
            return 1
        return self._resources.to_driver.read(self._on_record, COMMANDS_PER_CYCLE)

    def on_timer(self, now_ns: int) -> None:
        """Unblock the to-driver buffer if it isn't empty, but its head hasn't moved for the client liveness timeout.

        That happens when a client dies after claiming a record and before committing it.
        """
        ring = self._resources.to_driver
        head = ring.consumer_position
        if head != self._head or head == ring.producer_position:
            self._head = head
            self._head_since_ns = now_ns
        elif now_ns - self._head_since_ns >= self._resources.settings.client_liveness_timeout_ns:
            self._head_since_ns = now_ns
            if ring.unblock():
                self._resources.count(SystemCounter.UNBLOCKED_COMMANDS)

    def _on_record(self, type_id: int, payload: bytes) -> None:
        try:
            command = decode_command(type_id, payload)
        except RemoteProtocolError as error:
            self._refuse(correlation_id_of(payload), error)
            return
        self._resources.instrument.command(type(command).__name__, repr(command), self._now_ns)
        if self._resources.events is not None:
            self._resources.events.record(command, self._now_ns)
        self._deadline_ns = self._now_ns + WAIT_LIMIT_NS
        self._handle(command)

    def _handle(self, command: Command) -> None:
        try:
            self._handlers[type(command)](command, self._now_ns)
        except RegistrationError as error:
            if error.code == ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE and self._now_ns < self._deadline_ns:
                self._waiting = command
            else:
                self._refuse(command.correlation_id, error)
        except (MainstemError, OSError, BufferError) as error:
            self._refuse(command.correlation_id, error)
        except Exception as error:  # a bug in handling one command must not stop all streams of this driver
            text = f"{type(command).__name__} failed: {type(error).__name__}: {error}"
            self._refuse(command.correlation_id, error, text=text, bug=error)

    def _refuse(
        self, correlation_id: int | None, error: Exception, *, text: str | None = None, bug: Exception | None = None
    ) -> None:
        code = error_code_of(error)
        if correlation_id is not None:
            self._resources.clients.send_error(correlation_id, code, str(error))
        self._resources.errors.record(text or str(error), code=code, bug=bug)
