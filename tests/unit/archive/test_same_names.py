"""Both variants of the archive client have the same names, arguments and defaults."""

from __future__ import annotations

import inspect
from typing import Any

from mainstem import archive
from mainstem.archive import aio


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_both_variants_have_the_same_names_and_arguments() -> None:
    assert set(archive.__all__) - {"aio"} == set(aio.__all__)
    assert arguments(archive.connect) == arguments(aio.connect)
    names = {name for name in dir(archive.Client) if not name.startswith("_")}
    assert names == {name for name in dir(aio.Client) if not name.startswith("_")}
    for name in names:
        pair = [inspect.getattr_static(kind, name) for kind in (archive.Client, aio.Client)]
        if inspect.isfunction(pair[0]):
            assert arguments(pair[0]) == arguments(pair[1]), name
