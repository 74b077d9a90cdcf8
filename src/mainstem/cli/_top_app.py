"""The screens of `mainstem top`.

One task samples all drivers every `interval` seconds, in a thread. The event loop lays out the results. Each sample refills the
tables, and the cursor stays on its stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.printable import printable
from mainstem.aeron.tools.overview import DriverMonitor
from mainstem.cli._output import clock_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.aeron.tools.archives import ArchiveState
    from mainstem.aeron.tools.overview import Overview, StreamState

LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"  # for sparklines and bars
MAX_ROWS = 1000  # in a table: filling more would take longer than an interval
BAR = 8
SPARK = 10
WIDE = 120  # columns of a terminal that has room for full sparklines
FULL, NEARLY_FULL = 0.95, 0.5  # shares of the window from which a lag is red or yellow
COLUMNS = ("stream", "session", "lag", "", "bytes/s", "", "NAK/s", "lost", "from", "to", "channel")
SORTS: dict[str, Callable[[StreamState], Any]] = {
    "lag": lambda stream: (-stream.fullness, -stream.lag),
    "rate": lambda stream: -stream.rate,
    "NAKs": lambda stream: (-stream.nak_rate, -stream.naks),
    "lost": lambda stream: -stream.lost,
    "stream": lambda stream: (stream.stream_id, stream.session_id),
    "client": lambda stream: (stream.publisher, stream.subscribers),
    "channel": lambda stream: stream.channel,
}
HELP = """\
Keys

  s         sort by the next column: lag, rate, NAKs, lost, stream, client, channel
  r         reverse the order
  /         filter by any text in a stream: id, channel, client; Enter keeps it, Escape removes it
  Enter     open the stream under the cursor: its stages, and why it is stalled
  Tab       to the tabs; arrows change between streams, clients and errors
  space     pause, and go on
  q         quit

Lag: the bytes between a stream's first stage and its last, as a share of its window. Red: full, publishers wait.
The small bars are the last samples, each scaled to its own largest value. Lost: bytes of gaps, of the loss report.
"""


def matches(stream: StreamState, text: str) -> bool:
    """Return whether one of a stream's columns contains the text."""
    columns = (str(stream.stream_id), str(stream.session_id), stream.channel, stream.publisher, *stream.subscribers)
    return any(text.lower() in column.lower() for column in columns)


def lag_style(share: float) -> str:
    """Return the color of a lag."""
    return "red" if share >= FULL else "yellow" if share >= NEARLY_FULL else "green"


def archive_line(archive: ArchiveState) -> Text:
    """Return a line about an archive's current activity."""
    figures = (
        (archive.recordings, "recording"),
        (archive.replays, "replay"),
        (archive.control_sessions, "client"),
        (archive.errors, "error"),
    )
    *others, errors = (f"{value:,} {name}{'' if value == 1 else 's'}" for value, name in figures)
    line = Text("  ".join([f"\n  archive {archive.archive_id}", *others, ""]))
    return line.append(errors, "red bold" if archive.errors else "")


