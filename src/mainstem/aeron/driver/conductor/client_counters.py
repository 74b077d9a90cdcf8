"""Counters that clients add: owned ones, which end with the client, and static ones (docs/protocols/aeron.md, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import (
    OnCounterReady,
    OnOperationSuccess,
    OnStaticCounter,
    OnUnavailableCounter,
)
from mainstem.aeron.counters import CounterSpec
from mainstem.aeron.driver.errors import check_unused
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.command.commands import AddCounter, AddStaticCounter, RemoveCounter
    from mainstem.aeron.driver.conductor.clients import Clients
    from mainstem.aeron.driver.conductor.resources import Resources

STATIC_OWNER = -1  # the owner of counters that outlive the clients that add them


class ClientCounters:
    def __init__(self, resources: Resources, clients: Clients) -> None:
        self._resources = resources
        self._clients = clients
        self._owned: dict[int, tuple[int, CounterCell]] = {}
        self._static: dict[tuple[int, int], CounterCell] = {}

    def add(self, command: AddCounter, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        check_unused(command.correlation_id, self._owned)
        self._clients.get_or_add(command.client_id)
        cell = self._resources.counters.allocate(
            CounterSpec(command.type_id, command.key, command.label),
            registration_id=command.correlation_id,
            owner_id=command.client_id,
        )
        self._owned[command.correlation_id] = (command.client_id, cell)
        self._resources.clients.send(OnCounterReady(correlation_id=command.correlation_id, counter_id=cell.counter_id))

    def remove(self, command: RemoveCounter, now_ns: int) -> None:  # noqa: ARG002
        owner, cell = self._owned.get(command.registration_id, (None, None))
        if owner != command.client_id or cell is None:
            raise RegistrationError(
                f"unknown counter: client {command.client_id} has none with registration id {command.registration_id}",
                code=ErrorCode.UNKNOWN_COUNTER,
            )
        del self._owned[command.registration_id]
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))
        self._free(command.registration_id, cell)

    def add_static(self, command: AddStaticCounter, now_ns: int) -> None:  # noqa: ARG002
        self._clients.get_or_add(command.client_id)
        key = (command.type_id, command.registration_id)
        cell = self._static.get(key)
        if cell is None:
            self._refuse_counter_id(command)
            cell = self._resources.counters.allocate(
                CounterSpec(command.type_id, command.key, command.label),
                registration_id=command.registration_id,
                owner_id=STATIC_OWNER,
            )
            self._static[key] = cell
        self._resources.clients.send(OnStaticCounter(correlation_id=command.correlation_id, counter_id=cell.counter_id))

    def release_client(self, client_id: int) -> None:
        for registration_id, (owner, cell) in list(self._owned.items()):
            if owner == client_id:
                del self._owned[registration_id]
                self._free(registration_id, cell)

    def _refuse_counter_id(self, command: AddStaticCounter) -> None:
        manager = self._resources.counters.manager
        counter_id = manager.find(command.type_id, command.registration_id)
        if counter_id >= 0 and manager.owner_id(counter_id) != STATIC_OWNER:
            raise RegistrationError(
                "cannot add static counter, because a non-static counter exists "
                f"(counterId={counter_id}) for typeId={command.type_id} and registrationId={command.registration_id}: "
                f"client {manager.owner_id(counter_id)} has it",
                code=ErrorCode.GENERIC_ERROR,
            )

    def _free(self, registration_id: int, cell: CounterCell) -> None:
        self._resources.clients.send(OnUnavailableCounter(registration_id=registration_id, counter_id=cell.counter_id))
        self._resources.counters.free(cell)
