"""Every block of the pages that readers follow step by step runs, in order, and prints what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from tests.support.captures import loss
from tests.support.doc_runner import ROOT, Reader, blocks, command_lines

from mainstem import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.long]

DOCS = ROOT / "docs"
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's class, wherever typer gets it from
FOLLOWED = sorted(
    page for directory in ("tutorial", "how-to", "coming-from") for page in (DOCS / directory).glob("*.md")
)
# Pages to consult rather than follow. Their blocks also run, or say why they cannot.
# test_addressing_guide.py covers those of addressing.md.
CONSULTED = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page not in FOLLOWED and page.stem != "addressing" and "```" in page.read_text()
)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", [*FOLLOWED, *CONSULTED], ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_a_page_runs_as_it_stands(page: Path, reader: Reader) -> None:
    if page.stem == "bad-day":  # the page says that its capture contains a loss
        (reader.directory / "bad-day.pcap").write_bytes(loss())
    reader.read(page.read_text())


@pytest.mark.timeout(300)
def test_every_block_of_the_readme_runs_as_it_stands(reader: Reader) -> None:
    reader.read((ROOT / "README.md").read_text())


@pytest.mark.timeout(120)
def test_every_command_on_every_page_exists() -> None:
    """Check commands, options, and argument counts, including those on pages and in blocks that do not run."""
    wrong = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for words in command_lines(page.read_text()):
            try:
                parse_command(words)
            except UsageError as error:
                wrong.append(f"{page.relative_to(ROOT)}: mainstem {' '.join(words)}: {error}")
    assert wrong == [], "\n".join(wrong)


def test_every_block_of_every_page_has_a_language_that_says_what_it_is() -> None:
    """A block without a language would be neither run nor parsed."""
    nameless = [
        f"{page.relative_to(ROOT)}, line {block.line}"
        for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
        for block in blocks(page.read_text())
        if block.code and not block.language and block.how.partition(" ")[0] != "no;"
    ]
    assert nameless == []


def test_a_session_keeps_names_and_reports_what_a_block_raises(reader: Reader) -> None:
    block = "<!-- run: session tides -->\n```python\n{}\n```\n\n"
    reader.read(
        block.format("from pathlib import Path")
        + block.format("print(Path('tides').is_dir())")
        + "```text\nTrue\n```\n"
    )
    with pytest.raises(AssertionError, match=r"(?s)line 2: .*ZeroDivisionError"):
        reader.read("\n" + block.format("print(len(payloads) // 0)"))


def test_an_unknown_command_in_the_docs_is_noticed() -> None:
    page = "```sh\nmainstem record aeron:ipc --stream 1 --out x --no-such-option\n```\n"
    (words,) = command_lines(page)
    with pytest.raises(UsageError):
        parse_command(words)


def parse_command(words: list[str]) -> None:
    """Parse the words without running the command, and raise if the command line rejects them."""
    root = typer.main.get_command(cli.build(words))
    command, name, rest = root, "mainstem", words
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise UsageError(f"no command {rest[0]!r}")
        name, command, rest = rest[0], command.commands[rest[0]], rest[1:]
    if "--help" in rest or name == "mainstem" or hasattr(command, "commands"):
        return
    command.make_context(name, list(rest))
