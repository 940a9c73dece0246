"""The options of each kind of source: unknown keys and wrong types are refused, with what is meant."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock.config import source_kinds
from penstock.config.loader import load
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def loaded(tmp_path: Path, dataset: dict[str, Any]) -> Any:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump({"target": {"root": "/t"}, "datasets": {"d": dataset}}))
    return load(path).datasets["d"]


def refused(tmp_path: Path, url: str, options: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"source": url, "storage_options": options})
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("s3://b/", {"endpont_url": "http://h:1"}, "unknown key; did you mean `endpoint_url`?"),
        ("s3://b/", {"endpoint": "http://h:1"}, "unknown key; did you mean `endpoint_url`?"),
        ("s3://b/", {"anon": "false"}, '"false" is text; give true or false, without quotes'),
        ("s3://b/", {"anon": 1}, "1 is a number; give true or false"),
        ("s3://b/", {"endpoint_url": "minio:9000"}, "give a server's URL"),
        ("s3://b/", {"endpoint_url": "http://h/?x=1"}, "give a server's URL"),
        ("s3://b/", {"region": 1}, "give a region"),
        ("s3://b/", {"account_name": "a"}, "unknown key"),
        ("s3://b/", {"addressing_style": "paths"}, "path, virtual or auto"),
        ("s3://b/", {"proxy": "https://p:1"}, "give a proxy such as http://"),
        ("s3://b/", {"client_kwargs": {"region_name": "x"}}, "unknown key; did you mean `endpoint_url`?"),
        ("az://cont/", {"account": "abc"}, "unknown key; did you mean `account_name`?"),
        ("az://cont/", {"anon": "true"}, "without quotes"),
        (
            "https://h/d/",
            {"profile": "x"},
            "unknown key; there are: redirects, listing, unsized, ca_bundle, proxy",
        ),
        ("https://h/d/", {"redirects": "cdn.example.org"}, "a list of hosts"),
        ("https://h/d/", {"redirects": ["http://cdn/"]}, "a host such as"),
        ("/folder", {"anon": True}, "unknown key"),
        ("gs://b/", {"anonymous": True}, "unknown key"),
    ],
)
def test_what_a_source_does_not_know(tmp_path: Path, url: str, options: dict[str, Any], said: str) -> None:
    message = refused(tmp_path, url, options)
    assert said in message
    assert "datasets.d.storage_options." in message
    assert "line " in message


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b/", {"endpoint_url": "https://[::1]:9000/path", "anon": False, "region": "eu-west-1"}),
        (
            "s3a://b/",
            {"profile": "p", "ca_bundle": "/ca.pem", "proxy": "http://p:3128", "requester_pays": True},
        ),
        (
            "az://cont/",
            {"account_name": "abc", "endpoint_url": "http://127.0.0.1:1/abc"},
        ),
        ("https://h/", {"redirects": ["a.example", "b:8443", "*.c.example", "[::1]:81"]}),
        ("gs://b/", {"anon": True, "project": "p"}),
        ("sftp://me@h/d", {"port": 2222, "allow_agent": False, "key_filename": "/k"}),
        ("other://h/d", {"whatever": {"it": "takes"}}),
    ],
)
def test_what_a_source_knows(tmp_path: Path, url: str, options: dict[str, Any]) -> None:
    assert loaded(tmp_path, {"source": url, "storage_options": options}).sources[0].storage_options == options


def test_a_key_without_a_value_is_not_given(tmp_path: Path) -> None:
    dataset = {"source": "s3://b/", "storage_options": {"profile": None, "anon": True}}
    assert loaded(tmp_path, dataset).sources[0].storage_options == {"anon": True}


def test_options_of_the_dataset_go_to_the_sources_that_know_them(tmp_path: Path) -> None:
    dataset: dict[str, Any] = {
        "sources": [
            {"url": "s3://b/", "into": "a"},
            {"url": "https://h/", "into": "b", "storage_options": {"redirects": ["c"]}},
            {"url": "/folder", "into": "c"},
        ],
        "storage_options": {"anon": True, "proxy": "http://p:1"},
    }
    found = [dict(source.storage_options) for source in loaded(tmp_path, dataset).sources]
    assert found == [{"anon": True, "proxy": "http://p:1"}, {"proxy": "http://p:1", "redirects": ["c"]}, {}]
    dataset["storage_options"]["anonn"] = True
    with pytest.raises(ConfigError, match=r"anonn.*did you mean `anon`"):
        loaded(tmp_path, dataset)
    dataset["storage_options"] = {"anon": "no"}
    with pytest.raises(ConfigError, match="without quotes"):
        loaded(tmp_path, dataset)
    dataset["storage_options"] = {}
    dataset["sources"][1]["storage_options"] = {"anon": True}
    with pytest.raises(ConfigError, match=r"sources\[1\].storage_options.anon .*unknown key"):
        loaded(tmp_path, dataset)


def test_each_class_of_options_is_a_kind_s_and_each_scheme_of_one_kind() -> None:
    classes = {part for name, part in vars(source_kinds).items() if name.endswith("Options")}
    assert {kind.options for kind in source_kinds.KINDS} - {None} == classes
    schemes = [scheme for kind in source_kinds.KINDS for scheme in kind.schemes]
    assert len(schemes) == len(set(schemes))
    for kind in (*source_kinds.KINDS, source_kinds.OTHER):
        assert callable(import_module(f"penstock.sources.{kind.package}").open_source)
        assert not kind.secrets or callable(import_module(f"penstock.sources.{kind.secrets}").resolve)


NAMES = [
    "private_token",
    "job_token",
    "auth_token",
    "hf_token",
    "download_token",
    "refresh_token",
    "client_secret",
    "sas_token",
    "pwd",
    "passwd",
    "access_key",
    "jwt",
    "hdnea",
    "Policy",
    "Key-Pair-Id",
    "SharedAccessSignature",
    "accessToken",
    "X-Plex-Token",
    "api-key",
    "sig",
    "X-Amz-Signature",
    "GoogleAccessId",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_token_in_a_query_is_refused_under_any_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"source": f"https://h/x?v=1&{name}=SECRET-VALUE"})
    assert name in str(caught.value)
    assert "SECRET-VALUE" not in str(caught.value)


@pytest.mark.parametrize("query", ["v=1", "download=1", "format=csv&page=2", "file=monkey", "keyboard=us"])
def test_a_query_that_only_names_something(tmp_path: Path, query: str) -> None:
    assert loaded(tmp_path, {"source": f"https://h/x?{query}"}).sources[0].url == f"https://h/x?{query}"


@pytest.mark.parametrize(
    ("url", "fine"), [("sftp://me@h/d", True), ("sftp://me:pw@h/d", False), ("s3://k@b/", False)]
)
def test_a_name_before_the_host_is_no_secret_where_the_protocol_has_names(
    tmp_path: Path, url: str, fine: bool
) -> None:
    if fine:
        assert loaded(tmp_path, {"source": url}).sources[0].url == url
    else:
        with pytest.raises(ConfigError, match="user info"):
            loaded(tmp_path, {"source": url})


def text_refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_value_that_is_read_in_two_ways_is_told_by_its_key_with_all_else(tmp_path: Path) -> None:
    message = text_refused(
        tmp_path,
        "target: {root: /t, keep_fre: 1GiB}\ndatasets:\n  d:\n    source: /s\n    permissions:\n"
        "      file_mode: 0777\n      dir_mode: 0750\n    links: maybe\n",
    )
    for part in ("4 problems", "keep_fre", "permissions.file_mode (line 6): `0777`", "dir_mode", "links"):
        assert part in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target:\n\troot: /t\n", "indented by a tab"),
        ("target:\n  root:\ndatasets: {d: {source: /s}}\n", "target.root (line 2): has no value"),
        ("target: {root: /t}\ndatasets: {d: {source: }}\n", "source (line 2): has no value: give a URL"),
        (f"target: {{root: /t, keep_free: {'1' * 5000}}}\ndatasets: {{d: {{source: /s}}}}\n", "5,000 digits"),
        (f"target: {{root: /t}}\nplan: {{shard_files: {'1' * 4400}.5}}\n", "4,402 digits"),
        ("target: {root: /t}\ndatasets: {d: {source: /s, links: true}}\n", "true cannot be used"),
    ],
)
def test_values_that_cannot_be_meant(tmp_path: Path, text: str, said: str) -> None:
    assert said in text_refused(tmp_path, text)


def test_the_reader_says_whose_options_are_known(tmp_path: Path) -> None:
    own, library = {"addressing_style": "path"}, {"reader": "fsspec", "client_kwargs": {"verify": False}}
    for options in (own, library, {**own, "reader": "penstock"}):
        assert loaded(tmp_path, {"source": "s3://b/x", "storage_options": options})
    assert loaded(tmp_path, {"source": "s3://b/x", "storage_options": {**own, "reader": "fsspec"}})
    assert "client_kwargs" in refused(tmp_path, "s3://b/x", {**library, "reader": "penstock"})
    assert "reader" in refused(tmp_path, "/folder", {"reader": "fsspec"})
    assert "secret" in refused(tmp_path, "s3://b/x", {"reader": "fsspec", "secret": "x"})


def test_each_source_may_have_its_own_reader(tmp_path: Path) -> None:
    """What fsspec opens takes of the dataset's options those that no other kind there knows."""
    two = {
        "sources": [
            {"url": "s3://a/", "into": "a", "storage_options": {"reader": "fsspec", "profile": "q"}},
            {"url": "s3://b/", "into": "b", "storage_options": {"addressing_style": "path"}},
        ],
        "storage_options": {"profile": "p", "region": "r", "use_ssl": False},
    }
    sources = loaded(tmp_path, two).sources
    assert [dict(source.storage_options) for source in sources] == [
        {"profile": "q", "reader": "fsspec", "use_ssl": False},
        {"profile": "p", "region": "r", "addressing_style": "path"},
    ]
    one = {
        "sources": [{"url": "s3://a/", "into": "a"}, {"url": "https://h/", "into": "b"}],
        "storage_options": {"reader": "fsspec", "profile": "p", "proxy": "http://p:1"},
    }
    sources = loaded(tmp_path, one).sources
    assert [dict(source.storage_options) for source in sources] == [
        {"reader": "fsspec", "profile": "p"},
        {"proxy": "http://p:1"},
    ]


def test_pinned_needs_penstocks_own_reader(tmp_path: Path) -> None:
    dataset = {"source": "s3://b/x", "changed": "pinned"}
    assert loaded(tmp_path, dataset)
    with pytest.raises(ConfigError, match="fsspec"):
        loaded(tmp_path, {**dataset, "storage_options": {"reader": "fsspec"}})
