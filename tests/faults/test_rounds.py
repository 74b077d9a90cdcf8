"""One round of real faults for each kind of connection; ``make faults`` runs hundreds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.faults.chain import Broken, Chain, Logs, write_record
from tests.faults.programs import client, open_log
from tests.faults.rounds import KINDS, Stream, run
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system
ROUNDS = {"archive": 3}


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_data_after_a_fault_arrives_unchanged(kind: str, tmp_path: Path) -> None:
    rounds = int(os.environ.get("MAINSTEM_FAULT_ROUNDS", "0")) or ROUNDS.get(kind, 1)
    result = run(kind, tmp_path, rounds=rounds, seed=3)
    assert result["killed"] + result["stopped"] >= 1


@pytest.mark.parametrize("fault", ["lost", "twice", "swapped", "changed", "begins later"])
def test_a_fault_of_the_stream_is_seen_by_the_checker(fault: str, tmp_path: Path) -> None:
    chain = Chain(b"checked!")
    messages = [chain.next() for _ in range(10)]
    wrong = {
        "lost": messages[:5] + messages[6:],
        "twice": messages[:6] + messages[5:],
        "swapped": [*messages[:5], messages[6], messages[5], *messages[7:]],
        "changed": [*messages[:5], messages[5][:-1] + b"x", *messages[6:]],
        "begins later": messages[1:],
    }
    (tmp_path / "logs").mkdir()
    for name, sent in (("right", messages), ("wrong", wrong[fault])):
        logs = Logs(tmp_path / "logs", from_start=True)
        file = open_log(str(tmp_path / "logs" / f"{name}.log"))
        for message in sent:
            write_record(file, 1, message)
        if name == "right":
            assert logs.check() == 10
        else:
            with pytest.raises(Broken, match=r"wrong\.log"):
                logs.check()


def test_a_killed_process_may_leave_part_of_a_message(tmp_path: Path) -> None:
    chain = Chain(b"checked!")
    file = open_log(str(tmp_path / "a.log"))
    for _ in range(3):
        write_record(file, 1, chain.next())
    whole = (tmp_path / "a.log").read_bytes()
    (tmp_path / "a.log").write_bytes(whole[:-7])
    logs = Logs(tmp_path, from_start=True)
    assert logs.check() == 2
    (tmp_path / "a.log").write_bytes(whole)
    assert logs.check() == 3


def test_a_driver_out_of_file_descriptors_rejects_new_streams_and_serves_existing_ones(tmp_path: Path) -> None:
    trial = Stream(tmp_path)
    trial.commands["driver"].append("64")
    try:
        trial.begin()
        driver = trial.pid("driver")
        port = free_port()
        with client(str(tmp_path / "driver")) as aeron:
            subscriptions = []
            try:
                for number in range(2, 200):
                    subscriptions.append(aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.{number}:{port}", 1))  # noqa: PERF401
            except RegistrationError:
                assert 5 < len(subscriptions) < 64
            else:
                pytest.fail("64 descriptors served 198 sockets")
            trial.wait_for_fresh()
            for subscription in subscriptions:
                subscription.close()

            def is_served() -> bool:
                try:
                    aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.2:{port}", 1).close()
                except RegistrationError:
                    return False
                return True

            wait_for(is_served, poll_s=0.1)
            trial.wait_for_fresh()
        assert trial.pid("driver") == driver
    finally:
        trial.close()
