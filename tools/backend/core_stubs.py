"""Generate declarations for Cython and type checkers from each module of ``_core``.

People write ``X.py``, with types, attributes and docstrings. ``X.pxd`` (the C declarations that other modules cimport) and
``X.pyi`` (what Python sees) are generated from it; ``layout.py`` and ``system_counter.py`` produce only a ``.pxd`` with their
numbers. ``setup.py`` calls :func:`write` before it compiles. Git ignores the generated files; wheels and source archives contain
them.

The kind of a function depends on its declaration:

- a function that returns a Python type is a Python function;
- one that returns a C type (``cython.int``, ``cython.void``, ...) is a C function, ``noexcept nogil``;
- ``@cython.exceptval(-1)`` or ``(-1, check=True)`` makes that ``except -1`` or ``except? -1``, and ``(check=False)``
  ``noexcept``, all with the GIL; ``@cython.cfunc`` leaves exceptions to Cython's defaults, and is necessary if a Python object is
  returned;
- ``@cython.ccall`` makes a function of both languages.

The class body declares attributes: for C only, or also for Python as ``readonly[TYPE]`` or ``public[TYPE]``. A number assigned in
uncompiled code, such as ``MAX_RUNS = 64``, is an enum in C.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = Path(__file__).resolve().parents[2] / "src" / "mainstem" / "_core"
LAYOUTS = ("layout", "capture/layout", "system_counter")
# plain.py replaces the C primitives if nothing is compiled; the others contain only numbers.
NOT_COMPILED = {"__init__", "layout", "plain", "system_counter"}
HEADER = "# Written from {name}.py by every build: edit that file.\n"
C_TYPES = {
    "bint": "bint",
    "double": "double",
    "int": "int",
    "longlong": "long long",
    "uchar": "unsigned char",
    "uint": "unsigned int",
    "ulonglong": "unsigned long long",
    "ushort": "unsigned short",
    "void": "void",
    "p_const_uchar": "const unsigned char *",
    "p_int": "int *",
    "p_longlong": "long long *",
    "p_uchar": "unsigned char *",
    "p_void": "void *",
    "pp_void": "void **",
}
PYTHON_TYPES = {"bint": "bool", "double": "float", "void": "None"}
BUILTINS = {"bytearray", "bytes", "dict", "list", "set", "tuple"}
VISIBILITIES = {"public", "readonly"}
Function = ast.FunctionDef


def cython_name(node: ast.expr | None) -> str | None:
    """Return NAME of ``cython.NAME``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cython":
        return node.attr
    return None


def cython_decorators(node: Function | ast.ClassDef) -> dict[str, ast.expr]:
    decorators = {}
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if name := cython_name(target):
            decorators[name] = decorator
    return decorators


def is_c_type(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Subscript):
        return is_c_type(node.value)
    return cython_name(node) is not None


def is_private(method: Function) -> bool:
    """Whether a name has one leading underscore."""
    return method.name.startswith("_") and not method.name.startswith("__")


def is_annotated(method: Function) -> bool:
    """Whether every parameter except ``self`` has a type."""
    return all(argument.annotation for argument in [*method.args.args[1:], *method.args.kwonlyargs])


def is_c_function(node: Function) -> bool:
    decorators = cython_decorators(node)
    return "ccall" not in decorators and ("cfunc" in decorators or is_c_type(node.returns))


def docstring(node: ast.Module | ast.ClassDef | Function, indent: str) -> str:
    first = node.body[0]
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return ""
    lines = (ast.get_docstring(node) or "").replace("\\", "\\\\").split("\n")
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    return (
        f'{indent}"""' + "\n".join([lines[0], *(indent + line if line else "" for line in lines[1:]), indent]) + '"""\n'
    )


