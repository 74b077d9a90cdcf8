"""Response channels between the implementations: the reference's samples at one end, Mainstem's client at the other."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, wait_for

import mainstem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop

QUESTIONS, ANSWERS = 10_001, 10_002
DRIVERS = [("mainstem", "reference"), ("reference", "mainstem")]
FIRST = b"is there an answer"
AGAIN_NS = 100_000_000  # between two attempts
REMOTE = "aeron:udp?{way}={host}:{port}"


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], Path]]]:
    """Return ``sample("response_server", driver, ...)``, which gives the process and the file that it writes its output to."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, driver: Any, *arguments: object) -> tuple[subprocess.Popen[bytes], Path]:
        binary = Path(os.environ.get("MAINSTEM_AERONMD", "/nowhere")).with_name(name)
        if not binary.exists():
            pytest.skip(f"{name} is not beside the reference driver")
        path = tmp_path / f"{name}.{len(running)}"
        with path.open("wb") as file:
            command = ["stdbuf", "-oL", binary, "-p", driver.directory, *map(str, arguments)]
            running.append(subprocess.Popen(command, stdout=file, stderr=file))
        return running[-1], path

    yield start
    for process in running:
        process.kill()
        process.wait()


def ask(client: mainstem.Aeron, request: str, control: str, questions: list[bytes]) -> list[bytes]:
    """Send questions over a response channel, and return the answers."""
    answers = client.add_subscription(control, ANSWERS)
    separator = "|" if "?" in request else "?"
    channel = f"{request}{separator}response-correlation-id={answers.registration_id}"
    publication = client.add_exclusive_publication(channel, QUESTIONS)
    wait_for(lambda: publication.is_connected, "nobody heard the questions")
    wait_for(lambda: answers.is_connected, "no way for answers came")
    got: list[bytes] = []
    # The sample drops an answer while no subscriber is connected, so this repeats the question until an answer arrives.
    offered_ns = 0

    def is_answered() -> bool:
        nonlocal offered_ns
        if time.monotonic_ns() - offered_ns > AGAIN_NS:
            offered_ns = time.monotonic_ns()
            publication.offer(FIRST)
        return bool(answers.poll_messages(lambda f: got.append(bytes(f)), 10))

    wait_for(is_answered, "no answer came at all")
    for question in questions:
        publication.send(question, timeout=STALL_S)
        wait_for(
            lambda question=question: (
                answers.poll_messages(lambda f: got.append(bytes(f)), 10) and got[-1].endswith(question)
            ),
            f"no answer to {question!r}",
        )
    got = [answer for answer in got if not answer.endswith(FIRST)]
    return got


class Server:
    """A server that answers every question with its reverse, on one answer stream per client."""

    def __init__(self, client: mainstem.Aeron, request: str, control: str) -> None:
        self._client = client
        self._control = control
        self._answers: dict[int, Any] = {}
        self._questions = client.add_subscription(request, QUESTIONS)

    def work(self) -> None:
        for image in self._questions.images:
            if image.correlation_id not in self._answers:
                separator = "|" if "?" in self._control else "?"
                channel = f"{self._control}{separator}response-correlation-id={image.correlation_id}"
                self._answers[image.correlation_id] = self._client.add_exclusive_publication(channel, ANSWERS)
            answer = self._answers[image.correlation_id]
            if answer.is_connected:
                image.poll_messages(
                    lambda fragment, answer=answer: answer.send(bytes(fragment)[::-1], timeout=STALL_S), 1
                )


def ways(port: int) -> tuple[str, str]:
    """Return the channels of requests and of responses."""
    return f"aeron:udp?endpoint=127.0.0.1:{port}", f"aeron:udp?control=127.0.0.1:{port + 1}|control-mode=response"


@pytest.mark.parametrize(("near", "far"), [*DRIVERS, ("mainstem", "mainstem")])
def test_responses_cross_between_drivers(start_driver: DriverFactory, port: int, near: str, far: str) -> None:
    request, control = ways(port)
    with (
        mainstem.Aeron.connect(start_driver(near).directory) as asking,
        mainstem.Aeron.connect(start_driver(far).directory) as answering,
    ):
        server = Server(answering, request, control)
        answers = asking.add_subscription(control, ANSWERS)
        channel = f"{request}|response-correlation-id={answers.registration_id}"
        publication = asking.add_exclusive_publication(channel, QUESTIONS)
        got: list[bytes] = []
        sent = 0

        def step() -> bool:
            nonlocal sent
            server.work()
            if sent < 200 and publication.offer(b"%d of some questions" % sent * (1 + sent % 90)) > 0:
                sent += 1
            answers.poll_messages(lambda fragment: got.append(bytes(fragment)), 10)
            return len(got) == 200

        wait_for(step, "not every question was answered")
        assert got == [(b"%d of some questions" % number * (1 + number % 90))[::-1] for number in range(200)]


@pytest.mark.parametrize("theirs", ["reference", "mainstem"])
def test_the_reference_server_answers(start_driver: DriverFactory, sample: Any, port: int, theirs: str) -> None:
    request, control = ways(port)
    far = start_driver(theirs)
    sample("response_server", far, "-c", request, "-d", control, "-s", QUESTIONS, "-r", ANSWERS)
    with mainstem.Aeron.connect(start_driver("mainstem").directory) as client:
        asked = [b"question %d" % number for number in range(20)]
        assert ask(client, request, control, asked) == [b"responding to message: " + each for each in asked]


@pytest.mark.parametrize("theirs", ["reference", "mainstem"])
def test_the_reference_client_is_answered(start_driver: DriverFactory, sample: Any, port: int, theirs: str) -> None:
    request, control = ways(port)
    near = start_driver(theirs)
    with mainstem.Aeron.connect(start_driver("mainstem").directory) as answering:
        server = Server(answering, request, control)
        _, said = sample("response_client", near, "-c", request, "-d", control, "-s", QUESTIONS, "-r", ANSWERS, "-m", 8)

        def step() -> bool:
            server.work()
            return said.read_bytes().count(b"<<") >= 3

        wait_for(step, f"no answers: {said.read_text()}")
        answered = [line.split("<<")[1].rstrip(">\n")[::-1] for line in said.read_text().splitlines() if "<<" in line]
    assert all(each.startswith("Hello World! ") for each in answered)


@pytest.mark.parametrize("driver", ["reference", "mainstem"])
def test_responses_arrive_through_shared_memory(start_driver: DriverFactory, driver: str) -> None:
    with mainstem.Aeron.connect(start_driver(driver).directory) as client:
        server = Server(client, "aeron:ipc", "aeron:ipc?control-mode=response")
        answers = client.add_subscription("aeron:ipc?control-mode=response", ANSWERS)
        publication = client.add_exclusive_publication(
            f"aeron:ipc?response-correlation-id={answers.registration_id}", QUESTIONS
        )
        got: list[bytes] = []

        def step() -> bool:
            server.work()
            answers.poll_messages(lambda fragment: got.append(bytes(fragment)), 10)
            return len(got) == 2

        wait_for(lambda: publication.is_connected, "nobody heard")
        publication.send(b"one", timeout=STALL_S)
        publication.send(b"two", timeout=STALL_S)
        wait_for(step, "no answers")
        assert got == [b"eno", b"owt"]
