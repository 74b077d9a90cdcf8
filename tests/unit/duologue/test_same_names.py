"""The two variants of the API have the same functions, which take the same arguments."""

from __future__ import annotations

import inspect

import pytest

import mainstem.duologue.aio
from mainstem import duologue
from mainstem.duologue import ClientSettings, ServerSettings, aio
from mainstem.duologue.settings import client_settings, server_settings


def test_the_asyncio_variant_has_names_of_the_blocking_one() -> None:
    assert mainstem.duologue.aio is aio
    assert set(aio.__all__) == {"Client", "Duologue", "Server", "connect", "serve"}
    assert set(aio.__all__) <= set(duologue.__all__)


@pytest.mark.parametrize("name", ["connect", "serve", "Client", "Server"])
def test_both_variants_take_the_same_arguments(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(module, name)).parameters for module in (duologue, aio))
    assert [(p.name, p.kind, p.default) for p in blocking.values()] == [
        (p.name, p.kind, p.default) for p in asynchronous.values()
    ]


def public_names(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "only_blocking", "only_asyncio"), [("Client", {"poll", "step"}, {"core"}), ("Server", {"call"}, {"core"})]
)
def test_classes_have_the_same_names(name: str, only_blocking: set[str], only_asyncio: set[str]) -> None:
    # An event loop needs no `poll`, and its handlers may use the core, which belongs to a thread otherwise.
    blocking, asynchronous = (public_names(getattr(module, name)) for module in (duologue, aio))
    assert (blocking - asynchronous, asynchronous - blocking) == (only_blocking, only_asyncio)


@pytest.mark.parametrize(
    ("kind", "name"), [("Client", "send"), ("Client", "receive"), ("Server", "wait"), ("Server", "broadcast")]
)
def test_methods_have_the_same_signature(kind: str, name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(getattr(module, kind), name)) for module in (duologue, aio))
    assert blocking == asynchronous


def test_arguments_override_settings() -> None:
    server = ServerSettings(address="192.0.2.1", max_clients=7)
    changed = server_settings(server, "192.0.2.2", 7000, {"base_port": 7010})
    assert changed == ServerSettings(
        address="192.0.2.2",
        initial_port=7000,
        initial_control_port=7001,
        base_port=7010,
        max_clients=7,
        prefixes=server.prefixes,
    )
    client = client_settings(ClientSettings(server="192.0.2.1"), None, 7000, {"initial_control_port": 7005})
    assert client == ClientSettings(server="192.0.2.1", initial_port=7000, initial_control_port=7005)


def test_a_setting_that_is_given_twice_or_not_at_all_is_refused() -> None:
    with pytest.raises(TypeError, match="address: given twice"):
        server_settings(None, "192.0.2.1", None, {"address": "192.0.2.2"})
    with pytest.raises(TypeError, match="initial_port: given twice"):
        client_settings(None, "192.0.2.1", 7000, {"initial_port": 7000})
    with pytest.raises(TypeError, match="server"):
        aio.connect()