class Page(ModalScreen[None]):
    """A page of text on top of the tables. Any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,question_mark", "dismiss", "close")]
    CSS = """
    Page { align: center middle; }
    Page > VerticalScroll { width: 96%; height: 90%; border: round $primary; background: $surface; padding: 0 1; }
    """

    def __init__(self, content: Callable[[], Text], interval: float = 0) -> None:
        super().__init__()
        self._content = content
        self._interval = interval

    def compose(self) -> ComposeResult:
        """Show the text in a scrollable box."""
        yield VerticalScroll(Static(self._content(), id="page"))

    def on_mount(self) -> None:
        """Refresh the text with each sample."""
        if self._interval:
            self.set_interval(self._interval, lambda: self.query_one("#page", Static).update(self._content()))


class TopApp(App[None]):
    """The application: drivers above; streams, clients and errors below."""

    TITLE = "mainstem top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("space", "pause", "pause"),
        Binding("question_mark", "help", "keys", key_display="?"),
        Binding("escape", "no_filter", show=False),
    ]
    CSS = """
    Screen { overflow: hidden; }
    #drivers { height: auto; max-height: 50%; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; }
    #state { height: 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    """

    def __init__(self, directories: list[str], *, interval: float = 1.0, text: str = "") -> None:
        super().__init__()
        self.monitors = [DriverMonitor(directory) for directory in directories]
        self.states: list[Overview] = []
        self.shown: dict[str, tuple[DriverMonitor, StreamState]] = {}
        self.text = text
        self.sort = "lag"
        self.reverse = False
        self.paused = False
        self._interval = interval
        self._sampling = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """Lay out drivers, tabs, the filter and the keys."""
        yield Static(id="drivers")
        yield Static(id="state")
        with TabbedContent(id="tabs"):
            with TabPane("Streams", id="tab-streams"):
                yield DataTable(id="streams", cursor_type="row")
            with TabPane("Clients", id="tab-clients"):
                yield DataTable(id="clients", cursor_type="row")
            with TabPane("Errors", id="tab-errors"):
                yield DataTable(id="errors", cursor_type="row")
        yield Input(self.text, placeholder="text in a stream's id, channel or client", id="filter")
        yield Footer()

    async def on_mount(self) -> None:
        """Take the first sample, and schedule the others."""
        self.table("streams").add_columns(*COLUMNS)
        self.table("clients").add_columns("client", "id", "heartbeat", "publications", "subscriptions", "driver")
        self.table("errors").add_columns("count", "last", "error", "driver")
        self.table("streams").focus()
        await self.sample()
        self.set_interval(self._interval, self.sample)

    def on_unmount(self) -> None:
        """Unmap the directories."""
        for monitor in self.monitors:
            monitor.close()

    def table(self, name: str) -> DataTable[Any]:
        """Return a table by name."""
        return self.query_one(f"#{name}", DataTable)

    async def sample(self) -> None:
        """Take and show a sample of every driver, unless one is already being taken."""
        if self.paused or self._sampling.locked():
            return
        async with self._sampling:
            self.states = await asyncio.to_thread(self._sample_all)
        if self.is_running:
            self.show_all()

    def _sample_all(self) -> list[Overview]:
        clock = SYSTEM_CLOCK
        return [m.sample(epoch_ms=clock.epoch_ms(), now_ns=clock.monotonic_ns()) for m in self.monitors]

    # -- display -----------------------------------------------------------------------------------------------------

    def show_all(self) -> None:
        """Lay out the last samples."""
        drivers = [self._driver_text(*each) for each in zip(self.monitors, self.states, strict=True)]
        self.query_one("#drivers", Static).update(Text("\n").join(drivers))
        self._show_streams()
        self._show_clients()
        self._show_errors()

    def _driver_text(self, monitor: DriverMonitor, state: Overview) -> Text:
        if state.problem:
            return Text.assemble(("● ", "red"), printable(state.problem))
        beat = "no heartbeat" if state.heartbeat_age_ms is None else f"heartbeat {age(state.heartbeat_age_ms)} ago"
        line = Text.assemble(
            ("● ", "green" if state.is_alive else "red"),
            (printable(state.directory), "bold"),
            f"  pid {state.pid}  up {age(max(0, state.epoch_ms - state.start_ms))}  {beat}\n",
        )
        past = list(monitor.history)
        width = SPARK if self.size.width >= WIDE else SPARK // 2
        naks = [rates.naks_sent + rates.naks_received for rates in past]
        for name, value, unit, values in (
            ("out", state.rates.bytes_sent, "B", [rates.bytes_sent for rates in past]),
            ("in", state.rates.bytes_received, "B", [rates.bytes_received for rates in past]),
            ("NAK", state.rates.naks_sent + state.rates.naks_received, "", naks),
            ("lost", state.rates.lost, "B", [rates.lost for rates in past]),
        ):
            line.append(f"  {name} {short(value):>5}{unit}/s ")
            line.append(spark(values, width), "red" if name in ("NAK", "lost") and value else "cyan")
        line.append(f"\n  {len(state.clients)} clients  {len(state.streams)} streams  ")
        line.append(
            f"{state.error_count:,} error{'' if state.error_count == 1 else 's'}",
            "red bold" if state.error_count else "",
        )
        for archive in state.archives:
            line.append_text(archive_line(archive))
        for note in state.warnings[:2]:
            line.append(f"\n  ! {printable(note)}", "yellow")
        return line

    def _show_streams(self) -> None:
        chosen = [
            (monitor, stream)
            for monitor, state in zip(self.monitors, self.states, strict=True)
            for stream in state.streams
            if matches(stream, self.text)
        ]
        chosen.sort(key=lambda each: SORTS[self.sort](each[1]), reverse=self.reverse)
        total = sum(len(state.streams) for state in self.states)
        shown = chosen[:MAX_ROWS]
        parts = [f"{len(chosen)} of {total} streams, by {self.sort}{', reversed' if self.reverse else ''}"]
        if len(chosen) > MAX_ROWS:
            parts.append(f"the first {MAX_ROWS}")
        if self.text:
            parts.append(f"with “{printable(self.text)}”")
        if self.paused:
            parts.append("paused")
        self.query_one("#state", Static).update(Text("; ".join(parts)))
        self.shown = {f"{m.directory}/{'/'.join(map(str, s.name))}": (m, s) for m, s in shown}
        rows = {key: self._stream_row(*each) for key, each in self.shown.items()}
        self._fill("streams", rows)

    def _stream_row(self, monitor: DriverMonitor, stream: StreamState) -> list[Text | str]:
        past = monitor.stream_history.get(stream.name, ())
        color = lag_style(stream.fullness)
        naks = Text(short(stream.nak_rate), "red" if stream.nak_rate else "", justify="right")
        return [
            Text(str(stream.stream_id), justify="right"),
            Text(str(stream.session_id), justify="right"),
            Text(bar(stream.fullness, BAR), color),
            Text(short(stream.lag), color, justify="right"),
            Text(short(stream.rate), justify="right"),
            Text(spark([rate for rate, _naks, _lag in past], SPARK), "cyan"),
            naks,
            Text(short(stream.lost), "red" if stream.lost else "", justify="right"),
            Text(printable(stream.publisher)),
            Text(printable(", ".join(stream.subscribers)) or "-"),
            Text(printable(stream.channel)),
        ]

    def _show_clients(self) -> None:
        rows: dict[str, list[Text | str]] = {}
        for state in self.states:
            for client in state.clients:
                beat = "-" if client.heartbeat_age_ms is None else age(client.heartbeat_age_ms)
                figures = [str(client.client_id), beat, str(client.publications), str(client.subscriptions)]
                right = [Text(figure, justify="right") for figure in figures]
                cells = [Text(printable(client.name)), *right, Text(printable(state.directory))]
                rows[f"{state.directory}/{client.client_id}"] = list(cells)
        self._fill("clients", rows)

    def _show_errors(self) -> None:
        rows: dict[str, list[Text | str]] = {}
        for state in self.states:
            for number, error in enumerate(state.errors):
                rows[f"{state.directory}/{number}"] = [
                    Text(f"{error.observation_count:,}", justify="right"),
                    Text(clock_time(error.last_observation_ms)),
                    Text(printable(" ".join(error.text.split()))),
                    Text(printable(state.directory)),
                ]
        self._fill("errors", rows)

    def _fill(self, name: str, rows: dict[str, list[Text | str]]) -> None:
        """Refill a table. The cursor stays on its row or, if that is gone, in its place."""
        table = self.table(name)
        at, (x, y) = table.cursor_row, table.scroll_offset
        current = None
        if table.is_valid_row_index(at):
            current = table.coordinate_to_cell_key((at, 0)).row_key.value  # type: ignore[arg-type]
        table.clear()
        for key, cells in rows.items():
            table.add_row(*cells, key=key)
        if current in rows:
            at = list(rows).index(current)
        if rows:
            table.move_cursor(row=min(at, len(rows) - 1), scroll=False)
            table.scroll_to(x, y, animate=False)

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self._show_streams()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.reverse = not self.reverse
        self._show_streams()

    def action_pause(self) -> None:
        """Pause or resume sampling."""
        self.paused = not self.paused
        self._show_streams()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Page(lambda: Text(HELP)))

    def action_filter(self) -> None:
        """Open the filter line."""
        line = self.query_one("#filter", Input)
        line.styles.display = "block"
        line.focus()

    def action_no_filter(self) -> None:
        """Remove the filter."""
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).styles.display = "none"
        self.table("streams").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter while it is being typed."""
        self.text = event.value
        self._show_streams()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Keep the filter."""
        self._close_filter()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a stream."""
        key = event.row_key.value
        if event.data_table.id == "streams" and key in self.shown:
            self.push_screen(Page(lambda: self.stream_text(str(key)), self._interval))

    def stream_text(self, key: str) -> Text:
        """Return everything about one stream: its stages, and why it is stalled."""
        if key not in self.shown:
            return Text("the stream has ended, or the filter leaves it out")
        monitor, stream = self.shown[key]
        text = Text.assemble(
            (f"stream {stream.stream_id}  session {stream.session_id}\n", "bold"),
            f"{printable(stream.channel)}\n",
            f"{stream.position:,} bytes, {short(stream.rate)}B/s; {stream.naks:,} NAKs; {stream.lost:,} bytes lost\n\n",
        )
        window = f" of {stream.window:,}" if stream.window else ""
        text.append(
            f"{bar(stream.fullness, 4 * BAR)} {stream.lag:,}{window} bytes behind\n", lag_style(stream.fullness)
        )
        past = monitor.stream_history.get(stream.name, ())
        for number, name in enumerate(("rate", "NAKs", "lag")):
            text.append(f"{name:5} {spark([values[number] for values in past], 4 * BAR)}\n", "cyan")
        text.append(f"\n{'':10} {'position':>18} {'behind':>12} {'room':>12}  client\n", "bold")
        for stage in stream.stages:
            behind, room = ("-" if value is None else f"{value:,}" for value in (stage.backlog, stage.room))
            client = printable(stage.client.shown) if stage.client else ""
            text.append(f"{stage.kind:10} {stage.position:>18,} {behind:>12} {room:>12}  {client}\n")
        for diagnosis in monitor.why(stream.session_id, stream.stream_id):
            verdict = diagnosis.cause.upper() if diagnosis.is_stalled else "not stalled"
            text.append(f"\n{diagnosis.kind} {diagnosis.registration_id}: ")
            text.append(f"{verdict}: ", "red bold" if diagnosis.is_stalled else "green")
            text.append(f"{printable(diagnosis.sentence)}\n")
        return text


def spark(values: Iterable[float], width: int) -> str:
    """Format the last values as a line of bars, scaled to the largest; blank before the first value."""
    last = list(values)[-width:]
    top = max(last, default=0)
    if top <= 0:
        return (LEVELS[0] * len(last)).rjust(width)
    return "".join(LEVELS[min(len(LEVELS) - 1, int(value / top * len(LEVELS)))] for value in last).rjust(width)


def bar(share: float, width: int) -> str:
    """Format a share from 0 to 1 as a bar. Any share above 0 is visible."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def short(value: float) -> str:
    """Format a number in at most six characters, as in 12.3M."""
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.1f}{unit}" if abs(value) < 100 * factor else f"{value / factor:.0f}{unit}"
    return f"{value:.0f}"


def age(milliseconds: float) -> str:
    """Format an elapsed time in its largest units."""
    seconds = int(milliseconds / 1000)
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    for unit, length, below, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} {seconds % length // part} {below}"
    return f"{seconds} s"
