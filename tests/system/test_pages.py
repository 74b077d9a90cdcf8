"""The pages that readers follow step by step: every block of them runs, in order, and prints what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from tests.support.captures import ETHERNET, data_frame, ip, link, nak_frame, pcap, udp
from tests.support.pages import ROOT, Reader, command_lines

from mainstem import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.long]

DOCS = ROOT / "docs"
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's, wherever typer has it from
FOLLOWED = sorted(page for folder in ("tutorial", "how-to", "coming-from") for page in (DOCS / folder).glob("*.md"))


def capture_of_a_loss() -> bytes:
    """Three frames of a stream, of which the second was lost, asked for, and sent again."""
    sent = [data_frame(at=at, payload=bytes(64)) for at in (0, 96, 192)]
    here, there = {"source": 40001, "to": 20361}, {"source": 20361, "to": 40001}
    request = ip(udp(nak_frame(at=96, length=96), **there), source="10.0.0.2", to="10.0.0.1")
    data = [ip(udp(frame, **here)) for frame in sent]
    return pcap([link(packet, ETHERNET) for packet in (data[0], data[2], request, data[1])])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_a_page_runs_as_it_stands(page: Path, reader: Reader) -> None:
    if page.stem == "bad-day":  # the page says that its capture is one of a loss
        (reader.directory / "bad-day.pcap").write_bytes(capture_of_a_loss())
    reader.read(page.read_text())


@pytest.mark.timeout(300)
def test_every_block_of_the_readme_runs_as_it_stands(reader: Reader) -> None:
    reader.read((ROOT / "README.md").read_text())


@pytest.mark.timeout(120)
def test_every_command_on_every_page_is_one_that_there_is() -> None:
    """Commands, options and the number of arguments, also of the pages and blocks that are not run."""
    wrong = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for words in command_lines(page.read_text()):
            try:
                parse_command(words)
            except UsageError as error:
                wrong.append(f"{page.relative_to(ROOT)}: mainstem {' '.join(words)}: {error}")
    assert wrong == [], "\n".join(wrong)


def test_a_command_that_there_is_not_is_noticed() -> None:
    page = "```sh\nmainstem record aeron:ipc --stream 1 --out x --no-such-option\n```\n"
    (words,) = command_lines(page)
    with pytest.raises(UsageError):
        parse_command(words)


def parse_command(words: list[str]) -> None:
    """Raises where the command line refuses the words, without running them."""
    root = typer.main.get_command(cli.build(words))
    command, name, rest = root, "mainstem", words
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise UsageError(f"no command {rest[0]!r}")
        name, command, rest = rest[0], command.commands[rest[0]], rest[1:]
    if "--help" in rest or name == "mainstem" or hasattr(command, "commands"):
        return
    command.make_context(name, list(rest))
