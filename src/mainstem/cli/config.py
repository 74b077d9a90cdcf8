"""Show settings: their values, where each comes from, and what each means."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from mainstem._internal.units import parse_pairs
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.archive.server.settings import ArchiveSettings
from mainstem.cli._options import App, ConfigOption, JsonOption, SetOption, argument, flag
from mainstem.cli._output import Column, console, print_json, print_table, table_of
from mainstem.errors import ConfigurationError
from mainstem.settings import Source

if TYPE_CHECKING:
    from mainstem.settings import Explanation, Settings

app = App(__doc__)
COLUMNS = (
    Column("name"),
    Column("value", "wrap", show=lambda row: row.value or "(unset)"),
    Column("origin", heading="from"),
)
KINDS: dict[str, type[Settings]] = {"driver": DriverSettings, "client": ClientSettings, "archive": ArchiveSettings}


@app.command()
def show(
    which: Annotated[str, argument("driver, client, archive, or all.")] = "all",
    config: ConfigOption = "",
    set_: SetOption = None,
    changed: Annotated[bool, flag("--changed", "Only those that are not the default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List every setting with its value and where the value comes from (default, TOML, environment, --set).

    Example: mainstem config show driver --changed --set mtu_length=4k
    """
    chosen = _chosen(which)
    assigned = _set_values(chosen, set_)
    tables = {
        name: [e for e in loaded.explain_all() if not changed or e.source is not Source.DEFAULT]
        for name, loaded in ((name, _load(name, config, assigned)) for name in chosen)
    }
    if as_json:
        print_json({name: [asdict(e) for e in rows] for name, rows in tables.items()})
        return
    out = console()
    for name, rows in tables.items():
        out.print(Text(f"[{name}]", style="bold"))
        styles = ["" if row.source is Source.DEFAULT else "bold" for row in rows]
        print_table(out, table_of(COLUMNS, rows, styles))
        out.print()


@app.command()
def explain(
    name: Annotated[str, argument("A setting, by its name or its environment variable.")],
    config: ConfigOption = "",
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain what one setting means, what it accepts, its default, its value and where the value comes from.

    Example: mainstem config explain mtu_length
    """
    explanations: dict[str, Explanation] = {}
    refusals = []
    assigned = _set_values(list(KINDS), set_)
    for kind in KINDS:
        try:
            explanations[kind] = _load(kind, config, assigned).explain(name)
        except ConfigurationError as error:
            refusals.append(error)
    if not explanations:
        raise refusals[0]
    if as_json:
        print_json({kind: asdict(e) for kind, e in explanations.items()})
        return
    out = console()
    for kind, explanation in explanations.items():
        out.print(Text(f"[{kind}]", style="bold"))
        out.print(Text(str(explanation)))


def _chosen(which: str) -> list[str]:
    if which == "all":
        return list(KINDS)
    if which not in KINDS:
        raise ConfigurationError(f"{which!r} has no settings; choose one of {', '.join(KINDS)}, all")
    return [which]


def _set_values(kinds: list[str], words: list[str] | None) -> dict[str, str]:
    """Return the values of ``--set``. An unknown name is rejected, with similar names as a hint."""
    assigned = parse_pairs(words, name="--set")
    for name, value in assigned.items():
        if not any(KINDS[kind].has(name) for kind in kinds):
            KINDS[kinds[0]].load(environ={}, options={"--set": {name: value}})
    return assigned


def _load(kind: str, config: str, assigned: dict[str, str]) -> Settings:
    own = {name: value for name, value in assigned.items() if KINDS[kind].has(name)}
    return KINDS[kind].load(toml=config or None, options={"--set": own})
