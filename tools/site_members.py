"""mkdocstrings extensions: hide what only C sees, show constants' values in defaults, and write out generated methods."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LENGTH = 60  # of a displayed value: a longer one is shown as its name
# Classes whose objects are created by functions such as `connect`.
CREATED_BY_FUNCTIONS = {
    "Aeron",
    "Client",
    "ClientSession",
    "Connection",
    "Counter",
    "Duologue",
    "ExclusivePublication",
    "Image",
    "MediaDriver",
    "Operation",
    "PersistentSubscription",
    "Publication",
    "Receiver",
    "RecordingReader",
    "ReplayMerge",
    "Scan",
    "Sender",
    "Server",
    "ServerSession",
    "Stream",
    "Subscription",
}
# Helpers that make a blocking method from one of an asyncio class, and a client's method from a call that both clients share.
FACADES = {"waits", "waits_for_end", "runs", "asks", "ends"}
CALLS = {"blocks", "awaits", "lists"}
OPERATIONS = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)


class CompiledMembers(griffe.Extension):
    """Removes members missing from the stubs, which only C sees, from the classes of ``_core`` that public classes inherit from."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if "_core" in pkg.members:
            _hide_c(pkg["_core"])


def _hide_c(module: griffe.Module) -> None:
    for inner in module.modules.values():
        _hide_c(inner)
    stub = Path(str(module.filepath)).with_suffix(".pyi")
    if not module.classes or not stub.exists():
        return
    seen = {node.name: _names(node) for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef)}
    for cls in module.classes.values():
        if not cls.is_alias:
            for name in set(cls.members) - seen.get(cls.name, set()):
                del cls.members[name]


def _names(cls: ast.ClassDef) -> set[str]:
    """Return the names that a class in a stub defines."""
    functions = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    return functions | {
        node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


class SharedNames(griffe.Extension):
    """Lets ``mainstem`` and ``mainstem.aio`` have the names that only type checkers see them import with a wildcard."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        if mod.name == "_shared_names":
            for member in mod.members.values():
                member.runtime = True


class DefaultValues(griffe.Extension):
    """Shows values instead of names for defaults that are numbers or strings, in functions and dataclass fields."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _resolve(pkg)


def _resolve(scope: griffe.Module | griffe.Class) -> None:
    for member in scope.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Function):
            for parameter in member.parameters:
                if isinstance(parameter.default, griffe.ExprName):
                    parameter.default = _value(parameter.default) or parameter.default
        elif isinstance(member, griffe.Attribute) and isinstance(scope, griffe.Class):
            # A field of a dataclass, which is a parameter of its constructor.
            if isinstance(member.value, griffe.ExprName):
                member.value = _value(member.value) or member.value
        elif isinstance(member, griffe.Module | griffe.Class):
            _resolve(member)


def _value(name: griffe.ExprName) -> str | None:
    """Return the constant's value as Python source; None if the name is not a constant."""
    scope = name.parent
    try:
        assert isinstance(scope, griffe.Object)
        target = scope.modules_collection[name.canonical_path]
        if target.is_alias:
            target = target.final_target
    except (KeyError, AssertionError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    if not isinstance(target, griffe.Attribute) or target.value is None:
        return None
    text = str(target.value)
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    if not all(isinstance(node, OPERATIONS) for node in ast.walk(tree)):
        return None
    value = repr(eval(compile(tree, name.canonical_path, "eval"), {"__builtins__": {}}))
    return value if len(value) <= MAX_LENGTH else None


class Constructors(griffe.Extension):
    """Hides the parameters of constructors that only Mainstem's own functions call."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in _modules(pkg):
            for cls in module.classes.values():
                if not cls.is_alias and cls.name in CREATED_BY_FUNCTIONS:
                    cls.set_member("__init__", griffe.Function("__init__", parent=cls))


class BlockingMethods(griffe.Extension):
    """Shows ``send = waits(aio.Sender[Any].send)``, a blocking call of that coroutine, as an ordinary method.

    It does the same for ``replay = blocks(Calls[Subscription].replay)``; the asyncio twin gets only the first line.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in _modules(pkg):
            for cls in module.classes.values():
                if not cls.is_alias:
                    _write_out(cls)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _write_out(cls: griffe.Class) -> None:
    for name, member in list(cls.members.items()):
        if member.is_alias or not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprCall):
            continue
        helper = str(member.value.function)
        if helper not in FACADES | CALLS:
            continue
        target = member.value.arguments[0]
        path, _, method = re.sub(r"\[.*?\]", "", str(target)).rpartition(".")
        first, *rest = path.split(".")
        source = cls.modules_collection[".".join([cls.resolve(first), *rest])]
        function = (source.final_target if source.is_alias else source).members[method]
        copy = griffe.Function(name, parameters=function.parameters, returns=function.returns, parent=cls)
        text = function.docstring.value
        if helper in CALLS:
            copy.returns = _result(cls.module.members[helper], function, target)
            if helper == "awaits":
                copy.labels.add("async")
            if cls.module.name == "aio":
                text = text.partition("\n")[0]
        else:
            text = re.sub(
                r"^( *(?:>>>|\.\.\.) .*)$",
                lambda line: re.sub(r"\b(await|async) ", "", line[0]),
                text,
                flags=re.MULTILINE,
            )
        copy.docstring = griffe.Docstring(text, parser="google", parent=copy)
        cls.set_member(name, copy)


def _result(helper: Any, call: griffe.Function, target: Any) -> Any:
    """Return what a client's method returns: the ``T`` of ``Steps[T]``, or an iterator."""
    made = helper.returns.slice.elements[-1]
    if not isinstance(call.returns, griffe.ExprSubscript):
        return made
    result = call.returns.slice
    return target.first.slice if str(result) == "S" else result
