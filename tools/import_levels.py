#!/usr/bin/env python3
"""Print the levels of packages: their modules, the imports between them, and every cycle.

A package's modules form a graph with an edge for each import from one to another. A cycle is a strongly connected component of
that graph. With each cycle treated as one node, the graph has no cycles, and a module's level is the longest path down from it,
starting at 1. The tool reads imports from the source without running anything. It also counts imports below ``if TYPE_CHECKING``,
because readers of a module follow them.

    tools/import_levels.py                                every package of mainstem
    tools/import_levels.py mainstem.aeron.driver          one package, subpackages included
    tools/import_levels.py --fold                         each subpackage as one module, as a reader of the tree meets it first
    tools/import_levels.py --limit-cycle 2                exits with 1 if a cycle has more than two modules
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = "mainstem"
DEFAULT_SOURCE = Path(__file__).resolve().parent.parent / "src"


@dataclass(frozen=True)
class Package:
    """The measured graph of one package.

    ``modules`` excludes an ``__init__`` that imports nothing. ``edges`` are the imports, with each pair of modules once, and
    ``lines`` counts the import statements behind them. ``levels`` maps each module to its level. ``cycles`` lists the components
    with several modules.
    """

    name: str
    modules: list[str]
    lines: int
    edges: dict[str, set[str]]
    levels: dict[str, int]
    cycles: list[list[str]]

    def summary(self) -> str:
        """Return the numbers in one line."""
        largest = max(map(len, self.cycles), default=0)
        cycles = f"cycles of {largest} files" if largest else "no cycle"
        pairs = sum(map(len, self.edges.values()))
        return (
            f"{self.name}: {len(self.modules)} modules on {max(self.levels.values(), default=0)} levels with {pairs} "
            f"imports ({self.lines} lines) and {cycles}"
        )


def modules_of(source: Path) -> dict[str, Path]:
    """Return the file of every module below ``source``, by dotted name."""
    modules = {}
    for path in sorted((source / ROOT).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def is_type_checking(node: ast.AST) -> bool:
    """Return whether ``node`` is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_of(module: str, path: Path, known: dict[str, Path], *, type_checking: bool) -> list[set[str]]:
    """Return the modules that each import statement of a file names, without statements that name only foreign modules."""
    found: list[set[str]] = []
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if is_type_checking(node) and not type_checking:
            pending += node.orelse  # type: ignore[attr-defined]
            continue
        pending += ast.iter_child_nodes(node)
        targets: set[str] = set()
        if isinstance(node, ast.Import):
            targets = {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                for _ in range(node.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}" if base else package
            for alias in node.names:
                name = f"{base}.{alias.name}"
                targets |= {name} if name in known else {base} & known.keys()
        if targets:
            found.append(targets)
    return found


def components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components, each after those that it leads to (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges[node]):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            at = stack.index(node)
            result.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return result


def folded(module: str, package: str) -> str:
    """Return the child of ``package`` that is or contains ``module``."""
    return ".".join(module.split(".")[: package.count(".") + 2])


def measure(name: str, known: dict[str, Path], *, type_checking: bool = True, fold: bool = False) -> Package:
    """Measure the package ``name``. Imports that leave it, or stay within one module, do not count."""
    inside = [module for module in known if module == name or module.startswith(f"{name}.")]
    node = {module: folded(module, name) if fold else module for module in inside}
    edges: dict[str, set[str]] = {each: set() for each in node.values()}
    lines = 0
    for module in inside:
        for named in imports_of(module, known[module], known, type_checking=type_checking):
            targets = {node[each] for each in named if each in node} - {node[module]}
            lines += bool(targets)
            edges[node[module]] |= targets
    used = set().union(*edges.values())
    empty = {m for m in edges if known[m].name == "__init__.py" and not edges[m] and m not in used}
    edges = {module: targets for module, targets in edges.items() if module not in empty}
    levels: dict[str, int] = {}
    cycles = []
    for component in components(edges):
        below = {target for module in component for target in edges[module]} - set(component)
        level = 1 + max((levels[target] for target in below), default=0)
        levels |= dict.fromkeys(component, level)
        if len(component) > 1:
            cycles.append(component)
    return Package(name, sorted(edges), lines, edges, levels, sorted(cycles, key=len, reverse=True))


def packages_of(known: dict[str, Path]) -> list[str]:
    """Return the packages below the root that have at least two modules."""
    packages = [m for m, path in known.items() if path.name == "__init__.py" and m != ROOT]
    return [name for name in packages if sum(m.startswith(f"{name}.") for m in known) > 1]


def main() -> int:
    """Print what the arguments request. Return 1 if a cycle is larger than the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("packages", nargs="*", help="packages by their dotted names; default: all of mainstem's")
    parser.add_argument(
        "--src", type=Path, default=DEFAULT_SOURCE, help="the directory that holds the package mainstem"
    )
    parser.add_argument(
        "--limit-cycle", type=int, metavar="N", help="exit with 1 where a cycle has more than N modules"
    )
    parser.add_argument("--run-time", action="store_true", help="leave out imports below `if TYPE_CHECKING`")
    parser.add_argument("--fold", action="store_true", help="take each subpackage as one module")
    parser.add_argument("--list", action="store_true", help="print each module with its level too")
    options = parser.parse_args()

    known = modules_of(options.src)
    too_large = 0
    for name in options.packages or packages_of(known):
        package = measure(name, known, type_checking=not options.run_time, fold=options.fold)
        print(package.summary())
        for cycle in package.cycles:
            too_large += options.limit_cycle is not None and len(cycle) > options.limit_cycle
            print(f"  cycle of {len(cycle)}: {', '.join(m.removeprefix(name + '.') for m in cycle)}")
        if options.list:
            for module in sorted(package.modules, key=lambda m: (-package.levels[m], m)):
                print(f"  {package.levels[module]:3} {module}")
    if too_large:
        print(f"{too_large} cycles have more than {options.limit_cycle} modules", file=sys.stderr)
    return int(too_large > 0)


if __name__ == "__main__":
    sys.exit(main())
