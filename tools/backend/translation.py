"""Translation of modules with Cython.

It is not in setup.py, because a build backend runs setup.py under no name that other processes could import.
"""

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
    # An appender keeps the space that it claimed in its own fields, and closing sets pointers to null. If threads share an
    # object, only the interpreter's lock protects these. So a free-threaded interpreter enables its lock again.
    "freethreading_compatible": False,
}


def translate(source: str) -> list[str] | None:
    """Return the C file of a module, regenerated if it is older than its dependencies; None if Cython rejects the module."""
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
    """Return the module name for a path below ``src``."""
    return ".".join(Path(source).relative_to("src").with_suffix("").parts)