class Module:
    """One ``X.py``, and the files generated from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ".".join(path.relative_to(CORE.parent.parent).with_suffix("").parts)
        self.source = path.read_text()
        self.tree = ast.parse(self.source)
        self.lines = self.source.split("\n")
        self.classes = [n for n in self.tree.body if isinstance(n, ast.ClassDef)]
        self.c_classes = {n.name for n in self.classes if "cclass" in cython_decorators(n)}
        self.enums = dict(self._enums())
        self.functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        self.c_functions = {n.name for n in self.functions if is_c_function(n) or "ccall" in cython_decorators(n)}
        self.c_names = self.c_classes | self.c_functions | set(self.enums)

    def _uncompiled(self) -> Iterator[ast.stmt]:
        """Yield the module-level statements that only the uncompiled form runs."""
        for node in self.tree.body:
            if isinstance(node, ast.If):
                test = ast.unparse(node.test)
                if test == "not cython.compiled":
                    yield from node.body
                elif test == "cython.compiled":
                    yield from node.orelse

    def _enums(self) -> Iterator[tuple[str, int]]:
        for node in self._uncompiled():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                yield node.targets[0].id, ast.literal_eval(node.value)

    def _imports(self) -> Iterator[ast.ImportFrom]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.col_offset <= 4:
                yield node

    # -- X.pxd ---------------------------------------------------------------------------------------------------------

    def pxd(self, modules: dict[str, Module]) -> str:
        blocks = []
        if self.enums:
            blocks.append("cdef enum:\n" + "".join(f"    {name} = {value}\n" for name, value in self.enums.items()))
        blocks += [self._pxd_class(node, modules) for node in self.classes if node.name in self.c_classes]
        functions = [self._signature(n, modules, "") for n in self.functions if n.name in self.c_functions]
        if functions:
            blocks.append("".join(functions))
        forward = self._forward_declarations(blocks)
        imports = self._cimports(modules)
        return "\n\n".join(part for part in (HEADER.format(name=self.path.stem) + imports, forward, *blocks) if part)

    def _forward_declarations(self, blocks: list[str]) -> str:
        """Declare classes that are used before their definition."""
        text = "\n".join(blocks)
        return "".join(
            f"cdef class {name}\n"
            for name in sorted(self.c_classes)
            if (use := re.search(rf"\b{name}\b", text)) and not text[: use.start()].endswith("cdef class ")
        )

    def _cimports(self, modules: dict[str, Module]) -> str:
        lines = set()
        for node in self._imports():
            names = [alias.name for alias in node.names]
            module = str(node.module)
            if module == "mainstem._core.memory.plain":
                if names == ["*"]:
                    lines.add("from mainstem._core.memory.atomics cimport *")
                    if re.search(r"\b(be16|be32|le32)\(", self.source):
                        lines.add("from mainstem._core.memory.byte_order cimport *")
            elif module.startswith("cython.cimports."):
                lines.add(f"from {module.removeprefix('cython.cimports.')} cimport {', '.join(names)}")
            elif module in modules:
                names = sorted(set(names) & modules[module].c_names)
                if names:
                    lines.add(f"from {module} cimport {', '.join(names)}")
            elif module.startswith("mainstem._core.") and names == ["*"]:
                lines.add(f"from {module} cimport *")
        return "".join(f"{line}\n" for line in sorted(lines))

    def _pxd_class(self, node: ast.ClassDef, modules: dict[str, Module]) -> str:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        lines = []
        for name, visibility, annotation in attributes(node):
            prefix = f"{visibility} " if visibility else ""
            lines.append(f"    cdef {prefix}{self._declare(annotation, name, modules)}\n")
        methods = [
            self._signature(method, modules, "    ")
            for method in methods_of(node)
            if is_c_function(method) or "ccall" in cython_decorators(method)
        ]
        if methods and lines:
            lines.append("\n")
        body = "".join(lines + methods) or "    pass\n"
        return f"cdef class {node.name}{f'({bases})' if bases else ''}:\n{body}"

    def _declare(self, annotation: ast.expr | None, name: str, modules: dict[str, Module], exact: bool = False) -> str:
        """Declare ``name`` with its C type: ``unsigned char *name``, ``long long name[64]``.

        For a function of both languages, Cython compares the item types of containers such as ``list[bytes]``, which ``exact``
        keeps.
        """
        if isinstance(annotation, ast.Subscript) and cython_name(annotation.value) == "volatile":
            return "volatile " + self._declare(annotation.slice, name, modules)
        if isinstance(annotation, ast.Subscript) and cython_name(annotation.value) == "pointer":
            return self._declare(annotation.slice, f"*{name}", modules)
        sizes = ""
        while isinstance(annotation, ast.Subscript) and not self._is_generic(annotation):
            sizes = f"[{ast.unparse(annotation.slice)}]{sizes}"
            annotation = annotation.value
        c_type = self._c_type(annotation, modules, exact)
        space = "" if c_type.endswith("*") else " "
        return f"{c_type}{space if c_type else ''}{name}{sizes}"

    @staticmethod
    def _is_generic(annotation: ast.Subscript) -> bool:
        """Whether the annotation is a Python type such as ``list[int]``; ``cython.int[8]`` and ``iovec[MAX]`` are arrays."""
        value = annotation.value
        while isinstance(value, ast.Subscript):
            value = value.value
        return isinstance(value, ast.Name) and (value.id in BUILTINS | PYTHON_NAMES or value.id[0].isupper())

    def _c_type(self, annotation: ast.expr | None, modules: dict[str, Module], exact: bool) -> str:
        if (name := cython_name(annotation)) is not None:
            return C_TYPES[name]
        if isinstance(annotation, ast.BinOp) and ast.unparse(annotation.right) == "None":
            return self._c_type(annotation.left, modules, exact)
        if isinstance(annotation, ast.Subscript):
            if exact:
                return ast.unparse(annotation)
            annotation = annotation.value
        name = annotation.id if isinstance(annotation, ast.Name) else ""
        if not name or name in PYTHON_NAMES:
            return "object"
        if name in BUILTINS or name in self.c_classes:
            return name
        for node in self._imports():
            module = str(node.module)
            names = {alias.name for alias in node.names}
            if module.startswith("cython.cimports.") and (name in names or ("*" in names and name[0].islower())):
                return name
            if name in names:
                return name if module in modules and name in modules[module].c_classes else "object"
        raise NameError(f"{self.path}: {name} is neither defined nor imported")

    def _signature(self, node: Function, modules: dict[str, Module], indent: str) -> str:
        decorators = cython_decorators(node)
        kind = "cpdef" if "ccall" in decorators else "cdef"
        arguments = [
            argument.arg
            if argument.arg == "self"
            else self._declare(argument.annotation, argument.arg, modules, kind == "cpdef")
            for argument in node.args.args
        ]
        tail = ""
        if "exceptval" in decorators:
            call = decorators["exceptval"]
            assert isinstance(call, ast.Call)
            check = {k.arg: ast.literal_eval(k.value) for k in call.keywords}.get("check")
            value = ast.unparse(call.args[0]) if call.args else ""
            tail = f" except{'?' if check else ''} {value}" if value else " noexcept"
        elif kind == "cdef" and "cfunc" not in decorators:
            tail = " noexcept nogil"
        signature = self._declare(node.returns, f"{node.name}({', '.join(arguments)})", modules, kind == "cpdef")
        return f"{indent}{kind} {signature}{tail}\n"

    # -- X.pyi ---------------------------------------------------------------------------------------------------------

    def pyi(self) -> str:
        parts = [self._constants()]
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                parts.append(self._stub_class(node))
            elif isinstance(node, ast.FunctionDef) and not is_c_function(node) and not node.name.startswith("_"):
                parts.append(self._stub(node, ""))
        body = "\n".join(part for part in parts if part)
        return HEADER.format(name=self.path.stem) + self._stub_imports(body) + "\n" + body

    def _stub_imports(self, body: str) -> str:
        lines = set()
        used = set(re.findall(r"\w+", re.sub(r'""".*?"""', "", body, flags=re.DOTALL)))
        for node in self._imports():
            names = [alias.name for alias in node.names if alias.name in used]
            if names and node.module not in ("cython", "__future__"):
                lines.add(f"from {node.module} import {', '.join(names)}\n")
        if "overload" in used:
            lines.add("from typing import overload\n")
        return "".join(sorted(lines))

    def _constants(self) -> str:
        lines = []
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                try:
                    value = eval(ast.unparse(node.value), {"__builtins__": {}})  # a number, or a sum of numbers
                except (NameError, TypeError):
                    continue
                kind = "tuple[str, ...]" if isinstance(value, tuple) else type(value).__name__
                lines.append(f"{node.targets[0].id}: {kind}\n")
        return "".join(lines)

    def _stub_class(self, node: ast.ClassDef) -> str:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        lines = [f"class {node.name}{f'({bases})' if bases else ''}:\n", docstring(node, "    ")]
        lines += [
            f"    {name}: {python_type(annotation)}\n"
            for name, visibility, annotation in attributes(node)
            if visibility
        ]
        for method in methods_of(node):
            if is_c_function(method) or (is_private(method) and not is_annotated(method)):
                continue
            if method.name not in ("__dealloc__", "__cinit__", "__getbuffer__", "__releasebuffer__"):
                lines.append(self._stub(method, "    "))
            elif method.name == "__getbuffer__":
                lines.append("    def __buffer__(self, flags: int, /) -> memoryview: ...\n")
        return "".join(lines) if len(lines) > 2 or lines[1] else lines[0] + "    ...\n"

    @staticmethod
    def _stub(node: Function, indent: str) -> str:
        decorators = [d for d in node.decorator_list if cython_name(d.func if isinstance(d, ast.Call) else d) is None]
        copy = ast.parse(ast.unparse(node)).body[0]
        assert isinstance(copy, ast.FunctionDef)
        for argument in [*copy.args.args, *copy.args.kwonlyargs, *([copy.args.vararg] if copy.args.vararg else [])]:
            if argument.annotation:
                argument.annotation = ast.parse(python_type(argument.annotation), mode="eval").body
        # Hide names in defaults: most are C constants, which Python does not see.
        defaults = (copy.args.defaults, copy.args.kw_defaults)
        for values in defaults:
            values[:] = [ast.Constant(...) if isinstance(value, ast.Name) else value for value in values]
        returns = f" -> {python_type(node.returns)}" if node.returns else ""
        head = "".join(f"{indent}@{ast.unparse(d)}\n" for d in decorators)
        text = docstring(node, indent + "    ")
        if node.name == "__getitem__" and ast.unparse(copy.args).endswith("int | slice"):
            assert isinstance(node.returns, ast.BinOp)
            pairs = (("int", node.returns.left), ("slice", node.returns.right))
            return "".join(
                f"{indent}@overload\n{indent}def __getitem__(self, index: {index}) -> {ast.unparse(item)}: ...\n"
                for index, item in pairs
            )
        signature = f"{head}{indent}def {node.name}({ast.unparse(copy.args)}){returns}:"
        return f"{signature}\n{text}" if text else f"{signature} ...\n"


PYTHON_NAMES = {"bool", "deque", "float", "int", "memoryview", "object", "str", "type"}


def attributes(node: ast.ClassDef) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield (name, ``readonly``, ``public`` or empty, type) for each attribute that the class body declares."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            annotation, visibility = statement.annotation, ""
            if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in VISIBILITIES:
                annotation, visibility = annotation.slice, ast.unparse(annotation.value)
            yield statement.target.id, visibility, annotation


def methods_of(node: ast.ClassDef) -> Iterator[Function]:
    """Yield the methods, including those that exist only in the compiled form."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "cython.compiled":
            yield from (inner for inner in statement.body if isinstance(inner, ast.FunctionDef))


