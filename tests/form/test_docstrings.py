"""Everything that users may import is documented: its purpose, its arguments and its return value."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import griffe
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
PUBLIC: dict[str, tuple[str, str]] = runpy.run_path(str(ROOT / "tools" / "public_api.py"))["PUBLIC"]
SECTIONS = griffe.DocstringSectionKind
RESULTS = {SECTIONS.returns, SECTIONS.yields}


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    extension = griffe.load_extensions(str(ROOT / "tools" / "site_members.py"))
    loaded = griffe.load(
        "mainstem", search_paths=[ROOT / "src"], docstring_parser="google", extensions=extension, resolve_aliases=True
    )
    assert isinstance(loaded, griffe.Module)
    return loaded


def public_objects(package: griffe.Module, module_name: str) -> Iterator[griffe.Object]:
    """Yield the classes and functions that a module exports, and their public methods."""
    module = package if module_name == "mainstem" else package[module_name.removeprefix("mainstem.")]
    exports = [str(name) for name in module.exports or []] or [
        name for name, member in module.members.items() if not name.startswith("_") and not member.is_alias
    ]
    for name in exports:
        member = module.members.get(name)
        if member is None:
            continue  # exported lazily: its own module is in the list
        target = member.final_target if isinstance(member, griffe.Alias) else member
        if target.is_function or target.is_class:
            yield target
        if target.is_class:
            for method_name, method in target.members.items():
                if not method_name.startswith("_") and not method.is_alias and method.is_function:
                    assert isinstance(method, griffe.Object)
                    yield method


def has_blocking_twin(package: griffe.Module, module_name: str, target: griffe.Object) -> bool:
    """Return whether an asyncio function has a blocking twin with the same parameters; it then documents only differences."""
    if not module_name.endswith(".aio") or not isinstance(target, griffe.Function):
        return False
    assert target.parent is not None
    blocking = package if module_name == "mainstem.aio" else package[module_name.removeprefix("mainstem.")[:-4]]
    parent = blocking.members.get(target.parent.name) if target.parent.is_class else blocking
    twin = parent.all_members.get(target.name) if parent is not None else None
    return twin is not None and [each.name for each in twin.parameters] == [  # type: ignore[union-attr]
        each.name for each in target.parameters
    ]


def inherits_docstring(target: griffe.Object) -> bool:
    """Return whether a method overrides a documented one, as methods that do nothing do."""
    if not isinstance(target.parent, griffe.Class):
        return False
    overridden = [base.members.get(target.name) for base in target.parent.mro()]
    return any(each is not None and each.has_docstring for each in overridden)


def faults(target: griffe.Object) -> Iterator[str]:
    """Yield what the docstring of one public object lacks."""
    if target.docstring is None:
        if not inherits_docstring(target):
            yield "no docstring"
        return
    sections = target.docstring.parse("google", warnings=False)
    if target.is_function:
        assert isinstance(target, griffe.Function)
        if "property" in target.labels or "overload" in str(target.decorators):
            return
        described = {
            parameter.name.lstrip("*")
            for section in sections
            if section.kind in (SECTIONS.parameters, SECTIONS.other_parameters)
            for parameter in section.value
        }
        text = target.docstring.value
        described |= set(re.findall(r"``(\w+)``", text))
        names = [parameter.name for parameter in target.parameters if parameter.name not in ("self", "cls")]
        if missing := [name for name in names if name.lstrip("*") not in described]:
            yield f"does not mention {', '.join(missing)}"
        result = str(target.returns) if target.returns is not None else "None"
        says_result = re.search(r"\b[Rr]eturn ", text) or any(section.kind in RESULTS for section in sections)
        if result not in ("None", "NoReturn", "Never") and not says_result:
            yield "does not say what is returned"


@pytest.mark.parametrize("module_name", PUBLIC)
def test_everything_public_is_documented(package: griffe.Module, module_name: str) -> None:
    lacking = [
        f"{target.path}: {fault}"
        for target in public_objects(package, module_name)
        for fault in faults(target)
        if fault == "no docstring" or not has_blocking_twin(package, module_name, target)
    ]
    assert lacking == []


def is_private(package: str) -> bool:
    text = (ROOT / "src" / package.replace(".", "/") / "__init__.py").read_text()
    return (ast.get_docstring(ast.parse(text)) or "").startswith("Private")


def test_every_package_is_public_or_says_that_it_is_private() -> None:
    unclear = []
    for path in sorted((ROOT / "src" / "mainstem").rglob("__init__.py")):
        names = path.relative_to(ROOT / "src").parent.parts
        packages = [".".join(names[: length + 1]) for length in range(len(names))]
        has_public_parts = any(module == packages[-1] or module.startswith(packages[-1] + ".") for module in PUBLIC)
        if not has_public_parts and not any(is_private(package) for package in packages):
            unclear.append(packages[-1])
    assert unclear == []


def test_every_module_that_the_package_calls_public_has_a_page() -> None:
    text = ast.get_docstring(ast.parse((ROOT / "src" / "mainstem" / "__init__.py").read_text())) or ""
    named = re.findall(r"``(mainstem\.[a-z_.]+)``", text)
    assert len(named) > 10
    assert [name for name in named if name not in PUBLIC] == []


def test_the_generated_pages_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "write_docs.py"), "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
