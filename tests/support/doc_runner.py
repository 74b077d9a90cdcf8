"""Run a documentation page as its reader would: block by block, in a fresh directory, with a driver and ports of its own.

A ``sh`` block runs in bash and a ``python`` block in Python; a block with ``title="name.py"`` is written to that file instead. A
``text`` block is the expected output of the block before it, where ``...`` matches anything. Other instructions are in an HTML
comment before the block, which readers do not see:

* ``<!-- run: background NAME -->``: the block keeps running, as in a terminal of its own;
* ``<!-- run: output NAME -->``: the block is the expected output of that terminal; wait for it;
* ``<!-- run: stop NAME -->``, ``<!-- run: wait NAME -->``, without a block: press Ctrl-C there; wait until it ends by itself;
* ``<!-- run: session NAME -->``: the ``python`` blocks with this name share one interpreter, which first runs
  ``tests/support/doc_parts/NAME.py``, the definitions that the page assumes, if there is such a file;
* ``<!-- run: if COMMAND -->``: the block runs if that command is installed, and is only parsed otherwise;
* ``<!-- run: no; REASON -->``: the block is only parsed, and its output is not compared.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from tests.support.ports import own_ports, with_own_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
STEP_S = 600  # a block may start Spark
BLOCK = re.compile(
    r"(?:^<!-- run: (?P<lone>(?:stop|wait) [^\n]*?) -->$)"
    r"|(?:^(?:<!-- run: (?P<how>[^\n]*?) -->\n+)?```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<code>.*?)^```$)",
    re.MULTILINE | re.DOTALL,
)


# Runs the blocks that arrive as lines of JSON, and returns what each printed or raised.
SESSION = """
import contextlib, importlib.util, io, json, runpy, sys, traceback
out, namespace = sys.stdout, {"__name__": "__main__"}
try:
    assumed = f"tests.support.doc_parts.{sys.argv[1]}"
    if importlib.util.find_spec(assumed):
        with contextlib.redirect_stdout(sys.stderr):
            namespace |= runpy.run_module(assumed)
    for line in sys.stdin:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(json.loads(line), "<page>", "exec", dont_inherit=True), namespace)
        print(json.dumps({"printed": printed.getvalue()}), file=out, flush=True)
