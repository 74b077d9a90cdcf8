"""Errors from below the command line name fields. The command names its options instead, and changes nothing else."""

from __future__ import annotations

import pytest
from tests.support.command_tree import COMMANDS

from mainstem.errors import ConfigurationError


class DirectoryInUse(ConfigurationError):
    pass


def test_an_error_keeps_its_class_when_its_fields_are_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS["ingest"]
    error = DirectoryInUse("`streams` and `format=delta`, but neither `mainstem ls` nor `other`")

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(command, "callback", fail)
    with pytest.raises(DirectoryInUse) as caught:
        command.invoke(command.make_context("ingest", ["tides"]))
    assert caught.value is error
    assert str(error) == "--stream and --format delta, but neither `mainstem ls` nor `other`"


def test_an_argument_is_named_as_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS["export"]

    def fail(**_: object) -> None:
        raise ConfigurationError("`location` has nothing")

    monkeypatch.setattr(command, "callback", fail)
    with pytest.raises(ConfigurationError, match=r"^LOCATION has nothing"):
        command.invoke(command.make_context("export", ["tides", "--format", "csv"]))
