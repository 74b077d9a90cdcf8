"""Handlers of asyncio servers."""

from __future__ import annotations

from functools import partial

import pytest

from mainstem._internal.tasks import as_coroutine_function


async def heard(words: list[str], word: str) -> None:
    words.append(word)


async def test_what_can_be_awaited_is_a_handler() -> None:
    words: list[str] = []

    async def handler(word: str) -> None:
        words.append(word)

    assert as_coroutine_function(handler) is handler
    await as_coroutine_function(partial(heard, words))("tide")
    await as_coroutine_function(lambda word: heard(words, word))("ebb")
    assert words == ["tide", "ebb"]


async def test_a_handler_must_be_a_coroutine_function() -> None:
    with pytest.raises(TypeError, match="returned None, which cannot be awaited: define it with async def"):
        await as_coroutine_function(print)("tide")  # type: ignore[arg-type]
