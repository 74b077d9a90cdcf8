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


# What never waits has no asyncio form.
ONLY_BLOCKING = {"try_send", "poll"}
CLASSES = ("Client", "Duologue", "Server")
EVERYWHERE = {"abort", "close", "closed", "error", "stats"}


@pytest.mark.parametrize("name", ["connect", "serve", *CLASSES])
def test_both_variants_take_the_same_arguments(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(module, name)).parameters for module in (duologue, aio))
    assert [(p.name, p.kind, p.default) for p in blocking.values()] == [
        (p.name, p.kind, p.default) for p in asynchronous.values()
    ]


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_names_with_the_same_signatures(name: str) -> None:
    blocking, asynchronous = (public(getattr(module, name)) for module in (duologue, aio))
    assert blocking.keys() - ONLY_BLOCKING == asynchronous.keys()
    assert blocking.keys() >= EVERYWHERE
    for each, function in asynchronous.items():
        if inspect.isfunction(function):
            assert inspect.signature(blocking[each]) == inspect.signature(function), each  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_awaited_can_time_out(name: str) -> None:
    waiting = {
        each: member for each, member in public(getattr(aio, name)).items() if inspect.iscoroutinefunction(member)
    }
    without = {each for each, member in waiting.items() if "timeout" not in inspect.signature(member).parameters}
    # The close of a server has limits of its own: a handler's 10 s, and `closing_timeout`.
    assert without == ({"close"} if name == "Server" else set())


def test_a_client_and_a_duologue_send_and_receive_alike() -> None:
    for module in (duologue, aio):
        client, served = public(module.Client), public(module.Duologue)
        assert client.keys() - served.keys() == {"settings"} & client.keys()
        assert served.keys() - client.keys() == set()
        for name in ("send", "receive", "abort", "stats"):
            signatures = [str(inspect.signature(each[name])) for each in (client, served)]  # type: ignore[arg-type]
            assert signatures[0] == signatures[1], name


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
