"""Which store a URL opens, and with which options."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from mainstem.errors import ConfigurationError
from mainstem.store import is_url, open_store
from mainstem.store.local import LocalStore
from mainstem.store.options import azure_options, gcs_options, hdfs_options, is_store_option, s3_options


@pytest.mark.parametrize("text", ["/data/rec", "rec", "./a:b", "C:rec"])
def test_a_path_is_not_a_url(text: str) -> None:
    assert not is_url(text)
    assert isinstance(open_store(text), LocalStore)


@pytest.mark.parametrize("text", ["file:///data/rec", "file:/data/rec", "FILE://localhost/data/rec"])
def test_file_urls_are_local(text: str) -> None:
    store = open_store(text)
    assert store.local_path() == Path("/data/rec")
    assert store.url == text


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="host 'data'"):
        open_store("file://data/rec")


def test_an_unknown_scheme_is_refused_by_name_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "fsspec" else find(name, *rest)  # noqa: E731
    # Look up the module in `sys.modules`: the package exports a function of the same name.
    monkeypatch.setattr(sys.modules["mainstem.store.open_store"], "find_spec", hidden)
    with pytest.raises(ConfigurationError, match=r"no store for sftp://; known are file://, s3://.*pip install fsspec"):
        open_store("sftp://host/rec")


def test_a_scheme_unknown_to_fsspec_is_rejected() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ConfigurationError, match="neither Mainstem nor fsspec has a store for tides://"):
        open_store("tides://host/rec")


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="as options") as caught:
        open_store("s3://key:topsecret@bucket/rec")
    assert "topsecret" not in str(caught.value)


def test_options_after_the_question_mark_are_options_and_not_shown() -> None:
    pytest.importorskip("obstore")
    store = open_store(
        "s3://bucket/rec?secret_key=topsecret&access_key=a&region=eu-west-1&endpoint_override=localhost:1"
    )
    assert store.url == "s3://bucket/rec"


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"access_key": "a", "secret_key": "b"}, {"access_key": "a", "secret_key": "b"}),
        ({"endpoint_override": "http://h:9000"}, {"endpoint_override": "h:9000", "scheme": "http"}),
        (
            {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.s3a.endpoint": "http://h:9000/"},
            {"access_key": "a", "secret_key": "b", "endpoint_override": "h:9000", "scheme": "http"},
        ),
        ({"fs.s3a.path.style.access": "true"}, {"force_virtual_addressing": False}),
        ({"fs.s3a.access.key": "a", "fs.s3a.bucket.tides.access.key": "b"}, {"access_key": "b"}),
        ({"fs.s3a.bucket.other.access.key": "b"}, {}),
        ({"access_key": "a", "fs.s3a.access.key": "b"}, {"access_key": "a"}),
        ({"anonymous": "true", "connect_timeout": "2.5"}, {"anonymous": True, "connect_timeout": 2.5}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"anonymous": True},
        ),
        (
            {"fs.s3a.endpoint": "h:1", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint_override": "h:1", "scheme": "http"},
        ),
    ],
)
def test_options_of_s3(options: dict[str, str], arguments: dict[str, Any]) -> None:
    assert s3_options("s3://tides", "tides", options) == arguments


def test_options_of_other_stores() -> None:
    url = "abfs://c@account.dfs.core.windows.net"
    assert azure_options(url, "account", {"fs.azure.account.key.account.dfs.core.windows.net": "k"}) == {
        "account_name": "account",
        "account_key": "k",
    }
    assert azure_options(url, "account", {"fs.azure.account.key.other.dfs.core.windows.net": "k"}) == {
        "account_name": "account"
    }
    assert gcs_options("gs://b", {"fs.gs.project.id": "p", "fs.gs.storage.root.url": "http://h:1/"}) == {
        "project_id": "p",
        "scheme": "http",
        "endpoint_override": "h:1",
    }
    assert hdfs_options("hdfs://n", {"user": "u", "replication": "2", "dfs.nameservices": "x"}) == {
        "user": "u",
        "replication": 2,
        "extra_conf": {"dfs.nameservices": "x"},
    }


def test_invalid_options_are_rejected_without_printing_their_values() -> None:
    with pytest.raises(ConfigurationError, match="no option 'secret'"):
        s3_options("s3://b", "b", {"secret": "x"})
    with pytest.raises(ConfigurationError, match="invalid value for the option 'anonymous'") as caught:
        s3_options("s3://b", "b", {"anonymous": "topsecret"})
    assert "topsecret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"'fs\.s3a\.fast\.upload' is not supported"):
        s3_options("s3://b", "b", {"fs.s3a.fast.upload": "true"})
    with pytest.raises(ConfigurationError, match="has no account"):
        azure_options("abfs://c", "", {})


def test_options_of_stores_are_distinguished_from_those_of_sources() -> None:
    assert all(is_store_option(name) for name in ("fs.s3a.endpoint", "ACCESS_KEY", "account_name", "dfs.nameservices"))
    assert not any(is_store_option(name) for name in ("path", "streamid", "rows", "fromtime"))
