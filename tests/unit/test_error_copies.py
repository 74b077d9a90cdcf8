"""Errors survive pickle and copy: multiprocessing, concurrent.futures and Spark hang or fail if an exception does not."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mainstem
from mainstem import errors
from mainstem.errors import ArchiveError, ArchiveErrorCode, ConnectionLost, Delivery, MainstemError, StoreError
from mainstem.recording import Recorder, open_recording

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_TRIPS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "pickle 2": lambda error: pickle.loads(pickle.dumps(error, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def all_error_classes() -> list[type[MainstemError]]:
    """Return the base class and every subclass in the package. Only modules that define one are imported."""
    root = Path(mainstem.__file__).parent
    bases = "|".join(errors.__all__)
    for path in root.rglob("*.py"):
        if re.search(rf"^class \w+\(({bases})\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(".".join(("mainstem", *path.relative_to(root).with_suffix("").parts)))
    found, unseen = [], [MainstemError]
    while unseen:
        kind = unseen.pop()
        found.append(kind)
        unseen += kind.__subclasses__()
    return sorted((kind for kind in found if kind.__module__.startswith("mainstem.")), key=str)


def example(kind: type[MainstemError]) -> MainstemError:
    """Return an error of a class with a distinct value in each argument."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    takes = list(inspect.signature(kind.__init__).parameters.values())[1:]
    for number, parameter in enumerate(takes, 3):
        annotation = str(parameter.annotation)
        value: Any = f"text {number}"
        if "Delivery" in annotation:
            value = Delivery.PARTIAL
        elif "ArchiveErrorCode" in annotation:
            value = ArchiveErrorCode.MAX_REPLAYS
        elif "int" in annotation or "float" in annotation:
            value = number
        elif "bytes" in annotation:
            value = b"%d" % number
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = value
        elif parameter.kind is not parameter.VAR_KEYWORD:  # *args of the built-in exceptions take one text
            positional.append(value)
    error = kind(*positional, **keywords)
    error.unsent = 5
    error.add_note("while it was sent")
    return error


def facts(error: BaseException) -> dict[str, Any]:
    """Return everything that a user can read from an error, except its traceback."""
    names = {name for name in dir(error) if not name.startswith("_")} | {"__notes__"}
    values = {name: getattr(error, name, None) for name in names if not callable(getattr(error, name, None))}
    return {"type": type(error), "text": str(error), "args": error.args} | values


@pytest.mark.parametrize("how", ROUND_TRIPS)
def test_every_error_keeps_its_type_text_attributes_and_notes(how: str) -> None:
    classes = all_error_classes()
    assert len(classes) > len(errors.__all__) - 3  # without three enumerations, with those of other modules
    for kind in classes:
        error = example(kind)
        assert facts(ROUND_TRIPS[how](error)) == facts(error), kind


def test_an_error_restored_from_its_arguments_has_every_attribute() -> None:
    for kind in (each for each in all_error_classes() if each.__module__ == errors.__name__):
        error = example(kind)
        restored = kind.restored(error.args)
        assert facts(restored).keys() == facts(error).keys(), kind
        assert str(restored) == str(error), kind


def chained() -> StoreError:
    """Return an error with a cause that has a cause, all with attributes."""
    try:
        try:
            raise ArchiveError("full", code=ArchiveErrorCode.STORAGE_SPACE)
        except ArchiveError as error:
            raise ConnectionLost("cut", position=128) from error
    except ConnectionLost as error:
        try:
            raise StoreError("s3://a", "gone") from error
        except StoreError as last:
            return last


@pytest.mark.parametrize("how", ROUND_TRIPS)
def test_causes_are_kept(how: str) -> None:
    again = ROUND_TRIPS[how](chained())
    lost = again.__cause__
    assert (again.url, str(again), again.__suppress_context__) == ("s3://a", "s3://a: gone", True)
    assert isinstance(lost, ConnectionLost)
    assert (lost.position, again.__context__) == (128, lost)
    assert isinstance(lost.__cause__, ArchiveError)
    assert lost.__cause__.code is ArchiveErrorCode.STORAGE_SPACE


class NeedsKeyword(Exception):
    """Of another library: it can be pickled, but not unpickled."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


class HoldsLock(Exception):
    """Of another library: it cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


@pytest.mark.parametrize("cause", [NeedsKeyword(why="x"), HoldsLock()])
def test_a_cause_that_cannot_be_copied_does_not_spoil_the_error(cause: Exception) -> None:
    error = StoreError("s3://a", "gone")
    error.__cause__ = cause
    assert facts(pickle.loads(pickle.dumps(error))) == facts(error)
    assert copy.copy(error).__cause__ is cause
    assert str(copy.deepcopy(error).__cause__) == str(cause)


def raise_example(name: str) -> None:
    """Raise the example of an error in a worker process."""
    raise example(getattr(errors, name))


@pytest.mark.long
def test_errors_of_worker_processes_reach_the_caller() -> None:
    names = [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    names = [name for name in names if issubclass(getattr(errors, name), MainstemError)]
    context = get_context("spawn")
    with context.Pool(1) as pool:
        for name in names:
            with pytest.raises(MainstemError) as caught:
                pool.apply(raise_example, (name,))
            assert facts(caught.value) == facts(example(getattr(errors, name)))
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        for name in names:
            with pytest.raises(MainstemError) as caught:
                executor.submit(raise_example, name).result()
            assert facts(caught.value) == facts(example(getattr(errors, name)))


def test_errors_are_also_the_built_in_errors_that_users_expect(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such directory") as missing:
        open_recording(tmp_path / "nowhere", 0)
    assert isinstance(missing.value, errors.RecordingError)
    with Recorder(tmp_path, segment_length=1 << 16):
        pass
    with pytest.raises(FileNotFoundError, match="has no recording 7"):
        open_recording(tmp_path, 7)
    for lost in (ConnectionLost("cut", position=3), pickle.loads(pickle.dumps(ConnectionLost("cut", position=3)))):
        assert isinstance(lost, ConnectionError)
        assert (str(lost), lost.position) == ("cut", 3)
