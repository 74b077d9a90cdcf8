"""What Cython does with a module: not in setup.py, which a build backend runs under no name that processes could import."""

from __future__ import annotations

from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Errors import CompileError
from setuptools import Extension

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    # An appender keeps what it claimed in its own fields, and closing sets pointers to null: of threads that share an object only
    # the interpreter's lock keeps one from the other's. So a free-threaded interpreter takes its lock back.
    "freethreading_compatible": False,
}


def translate(source: str) -> list[str] | None:
    """The C file of a module, written anew where it is older than what it depends on; None where Cython refuses the module."""
    try:
        [extension] = cythonize(
            [Extension(module_name(source), [source])],
            quiet=True,
            build_dir="build/cython",
            include_path=["src"],
            compiler_directives=DIRECTIVES,
        )
    except CompileError:
        return None
    return list(extension.sources)


def module_name(source: str) -> str:
    """The module that a path below ``src`` is."""
    return ".".join(Path(source).relative_to("src").with_suffix("").parts)