except Exception:
    print(json.dumps({"error": traceback.format_exc()}), file=out, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block, or a step without a block."""

    line: int
    how: str
    language: str
    title: str
    code: str


def blocks(text: str) -> Iterator[Block]:
    """Yield every block of a page, in order."""
    for match in BLOCK.finditer(text):
        how = match["lone"] or match["how"] or ""
        line = text.count("\n", 0, match.start()) + 1
        yield Block(line, how, match["language"] or "", match["title"] or "", match["code"] or "")


def parse(block: Block) -> None:
    """Raise if a block's code is not valid in the language that its fence names."""
    if block.language == "python":
        compile(block.code, block.title or "<page>", "exec", dont_inherit=True)
    elif block.language == "sh":
        subprocess.run(["bash", "-n"], input=block.code, text=True, check=True, timeout=20)
    elif block.language == "yaml":
        assert [*yaml.safe_load_all(block.code)]
    elif block.language == "json":
        json.loads(block.code)
    elif block.language == "toml":
        tomllib.loads(block.code)


def matches(expected: str, printed: str) -> bool:
    """Return whether the output matches the expected output, in which ``...`` stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


class Reader:
    """One reader of one page: a working directory, a driver's directory and the open terminals."""

    def __init__(self, directory: Path, *, source: Path | None = ROOT / "src") -> None:
        """Without a ``source``, the page uses the Mainstem that is installed in this Python."""
        self.directory = directory
        self.aeron = Path("/dev/shm") / f"mainstem-page-{os.getpid()}-{time.monotonic_ns()}"
        self.terminals: dict[str, subprocess.Popen[str]] = {}
        self.sessions: dict[str, subprocess.Popen[str]] = {}
        self.environment = {
            **os.environ,
            "AERON_DIR": str(self.aeron),
            "HOME": str(directory),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, [source, ROOT, os.environ.get("PYTHONPATH")]))),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "100",
            "TERM": "dumb",
        }

    def read(self, text: str) -> None:
        """Run every block of a page."""
        printed: str | None = ""
        ports = own_ports(text)
        for block in blocks(text):
            if not block.title.startswith("deploy/"):
                block = replace(block, code=with_own_ports(block.code, ports))
            where = f"line {block.line}"
            word, _, rest = block.how.partition(" ")
            if word == "no;":
                assert rest, f"{where}: a block that does not run needs a reason"
                parse(block)
                printed = None
            elif word in ("stop", "wait"):
                self.end(rest, interrupt=word == "stop")
            elif word == "output":
                self.expect(rest, block.code, where)
            elif block.title.startswith("deploy/"):
                assert (ROOT / block.title).read_text() == block.code, f"{where} is not {block.title}"
            elif block.language == "text":
                assert printed is None or matches(block.code, printed), (
                    f"{where}: expected\n{block.code}\nand there was\n{printed}"
                )
            elif block.title:
                parse(block)
                (self.directory / block.title).write_text(block.code)
            elif word == "session":
                assert block.language == "python", f"{where}: a session runs Python"
                printed = self.run_in_session(rest, block, where)
            elif word == "background":
                self.terminals[rest] = self.start(block, self.directory / f"{rest}.output")
            elif word == "if" and shutil.which(rest) is None:
                parse(block)
                printed = None
            else:
                printed = self.run(block, where)

    def command(self, block: Block) -> list[str]:
        if block.language == "python":
            return [sys.executable, "-W", "error", "-c", block.code]
        assert block.language == "sh", (
            f"line {block.line}: nothing runs {block.language!r}; say why, or give it a title"
        )
        return ["bash", "-euo", "pipefail", "-c", block.code]

    def run(self, block: Block, where: str) -> str:
        result = subprocess.run(
            self.command(block),
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert result.returncode == 0, f"{where}: {result.stdout}\n{result.stderr}\n{self.outputs()}"
        return result.stdout

    def run_in_session(self, name: str, block: Block, where: str) -> str:
        if name not in self.sessions:
            with (self.directory / f"session-{name}.log").open("w") as log:
                self.sessions[name] = subprocess.Popen(
                    [sys.executable, "-c", SESSION, name],
                    cwd=self.directory,
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    text=True,
                )
        process = self.sessions[name]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(block.code) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        reply = json.loads(line) if line else {"error": f"the interpreter ended: {process.wait(20)}"}
        assert "error" not in reply, f"{where}: {reply['error']}"
        printed: str = reply["printed"]
        return printed

    def start(self, block: Block, output: Path) -> subprocess.Popen[str]:
        with output.open("w") as file:
            return subprocess.Popen(
                self.command(block),
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )

    def outputs(self) -> str:
        return "\n".join(f"{name}: {self.output(name)}" for name in self.terminals)

    def output(self, name: str) -> str:
        return (self.directory / f"{name}.output").read_text()

    def expect(self, name: str, expected: str, where: str) -> None:
        deadline = time.monotonic() + STEP_S
        while not matches(expected, self.output(name)):
            running = self.terminals[name].poll() is None
            assert running or matches(expected, self.output(name)), f"{where}: {self.output(name)}"
            assert time.monotonic() < deadline, f"{where}: {self.output(name)}"
            time.sleep(0.05)

    def end(self, name: str, *, interrupt: bool) -> None:
        process = self.terminals[name]
        if interrupt:
            assert process.poll() is None, f"{name} has ended: {self.output(name)}"
            os.killpg(process.pid, signal.SIGINT)
        status = process.wait(STEP_S)
        assert status in ((0, 130, -signal.SIGINT) if interrupt else (0,)), f"{name}: {status}, {self.output(name)}"

    def close(self) -> None:
        """End the processes that the page left running."""
        for process in reversed(self.terminals.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.terminals.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        for process in self.sessions.values():
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
            assert process.stdout is not None
            process.stdout.close()
        shutil.rmtree(self.aeron, ignore_errors=True)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of every ``mainstem`` command in the ``sh`` blocks of a page."""
    for block in blocks(text):
        if block.language not in ("sh", ""):
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            for part in re.split(r"(?<!\S)(?:&&|\|\||\||;|&)(?!\S)", re.sub(r"(?:^|\s)#.*", "", line)):
                try:
                    words = shlex.split(part)
                except ValueError:
                    continue
                while words and (re.match(r"\w+=", words[0]) or re.fullmatch(r"\w*[$#%]", words[0])):
                    del words[0]
                if words[:1] == ["mainstem"] and len(words) > 1:
                    cut = next((i for i, word in enumerate(words) if re.match(r"\d?[<>]", word)), len(words))
                    yield words[1:cut]
