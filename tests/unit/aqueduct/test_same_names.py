"""Both API variants have the same names, and their calls take the same arguments."""

from __future__ import annotations

import inspect

import pytest

import mainstem.aqueduct.aio
from mainstem import aqueduct
from mainstem.aqueduct import aio

CLASSES = ["Connection", "Receiver", "Sender", "Server"]


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers_static(kind) if not name.startswith("_")}


def test_the_asyncio_variant_has_the_names_of_the_blocking_one() -> None:
    assert mainstem.aqueduct.aio is aio
    assert {*aio.__all__, "aio"} == set(aqueduct.__all__)


@pytest.mark.parametrize("name", sorted({*aio.__all__} - {*CLASSES, "channel", "connect", "oneshot", "serve"}))
def test_objects_that_do_not_wait_are_shared_by_both_variants(name: str) -> None:
    assert getattr(aio, name) is getattr(aqueduct, name)


@pytest.mark.parametrize("name", ["channel", "connect", "oneshot", "serve"])
def test_both_variants_take_the_same_arguments(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(module, name)).parameters for module in (aqueduct, aio))
    assert [(p.name, p.kind, p.default) for p in blocking.values()] == [
        (p.name, p.kind, p.default) for p in asynchronous.values()
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_names_and_signatures(name: str) -> None:
    blocking, asynchronous = (public(getattr(module, name)) for module in (aqueduct, aio))
    assert blocking.keys() == asynchronous.keys()
    for method, function in asynchronous.items():
        if inspect.isfunction(function):
            assert inspect.signature(blocking[method]) == inspect.signature(function), method  # type: ignore[arg-type]
            assert inspect.getdoc(blocking[method]), method
        else:
            assert type(blocking[method]) is type(function), method


@pytest.mark.parametrize("name", CLASSES)
def test_the_blocking_variant_has_no_coroutines(name: str) -> None:
    assert [
        each for each, member in public(getattr(aqueduct, name)).items() if inspect.iscoroutinefunction(member)
    ] == []
