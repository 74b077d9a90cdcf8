"""Extension modules and the description for the package index; everything else is in pyproject.toml.

Cython translates and the C compiler compiles each module before the next, in parallel on all cores; the name of a module is printed
when its turn comes. The compiler is the system's, or that of the ziglang wheel (``tools/backend/compiler.py``). With
MAINSTEM_COMPILE=no there are no extension modules: ``tools/setup.py`` compiles them in place by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import sys
import threading
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError as BuildError

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools" / "backend"))
import compiler  # next to the build backend, which is not installed
import core_stubs
from translation import is_of_another_cython, module_name, newest_source, translate

CORE = Path("src/mainstem/_core")
core_stubs.write()
MODULES = [path for path in CORE.rglob("*.py") if path.stem not in core_stubs.NOT_COMPILED]
MODULES.sort(
    key=lambda path: (-path.stat().st_size, path)
)  # the longest first, so that it does not keep one core busy at the end
if os.environ.get("MAINSTEM_COMPILE") == "no":
    MODULES = []

# Additional flags for a sanitizer build (tools/sanitize.py), which has its own tree.
FLAGS = shlex.split(os.environ.get("MAINSTEM_CFLAGS", ""))


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Build(build_ext):
    """Builds modules that are older than their sources.

    Cython holds the interpreter's lock, so it runs in separate processes. These are forked whatever Python's default is, because a
    spawned process would run this file again, and they are forked before the threads start.
    """

    translators: Pool
    current: int = 0

    def run(self) -> None:
        """Choose the compiler before setuptools does."""
        if self.extensions and (said := compiler.choose()):
            sys.stderr.write(f"mainstem: {said}\n")
        super().run()

    def build_extensions(self) -> None:
        """Build the modules that need it, each in a thread that waits for Cython and for the compiler."""
        modules = self.extensions
        self.extensions = [module for module in modules if self.is_outdated(module)]
        self.lock = threading.Lock()
        self.parallel = min(self.parallel or processors(), max(len(self.extensions), 1))
        try:
            if self.extensions:
                with multiprocessing.get_context("fork").Pool(self.parallel) as self.translators:
                    super().build_extensions()
        finally:
            self.extensions = modules

    def is_outdated(self, module: Extension) -> bool:
        """Return whether the module, or anything it imports, has changed since it was built."""
        built = Path(self.get_ext_fullpath(module.name))
        return (
            bool(self.force)
            or not built.exists()
            or built.stat().st_mtime < newest_source(module.sources[0])
            or is_of_another_cython(module.sources[0])
        )

    def build_extension(self, module: Extension) -> None:
        """Translate and compile one module."""
        with self.lock:
            self.current += 1
            sys.stderr.write(f"mainstem: compiling {self.current} of {len(self.extensions)}: {module.name}\n")
            sys.stderr.flush()
        sources = self.translators.apply(translate, (module.sources[0],))
        if sources is None:
            raise BuildError(f"Cython refuses {module.sources[0]}")
        module.sources = sources
        super().build_extension(module)


def description() -> str:
    """Return README.md for a package index, where relative links do not work.

    They become absolute below the URL ``Source`` in pyproject.toml, or plain text if there is no such URL.
    """
    source = tomllib.loads(Path("pyproject.toml").read_text())["project"].get("urls", {}).get("Source", "")
    if source:
        return re.sub(r"\]\((?!\w+:|#)", f"]({source}/blob/main/", Path("README.md").read_text())
    without_images = re.sub(r"!\[[^]]*\]\((?!\w+:)[^)]*\)\n*", "", Path("README.md").read_text())
    return re.sub(r"\[([^]]*)\]\((?!\w+:|#)[^)]*\)", r"\1", without_images)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": Build},
    ext_modules=[
        Extension(
            module_name(str(path)),
            [str(path)],
            extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing", "-Wno-unused-function", *FLAGS],
            extra_link_args=FLAGS,
            define_macros=[("_GNU_SOURCE", None)],
        )
        for path in MODULES
    ],
)
