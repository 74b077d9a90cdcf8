"""Both API variants have the same functions with the same arguments."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import mainstem.duologue.aio
from mainstem import duologue
from mainstem.duologue import aio
from mainstem.duologue.channels import ServerChannels
from mainstem.errors import ConfigurationError


def test_the_asyncio_variant_has_the_names_of_the_blocking_one() -> None:
    assert mainstem.duologue.aio is aio
    assert set(aio.__all__) == set(duologue.__all__) - {"aio"}
    for name in set(aio.__all__) - {"Client", "Duologue", "Server", "connect", "serve"}:
        assert getattr(aio, name) is getattr(duologue, name)


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
    assert blocking.keys() == asynchronous.keys()
    assert blocking.keys() >= EVERYWHERE
    for each, function in asynchronous.items():
        if inspect.isfunction(function):
            assert inspect.signature(blocking[each]) == inspect.signature(function), each  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CLASSES)
def test_awaits_can_time_out(name: str) -> None:
    waiting = {
        each: member for each, member in public(getattr(aio, name)).items() if inspect.iscoroutinefunction(member)
    }
    without = {each for each, member in waiting.items() if "timeout" not in inspect.signature(member).parameters}
    # Closing a server has its own limits: 10 s for a handler, and `closing_timeout`.
    assert without == ({"close"} if name == "Server" else set())


def test_clients_and_duologues_have_the_same_send_and_receive() -> None:
    for module in (duologue, aio):
        client, served = public(module.Client), public(module.Duologue)
        assert client.keys() - served.keys() == {"settings"}
        assert served.keys() - client.keys() == set()
        for name in ("send", "receive", "abort", "stats"):
            signatures = [str(inspect.signature(each[name])) for each in (client, served)]  # type: ignore[arg-type]
            assert signatures[0] == signatures[1], name


@pytest.mark.parametrize("module", [duologue, aio])
def test_any_setting_can_be_a_keyword_argument(module: object) -> None:
    connect, serve = module.connect, module.serve  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="mtu=33"):
        connect("127.0.0.1", 1, mtu=33)
    with pytest.raises(ConfigurationError, match="timeout=0: must be a number of seconds > 0"):
        connect("127.0.0.1", 1, timeout=0)
    with pytest.raises(ConfigurationError, match="max_clients=0"):
        serve(print, settings=duologue.Settings(mtu=64), max_clients=0)
    with pytest.raises(ConfigurationError, match="no_such_setting"):
        connect("127.0.0.1", 1, no_such_setting=1)


def test_a_keyword_argument_overrides_the_settings() -> None:
    settings = duologue.Settings(max_clients=7, idle_timeout=None)
    made = aio.Server.made(print, ServerChannels("192.0.2.1", 7000, dataclasses.replace(settings, max_clients=3)))  # type: ignore[arg-type]
    assert (made.settings.max_clients, made.settings.idle_timeout) == (3, None)
    assert made.address == ("192.0.2.1", 7000)
