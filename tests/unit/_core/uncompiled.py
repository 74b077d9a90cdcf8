"""The compiled modules loaded again as plain Python: ``load("log.columns")`` mirrors ``mainstem._core.log.columns``.

They form a separate package, ``mainstem_uncompiled``, so that uncompiled classes meet only uncompiled classes.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mainstem._core

if TYPE_CHECKING:
    from types import CodeType, ModuleType

PACKAGE = "mainstem_uncompiled"
DIRECTORY = mainstem._core.__path__[0]


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # Always compile: the bytecode cached beside the source belongs to the package under its original name.
        source = self.get_data(self.path).replace(b"mainstem._core", PACKAGE.encode())
        return self.source_to_code(source, self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        source = Path(DIRECTORY, *fullname.split(".")[1:])
        is_package = source.is_dir()
        file = str(source / "__init__.py" if is_package else source.with_suffix(".py"))
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=_Loader(fullname, file),
            submodule_search_locations=[str(source)] if is_package else None,
        )


def load(name: str) -> ModuleType:
    """Return the module ``mainstem._core.NAME``, uncompiled."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return importlib.import_module(f"{PACKAGE}.{name}")
