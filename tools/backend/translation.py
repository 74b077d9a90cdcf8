"""Translation of modules with Cython.

It is not in setup.py, because a build backend runs setup.py under no name that other processes could import.
"""

from __future__ import annotations

from pathlib import Path

from Cython import __version__
from Cython.Build import cythonize
from Cython.Build.Dependencies import create_dependency_tree
from Cython.Compiler.Errors import CompileError
from Cython.Compiler.Main import Context
from Cython.Compiler.Options import CompilationOptions
from setuptools import Extension

BUILD = Path("build/cython")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    # An appender keeps the space that it claimed in its own fields, and closing sets pointers to null. If threads share an
    # object, only the interpreter's lock protects these. So a free-threaded interpreter enables its lock again.
    "freethreading_compatible": False,
}


def newest_source(source: str) -> float:
    """Return when the module, or anything of ours that it imports, was changed last.

    What it imports from Cython is as new as the environment, and what was built in another one would be built again.
    """
    context = Context.from_options(CompilationOptions(include_path=["src"]))
    imported = create_dependency_tree(context, quiet=True).all_dependencies(source)  # parsed once in a process
    own = Path("src").resolve()
    return max(path.stat().st_mtime for path in map(Path, imported) if path.resolve().is_relative_to(own))


def translate(source: str) -> list[str] | None:
    """Return the C file of a module, translated again if it is older than its sources; None if Cython rejects the module.

    All versions of Python share it.
    """
    translated = _translated(source)
    if translated.exists() and translated.stat().st_mtime >= newest_source(source) and not is_of_another_cython(source):
        return [str(translated)]
    try:
        [extension] = cythonize(
            [Extension(module_name(source), [source])],
            quiet=True,
            force=True,
            build_dir=str(BUILD),
            include_path=["src"],
            compiler_directives=DIRECTIVES,
        )
    except CompileError:
        return None
    return list(extension.sources)


def is_of_another_cython(source: str) -> bool:
    """Return whether another version of Cython has translated the module."""
    try:
        with _translated(source).open() as file:
            return f"Cython {__version__} " not in file.readline()
    except FileNotFoundError:
        return False


def _translated(source: str) -> Path:
    return BUILD / Path(source).with_suffix(".c")


def module_name(source: str) -> str:
    """Return the module name for a path below ``src``."""
    return ".".join(Path(source).relative_to("src").with_suffix("").parts)