def python_type(annotation: ast.expr | None) -> str:
    name = cython_name(annotation)
    if name is not None:
        return PYTHON_TYPES.get(name, "int")
    return ast.unparse(annotation) if annotation else "object"


def layout_pxd(name: str) -> str:
    names = runpy.run_path(str(CORE / f"{name}.py"))
    numbers = {name: value for name, value in names.items() if name.isupper() and isinstance(value, int)}
    # A single constant that needs 64 bits would make its whole enum 64 bits wide.
    groups = ({k: v for k, v in numbers.items() if (v.bit_length() < 32) == small} for small in (True, False))
    enums = ["cdef enum:\n" + "".join(f"    {k} = {v}\n" for k, v in group.items()) for group in groups if group]
    return HEADER.format(name=Path(name).name) + "\n".join(enums)


def generated() -> dict[Path, tuple[Path, str]]:
    """Return each generated file, with its source and its text."""
    texts = {}
    for name in LAYOUTS:
        if (source := CORE / f"{name}.py").exists():
            texts[source.with_suffix(".pxd")] = source, layout_pxd(name)
    found = [Module(path) for path in sorted(CORE.rglob("*.py")) if path.stem not in NOT_COMPILED]
    modules = {module.name: module for module in found}
    for module in found:
        texts[module.path.with_suffix(".pxd")] = module.path, module.pxd(modules)
        texts[module.path.with_suffix(".pyi")] = module.path, module.pyi()
    return texts


def write() -> None:
    """Write every file whose text has changed.

    A file that did not exist gets the timestamp of its source, so that restoring a deleted file compiles nothing.
    """
    for target, (source, text) in generated().items():
        is_new = not target.exists()
        if is_new or target.read_text() != text:
            target.write_text(text)
        if is_new:
            os.utime(target, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
