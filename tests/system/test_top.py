"""`mainstem top` over a real driver, operated by textual's pilot at the sizes of a small and a large terminal."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("textual", reason="textual is not installed")

from tests.support.case_selection import long_after
from tests.support.stalled_stream import stalled_stream
from tests.support.waiting import STALL_S, StallTimeout
from textual.widgets import Input, Static, TabbedContent

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.cli._top_app import SORTS, Page, TopApp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.pilot import Pilot

pytestmark = [pytest.mark.system]

SIZES = [(80, 24), (200, 50)]
CHANNEL = "aeron:ipc?term-length=64k|alias=[red]tides"
# A refresh takes some hundredths of a second to draw. With shorter pauses, the screen would do nothing else.
REFRESH = 0.3
OFTEN = 0.05


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    """Run a driver that has a stream whose subscriber does not read, a stream without a subscriber, and an error."""
    with stalled_stream(CHANNEL, port=9401) as (directory, client):
        with pytest.raises(Exception, match="unknown host"):
            client.add_publication("aeron:udp?endpoint=nowhere.invalid:1", 5)
        yield directory


async def until(pilot: Pilot[None], condition: Callable[[], Any]) -> Any:
    stall = StallTimeout("what the screen is to show")
    while not (result := condition()):
        stall.check()
        await pilot.pause(OFTEN)
    return result


def screen(pilot: Pilot[None]) -> str:
    """Extract the screen's text from the screenshot that textual takes."""
    picture = pilot.app.export_screenshot()
    return html.unescape(re.sub(r"<style.*?</style>|<[^>]*>", "", picture, flags=re.DOTALL)).replace("\xa0", " ")


def rows(app: TopApp, name: str = "streams") -> list[list[str]]:
    table = app.query_one(f"#{name}")
    return [[str(cell) for cell in table.get_row_at(i)] for i in range(table.row_count)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_drivers_streams_and_clients_are_shown(directory: str, size: tuple[int, int]) -> None:
    app = TopApp([directory], interval=REFRESH)
    async with app.run_test(size=size) as pilot:
        # A client's name arrives with its heartbeat, which can come after its stream.
        await until(pilot, lambda: [(row[8], row[9]) for row in rows(app)] == [("orders", "prices"), ("orders", "-")])
        held, free = rows(app)
        assert (held[0], held[2], held[9], held[10]) == ("7", "████████", "prices", CHANNEL)
        assert (free[0], free[2].strip(), free[9]) == ("1001", "", "-")
        text = await until(pilot, lambda: "quit" in screen(pilot) and screen(pilot))
        for word in (
            directory[:20],
            f"pid {os.getpid()}",
            "out",
            "NAK",
            "lost",
            "2 clients",
            "2 streams",
            "Errors",
            "quit",
        ):
            assert word in text
        assert [row[0] for row in rows(app, "clients")] == ["orders", "prices"]
        assert "nowhere.invalid" in rows(app, "errors")[0][2]
        for tab in ("tab-clients", "tab-errors"):
            app.query_one(TabbedContent).active = tab
            await pilot.pause()
        # 80 columns end in the middle of the name.
        assert "nowhere" in screen(pilot)


@pytest.mark.parametrize("size", long_after(1, [(size,) for size in SIZES]), ids=str)
async def test_a_stream_page_opens_with_the_cause_of_its_stall(directory: str, size: tuple[int, int]) -> None:
    app = TopApp([directory], interval=REFRESH)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(rows(app)) == 2)
        await pilot.press("enter")
        page = await until(pilot, lambda: isinstance(app.screen, Page) and app.screen.query_one("#page", Static))
        await until(pilot, lambda: "SLOW SUBSCRIBER" in str(page.content))
        text = await until(pilot, lambda: "stream 7" in screen(pilot) and screen(pilot))
        assert "publisher" in text
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Page))
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys" in screen(pilot))
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, Page))


@pytest.mark.long
async def test_keys_sort_reverse_filter_and_pause(directory: str) -> None:
    app = TopApp([directory], interval=REFRESH)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(rows(app)) == 2)
        for name in (*list(SORTS)[1:], "lag"):
            await pilot.press("s")
            await until(pilot, lambda name=name: f"by {name}" in screen(pilot))
        await pilot.press("r")
        await until(pilot, lambda: [row[0] for row in rows(app)] == ["1001", "7"])
        await pilot.press("r", "down")
        await until(pilot, lambda: app.table("streams").cursor_row == 1)
        await pilot.press("r")  # the cursor stays on its stream
        await until(pilot, lambda: app.table("streams").cursor_row == 0)
        await pilot.press("slash", *"9401")
        await until(pilot, lambda: [row[0] for row in rows(app)] == ["1001"])
        await pilot.press("enter")
        assert app.focused is app.table("streams")
        await pilot.press("escape")
        await until(pilot, lambda: len(rows(app)) == 2)
        assert app.query_one("#filter", Input).value == ""
        await pilot.press("space")
        await until(pilot, lambda: "paused" in screen(pilot))
        samples = {app.states[0].epoch_ms}
        for _ in range(4):
            await pilot.pause(REFRESH)
            samples.add(app.states[0].epoch_ms)
        assert len(samples) <= 2  # at most the sample that was in progress is new
        epoch_ms = app.states[0].epoch_ms
        await pilot.press("space")
        await until(pilot, lambda: app.states[0].epoch_ms > epoch_ms)


async def test_a_driver_that_restarts_is_shown_in_each_state() -> None:
    location = f"/dev/shm/mainstem-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    app = TopApp([location], interval=REFRESH)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "no media driver in" in screen(pilot))
        with MediaDriver.launch(location, threads=True, dir_delete_on_shutdown=True), Aeron.connect(location) as aeron:
            aeron.add_publication("aeron:ipc", 5)
            await until(pilot, lambda: [row[0] for row in rows(app)] == ["5"])
        await until(pilot, lambda: not app.states[0].is_alive)


def test_top_needs_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-m", "mainstem", "top"], capture_output=True, text=True, timeout=STALL_S)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "top needs a terminal" in done.stderr


def test_without_textual_the_extra_is_named() -> None:
    code = "import sys; sys.modules['textual'] = None; from mainstem import cli; cli.main(['top'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=STALL_S)
    assert (done.returncode, "mainstem[cli]" in done.stderr) == (1, True)
