"""Wrong hosts and ports of every protocol raise an error of Mainstem, never another exception."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mainstem import MediaDriver, aqueduct, bymux, duologue, jmux
from mainstem.errors import ConfigurationError, MainstemError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

LONG_LABEL = "a" * 64 + ".example"
HOSTS = ("a..b", LONG_LABEL, "host name", "[::1", "::1::2", "256.1.1.1", "\0", "a%25b", "nowhere.invalid")
PORTS = (70_000, -1, 65_536)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the directory of a driver, which runs as long as the tests."""
    with MediaDriver.launch(directory=str(tmp_path_factory.mktemp("driver") / "aeron")) as driver:
        yield driver.directory


@pytest.mark.parametrize("family", [bymux, jmux, aqueduct, duologue], ids=lambda each: each.__name__)
@pytest.mark.parametrize("call", ["connect", "serve"])
def test_an_invalid_address_raises_a_mainstem_error(family: ModuleType, call: str, directory: str) -> None:
    function: Any = getattr(family, call)
    arguments: tuple[Any, ...] = () if call == "connect" else (lambda *_: None,)
    if family is duologue and call == "connect":
        # Without a directory, each call that does not know the host to be wrong starts a driver to look it up.
        function = partial(function, directory=directory)
    for host, port in (*((host, 9) for host in HOSTS), *(("127.0.0.1", port) for port in PORTS)):
        with pytest.raises(MainstemError) as error:
            function(*arguments, host, port)
        text = str(error.value)
        assert text
        assert "Traceback" not in text
        assert "idna" not in text


def test_a_duologue_starts_no_driver_for_an_impossible_host() -> None:
    with pytest.raises(ConfigurationError, match=r"^host='a\.\.b': each part between dots must have"):
        duologue.connect("a..b")
