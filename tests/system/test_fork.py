"""A child created by ``os.fork`` does not disturb its parent's clients and drivers, whatever it does with its copies of them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

PARENT = """
import os, sys, time
import mainstem

driver = mainstem.MediaDriver.launch({directory!r}, threads={threads}, dir_delete_on_shutdown=True)
aeron = mainstem.Aeron.connect(driver.directory)
publication = aeron.add_publication("aeron:ipc", 1)
subscription = aeron.add_subscription("aeron:ipc", 1)
pending = aeron.async_add_publication("aeron:ipc", 2)


def child():
{child}


if os.fork() == 0:
    child()
    sys.exit(7)  # an ordinary end, with finalisers
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
publication.send(b"still here", timeout=240)
print(next(subscription.messages(timeout=240)).decode())
aeron.add_counter(1001, "the driver still knows this client").close()
aeron.close()
driver.close()
"""

CHILDREN = {
    "ends": "    pass",
    "drops": "    global aeron, publication, subscription, driver\n    del aeron, publication, subscription, driver",
    "closes": "    with driver, aeron, publication, subscription:\n        pass",
    "uses": """
    for use in (
        lambda: aeron.add_publication("aeron:ipc", 3),
        lambda: publication.send(b"from the child"),
        lambda: list(subscription.messages()),
        lambda: pending.wait(),
    ):
        try:
            use()
        except mainstem.ClosedError as error:
            assert "after the fork" in str(error), error
        else:
            raise SystemExit(1)
    assert publication.closed and subscription.closed and aeron.closed
    """,
    "connects": """
    with mainstem.Aeron.connect({directory!r}) as own:
        own.add_publication("aeron:ipc", 5).close()
    """,
}


@pytest.mark.parametrize(
    ("threads", "name"), [*((False, name) for name in CHILDREN), (True, "drops"), (True, "closes"), (True, "connects")]
)
def test_a_forked_child_closes_nothing_of_its_parent(threads: bool, name: str, tmp_path: Path) -> None:
    directory = str(tmp_path / "driver")
    child = CHILDREN[name].replace("{directory!r}", repr(directory))
    code = PARENT.replace("{child}", child).format(directory=directory, threads=threads)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")
    assert not os.path.exists(directory)
