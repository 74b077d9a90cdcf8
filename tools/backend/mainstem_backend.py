"""The build backend: setuptools' own, which also requires the ziglang wheel if the system has no C compiler."""

from __future__ import annotations

import compiler
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all other hooks are setuptools' own

Settings = dict[str, "str | list[str] | None"] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def _compiler() -> list[str]:
    return [] if compiler.is_installed() else [compiler.ZIG]
