"""The reference shows what a user can call: inherited members, no members that only C can see, and default values."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import griffe
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
API = runpy.run_path(str(ROOT / "tools" / "public_api.py"))
SHOWN_DUNDERS = ("__init__", "__iter__", "__aiter__")

pytestmark = pytest.mark.form


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    extension = griffe.load_extensions(str(ROOT / "tools" / "site_members.py"))
    loaded = griffe.load(
        "mainstem", search_paths=[ROOT / "src"], allow_inspection=False, extensions=extension, resolve_aliases=True
    )
    assert isinstance(loaded, griffe.Module)
    return loaded


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        (
            "aeron.client.publication.Publication",
            ["send", "offer", "try_claim", "close", "closed"],
            ["put_header", "claim"],
        ),
        ("aeron.client.subscription.Subscription", ["poll", "poll_bytes", "close"], ["start"]),
        ("aeron.client.subscription.Image", ["poll", "position"], ["hand_over_whole", "p", "base"]),
    ],
)
def test_a_compiled_class_shows_what_python_sees(
    package: griffe.Module, name: str, present: list[str], absent: list[str]
) -> None:
    members = package[name].all_members
    assert [each for each in present if each not in members] == []
    assert [each for each in absent if each in members] == []


def test_a_default_is_shown_as_its_value(package: griffe.Module) -> None:
    read = package["mux.aio_stream.BaseStream.read"]
    assert [str(each.default) for each in read.parameters if each.name == "limit"] == ["262144"]


def test_a_default_of_a_dataclass_is_shown_as_its_value(package: griffe.Module) -> None:
    fields = {
        name: member for name, member in package["bymux.settings.Settings"].all_members.items() if member.is_attribute
    }
    constants = {name: str(member.value) for name, member in fields.items() if str(member.value).isupper()}
    assert fields
    assert constants == {}


def test_a_constructor_that_only_functions_call_shows_no_parameters(package: griffe.Module) -> None:
    assert list(package["bymux.aio.Connection"].members["__init__"].parameters) == []
    assert list(package["recording.recorder.Recorder"].members["__init__"].parameters) != []


def test_every_type_in_a_public_signature_is_documented(package: griffe.Module) -> None:
    exported = {each.canonical_path: each for each in exports(package)}
    named: dict[str, str] = {}
    for each in exported.values():
        for user, annotation in annotations_of(each):
            for name in names(annotation):
                target = resolved(package, name.canonical_path)
                if target is not None and not any(
                    part.startswith("_") for part in target.canonical_path.split(".")[2:]
                ):
                    named.setdefault(target.canonical_path, user.canonical_path)
    documented = {*exported, *(f"{path}.{member}" for path, each in exported.items() for member in each.members)}
    assert set(named) - documented == set(API["SIGNATURE_TYPES"]), "public_api.SIGNATURE_TYPES does not agree"


def exports(package: griffe.Module) -> Iterator[griffe.Object]:
    """Yield the objects that public modules export."""
    for module_name in API["PUBLIC"]:
        module = package if module_name == "mainstem" else package[module_name.removeprefix("mainstem.")]
        listed = [str(name) for name in module.exports or []]
        for name in listed or [name for name, each in module.members.items() if name[0] != "_" and not each.is_alias]:
            target = module.members.get(name)
            if isinstance(target, griffe.Alias):
                target = resolved(package, target.target_path)
            if isinstance(target, griffe.Object):
                yield target


def annotations_of(target: griffe.Object) -> Iterator[tuple[griffe.Object, str | griffe.Expr | None]]:
    """Yield each annotation that the reference shows for an object, with the member that has it."""
    if isinstance(target, griffe.Function):
        yield from ((target, each.annotation) for each in target.parameters)
        yield target, target.returns
    elif isinstance(target, griffe.Attribute):
        yield target, target.annotation
    elif isinstance(target, griffe.Class):
        for name, member in target.all_members.items():
            own = member.final_target if isinstance(member, griffe.Alias) else member
            if (not name.startswith("_") or name in SHOWN_DUNDERS) and isinstance(own, griffe.Object):
                yield from annotations_of(own)


def names(annotation: str | griffe.Expr | None) -> Iterator[griffe.ExprName]:
    if isinstance(annotation, griffe.ExprName):
        yield annotation
    elif isinstance(annotation, griffe.Expr):
        yield from (each for each in annotation.iterate(flat=True) if isinstance(each, griffe.ExprName))


def resolved(package: griffe.Module, path: str) -> griffe.Object | None:
    """Return Mainstem's class or type alias at a path, if there is one."""
    try:
        target = package.modules_collection[path]
        target = target.final_target if isinstance(target, griffe.Alias) else target
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    is_variable = isinstance(target, griffe.Attribute) and "TypeVar" in str(target.value)
    return None if is_variable or target.is_module or not path.startswith("mainstem.") else target
