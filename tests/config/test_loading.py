"""Every bad input: one ConfigError that names the key path, its line, and what to do."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from tests.support.fixed_settings import fixed

from penstock.config import serialization, settings, validation
from penstock.config.annotations import keys_of
from penstock.config.loader import load
from penstock.config.serialization import deciding, from_json, to_json
from penstock.core.errors import ConfigError
from penstock.core.grades import STORAGE_GRADES

ROOT = Path(__file__).resolve().parents[2]
GOOD: dict[str, Any] = {"target": {"root": "/scratch"}, "datasets": {"d": {"source": "s3://b/p/"}}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(value: Any) -> Path:
        path = tmp_path / "my.yaml"
        text = value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def changed(path: str, value: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    here = config
    for key in parents:
        here = here.setdefault(key, {})
    here[last] = value
    return config


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


# What is accepted --------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "linked"), [(None, 30 * 86_400.0), ("all", None), ("7d", 7 * 86_400.0)])
def test_which_linked_files_are_read(write: Any, given: Any, linked: float | None) -> None:
    config = load(write(GOOD if given is None else changed("verify.linked", given)))
    assert config.verify.linked == linked
    frozen = json.loads(json.dumps(serialization.freeze(config, config.datasets["d"])))
    assert serialization.RunConfig(frozen, "run.json").verify == config.verify


@pytest.mark.parametrize("grade", ["auto", *STORAGE_GRADES])
def test_linked_files_are_carried_over_where_no_grade_of_reading_is_asked_for(grade: str) -> None:
    verify = settings.VerifyConfig(minimum_grade=grade)
    assert verify.carries_for == (verify.linked if grade in ("auto", "written") else None)


@pytest.mark.parametrize(
    "given", [{"within": "7d"}, {"within": "30d", "sample": 0.01, "limit": "1TiB"}, "none", 30, "0d", None]
)
def test_what_is_no_age_of_a_reading_is_refused_with_what_to_write(write: Any, given: Any) -> None:
    text = refused(write(changed("verify.linked", given)))
    assert "verify.linked" in text
    assert "such as `linked: 30d`, without `within`, `sample` or `limit`" in text


@pytest.mark.parametrize(
    "given",
    [
        "", "AUTO", "none", 4, True, None, ["targets=4"], "targets=", "targets=0", "targets=-1",
        "targets=04", "targets=1000", "targets=4,", "chunk=1MiB", "chunk=1MiB, targets=4",
        "targets=4, chunk=3MiB", "targets=4, chunk=32KiB", "targets=4, chunk=1MB", "targets=4, chunk=1 MiB",
        "targets=4,  chunk=1MiB", "targets=4, chunk=2GiB", "targets=4\n", "targets=4, pool=2",
    ],
)  # fmt: skip
def test_what_is_no_striping_is_refused_with_what_to_write(write: Any, given: Any) -> None:
    text = refused(write(changed("target.striping", given)))
    assert "target.striping" in text
    assert "inherit, auto, or such as `targets=4, chunk=1MiB`" in text


def test_the_least(write: Any) -> None:
    config = load(write(GOOD))
    assert config == settings.Config(
        target=settings.TargetConfig(Path("/scratch")),
        datasets={"d": settings.DatasetConfig("d", (settings.SourceConfig("s3://b/p/"),))},
    )


def test_the_example_is_the_defaults(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key of config.yaml stands with its default, as its comments promise."""
    monkeypatch.chdir(ROOT)
    config = load("config.yaml")
    example = config.datasets["installed"]
    assert config == settings.Config(
        target=settings.TargetConfig(ROOT / "demo/target"),
        datasets={"installed": example},
    )
    assert example == settings.DatasetConfig("installed", example.sources, example.include, example.exclude)


SECTIONS: dict[str, Any] = {
    "target": settings.TargetConfig,
    "plan": settings.PlanConfig,
    "engine": settings.EngineConfig,
    "verify": settings.VerifyConfig,
    "audit": settings.AuditConfig,
    "bandwidth": settings.BandwidthConfig,
    "gc": settings.GcConfig,
}


def test_each_setting_has_a_key_or_is_fixed() -> None:
    def names(kind: Any) -> set[str]:
        return set(kind.__dataclass_fields__) - fixed(kind)

    of_one = set(validation.OF_ONE_SOURCE)
    assert set(keys_of(settings.Config)) == names(settings.Config)
    for kind in (*SECTIONS.values(), settings.JobOptions, settings.PermissionsConfig, settings.ModeRule):
        assert set(keys_of(kind)) == names(kind), kind
    cluster = names(settings.ClusterConfig) - {"options"} | names(settings.JobOptions)
    assert set(keys_of(settings.ClusterConfig)) == cluster
    assert set(keys_of(settings.SourceConfig)) == names(settings.SourceConfig)
    assert names(settings.SourceConfig) == {"url", "into", "storage_options"} | of_one
    of_sources = {"source", "storage_options"} | of_one
    assert set(keys_of(settings.DatasetConfig)) == names(settings.DatasetConfig) - {"name"} | of_sources


def test_the_example_shows_each_key() -> None:
    example = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    dataset = example["datasets"]["installed"]
    assert set(keys_of(settings.Config)) == set(example)
    for section, kind in {**SECTIONS, "cluster": settings.ClusterConfig}.items():
        assert set(keys_of(kind)) == set(example[section]), section
    assert set(keys_of(settings.DatasetConfig)) - {"sources"} == set(dataset)
    assert set(keys_of(settings.PermissionsConfig)) == set(dataset["permissions"])


@pytest.mark.parametrize(
    ("dataset", "told"),
    [
        ("source: /data\n    inventory: s3://i/manifest.json", "S3 Inventory is of S3 buckets"),
        ("source: s3://b/\n    inventory: https://i/manifest.json", "is neither s3://bucket/... nor a path"),
        ("source: s3://b/\n    inventory: s3://", "names no bucket"),
        ("sources: [{url: s3://b/}]\n    inventory: /i", "belongs into each of `sources`"),
        ("source: gs://b/\n    times: metadata", "states no times in metadata: it is for S3 and Azure"),
        ("source: memory://b/\n    times: metadata", "states no times in metadata"),
        ("source: s3://b/\n    times: metadata\n    inventory: /i", "not read where `inventory` names"),
        ("source: gs://b/\n    archived: skip", "states no archived objects"),
        (
            "source: s3://b/\n    archived: skip\n    storage_options: {reader: fsspec}",
            "without `reader: fsspec`",
        ),
    ],
)
def test_an_inventory_that_cannot_be_the_sources_is_refused(tmp_path: Path, dataset: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(f"target: {{root: t}}\ndatasets:\n  d:\n    {dataset}\n")
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(tmp_path / "c.yaml")


def test_an_inventorys_path_is_absolute_and_each_source_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(
        "target: {root: t}\ndatasets:\n  one: {source: s3://b/, inventory: inv/}\n"
        "  two: {sources: [{url: s3://b/, into: a, inventory: s3://i/x/}, {url: s3://c/, into: c}]}\n"
    )
    datasets = load(tmp_path / "c.yaml").datasets
    assert [one.inventory for one in datasets["one"].sources] == [str(tmp_path / "inv")]
    assert [one.inventory for one in datasets["two"].sources] == ["s3://i/x/", None]


@pytest.mark.parametrize(
    "kind",
    [settings.DatasetConfig, settings.PermissionsConfig, settings.PlanConfig, settings.VerifyConfig],
)
def test_each_key_says_whether_it_decides_the_identity_of_a_run(kind: Any) -> None:
    for field in fields(kind):
        marks = {settings.DECIDES, settings.APART} & set(get_args(field.type))
        assert len(marks) == 1, f"annotate {kind.__name__}.{field.name} with DECIDES or APART"


def test_what_decides_the_identity_of_a_run() -> None:
    """The ids of runs that are on disk come of these keys at these values."""
    dataset = settings.DatasetConfig("d", (settings.SourceConfig("s3://b/p/"),), include=("*.tar",))
    config = settings.Config(settings.TargetConfig(Path("/scratch")), {"d": dataset})
    assert deciding(config, dataset) == {
        "name": "d", "include": ["*.tar"], "exclude": [], "release": "auto", "links": "refuse",
        "checksums": [],
        "permissions": {
            "group": None, "file_mode": 0o440, "dir_mode": 0o2550, "mtime": "keep", "modes": [], "acl": [],
        },
        "giant_bytes": 64 << 30, "part_bytes": 256 << 20, "digests": ["xxh3_128"],
    }  # fmt: skip


def test_units_and_words(write: Any) -> None:
    config = load(
        write(
            {
                **GOOD,
                "target": {"root": "/scratch", "keep_free": "10GiB", "state_root": "/state"},
                "cluster": {
                    "backend": "slurm", "partition": "data,cpu", "time": "4h", "memory": "16GiB",
                    "licenses": ["wan:1"], "core_spec": "none",
                    "exclude": "n[1-4]", "wckey": "ingest",
                    "mail": "alice@example.org",
                    "steps": {
                        "verify": {"partition": "cpu", "core_spec": 1, "exclude": None},
                        "audit": {"core_spec": "auto"},
                    },
                    "gpu_nodes": "allow",
                },
                "engine": {"streams": "auto", "limit": "20Gbit/s", "timeout": "90s"},
                "verify": {"digests": ["sha256", "xxh3_128"]},
            }
        )
    )  # fmt: skip
    assert config.target.keep_free == 10 << 30
    assert config.target.state_root == Path("/state")
    cluster = config.cluster
    assert (cluster.backend, cluster.poll) == ("slurm", 15.0)
    assert cluster.options == settings.JobOptions(
        partition="data,cpu", time=14400, memory=16 << 30, licenses=("wan:1",), core_spec=None,
        exclude="n[1-4]", wckey="ingest",
    )  # fmt: skip
    assert cluster.mail == "alice@example.org"
    assert cluster.of("copy") == cluster.options
    assert cluster.of("verify") == replace(cluster.options, partition="cpu", core_spec=1, exclude=None)
    assert (config.engine.streams, config.engine.timeout) == (None, 90.0)
    assert config.engine.limit == 2_500_000_000
    assert config.verify.digests == ("xxh3_128", "sha256")


def test_the_override_of_the_backend(write: Any) -> None:
    path = write(GOOD)
    assert load(path).cluster.backend == "local"
    assert load(path, "slurm").cluster.backend == "slurm"
    with pytest.raises(ConfigError, match="local or slurm"):
        load(path, "pbs")


def test_several_sources(write: Any) -> None:
    dataset = {
        "sources": [
            {"url": "s3://b/x/", "into": "./a//b/"},
            {"url": "rel/folder", "into": "c"},
            {"url": "s3://c/", "into": "d", "storage_options": {"profile": "own"}},
        ],
        "storage_options": {"profile": "shared", "region": "r"},
    }
    sources = load(write(changed("datasets.d", dataset))).datasets["d"].sources
    assert sources[0] == settings.SourceConfig("s3://b/x/", "a/b", {"profile": "shared", "region": "r"})
    assert sources[1].url == str(Path.cwd() / "rel/folder")
    assert sources[1].storage_options == {}
    assert sources[2].storage_options == {"profile": "own", "region": "r"}


def test_relative_folders_are_relative_to_the_working_directory(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write({"target": {"root": "out"}, "datasets": {"d": {"source": "in"}}})
    monkeypatch.chdir(tmp_path.parent)
    config = load(path)
    assert config.target.root == tmp_path.parent / "out"
    assert config.datasets["d"].sources[0].url == str(tmp_path.parent / "in")


# What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("target.rot", "/x", "did you mean `root`?"),
        ("target.root", 7, "is a number; give a folder"),
        ("target.root", "", "give a folder"),
        ("target.keep_free", "12", "must be a size with its unit"),
        ("target.keep_free", 12, "must be a size with its unit"),
        ("target", [], "is a list; give"),
        ("datasets", {}, "is empty"),
        ("datasets", None, "has no value: give"),
        ("datasets.a b", {"source": "x"}, "1 to 64 letters"),
        ("datasets..hidden", None, ""),
        ("datasets.d", None, "has no value: give a mapping with `source:`"),
        ("datasets.d", {}, "is missing: give a URL"),
        ("datasets.d", {"source": "x", "sources": [{"url": "x"}]}, "not both"),
        ("datasets.d.source", None, "give a URL"),
        ("datasets.d.source", ["x"], "is a list"),
        ("datasets.d.source", "s3://", "names no bucket"),
        ("datasets.d.source", "https:///x", "names no host"),
        ("datasets.d.source", "s3:/bucket/x", "is no URL"),
        ("datasets.d.source", "a\nb", "control character"),
        ("datasets.d.include", "**", "is text; give a list"),
        ("datasets.d.include", [3], "in quotes"),
        ("datasets.d.release", "../x", "or a name"),
        ("datasets.d.release", "a/b", "or a name"),
        ("datasets.d.links", "keep", "refuse, skip or follow"),
        ("datasets.d.changed", "ignore", "refuse, follow or pinned"),
        ("datasets.d.permissions.file_mode", 288, "in quotes"),
        ("datasets.d.permissions.file_mode", "0666", "everybody"),
        ("datasets.d.permissions.dir_mode", "4755", "setuid"),
        ("datasets.d.permissions.group", "a:b", "name of a group"),
        ("datasets.d.permissions.owner", "root", "unknown key"),
        ("datasets.d.permissions.mtime", "yes please", "keep or now"),
        ("datasets.d.permissions.modes", [{"file": "0550"}], "is missing: give a pattern"),
        ("datasets.d.permissions.modes", [{"match": "bin/**"}], "names no mode"),
        ("datasets.d.permissions.modes", [{"match": "!bin/**", "file": "0550"}], "does not begin with !"),
        ("datasets.d.permissions.modes", [{"match": "bin/**", "file": "0777"}], "everybody"),
        ("datasets.d.permissions.modes", [{"match": "bin/**", "dir": 755}], "in quotes"),
        ("datasets.d.permissions.acl", "group:a:r", "is text; give a list"),
        ("datasets.d.permissions.acl", ["group::r-x"], "an entry such as"),
        ("datasets.d.permissions.acl", ["A:g:genomics@site:rx"], "NFSv4 ACLs"),
        ("datasets.d.permissions.acl", ["group:a:r", "g:a:rX"], "of the same one as acl[0]"),
        ("cluster.backend", "pbs", "local or slurm"),
        ("cluster.partition", "x; touch PWNED", "a partition's name"),
        ("cluster.partition", "--wrap=id", "a partition's name"),
        ("cluster.partition", "a,-b", "a partition's name"),
        ("cluster.account", "$(id)", "an account's name"),
        ("cluster.qos", "a b", "a QOS's name"),
        ("cluster.reservation", "`id`", "a reservation's name"),
        ("cluster.constraint", "ib;id", "features joined"),
        ("cluster.licenses", ["wan:1,x;id"], "a licence such as"),
        ("cluster.licenses", "wan:1", "is text; give a list"),
        ("cluster.exclude", "/etc/passwd", "a list of hosts"),
        ("cluster.exclude", "n[4-", "a list of hosts"),
        ("cluster.exclude", "--wrap=id", "a list of hosts"),
        ("cluster.exclude", "n[9-1]", "is no range of hosts"),
        ("cluster.wckey", "a b", "a workload characterization key"),
        ("cluster.mail", "a b", "an address"),
        ("cluster.mail", {"to": "a"}, "an address"),
        ("cluster.time", 4, "a time with its unit"),
        ("cluster.time", "4 hours", "a time with its unit"),
        ("cluster.memory", "16", "a size with its unit"),
        ("cluster.core_spec", "two", "a number of cores, auto, or none"),
        ("cluster.core_spec", -1, "a number of cores, auto, or none"),
        ("target.root", "/data/$USER/x", "write /data/ann/x"),
        ("target.root", "ann@nas:/data", "a folder that is mounted here"),
        ("target.state_root", "${NOWHERE}/state", "write the path out"),
        ("datasets.d.source", "$HOME/x", "write /home/ann/x"),
        ("datasets.d.source", "ann@nas:/data", "is a path of scp, which is no source: write sftp://ann@nas/data"),
        ("target.root", "s3:/bucket/x", "begins as a URL, and this is a folder that is mounted here"),
        ("datasets.d.source", "s3:/bucket/x", "is no URL: write s3://bucket/x (or ./s3:/bucket/x"),
        ("datasets.d.source", "S3:bucket", "is no URL: write s3://bucket "),
        ("datasets.d.source", "https:/x.example/a", "is no URL: write https://x.example/a "),
        ("datasets.d.source", "abfs:/box@acc/a", "is no URL: write abfs://box@acc/a "),
        ("datasets.d.source", "file:/data", "is no URL: write /data "),
        ("datasets.d.source", "https:/ann:hush@x.example/a", "secrets do not belong in this file"),
        ("cluster.gpu_nodes", "no", "allow or refuse"),
        ("cluster.max_elements", 0, "at least 1"),
        ("cluster.max_elements", True, "a number of nodes"),
        ("cluster.python", "python3", "the absolute path"),
        ("cluster.python", "/usr/bin/python3 -c x", "the absolute path"),
        ("cluster.steps", {"verfy": {}}, "did you mean `verify`?"),
        ("cluster.steps", {"verify": {"backend": "local"}}, "unknown key"),
        ("cluster.steps", {"verify": {"time": "soon"}}, "a time with its unit"),
        ("engine.limit", "20Gbit", "a rate with its unit"),
        ("engine.timeout", 60, "a time with its unit"),
        ("verify.digests", ["md5"], "xxh3_128"),
        ("verify.digests", ["sha256"], "a list with xxh3_128"),
        ("verify.minimum_grade", "hot", "cold-other-node"),
        ("extra", 1, "unknown key"),
        ("permissions", {"group": "ml"}, "unknown key; its place is `datasets.NAME.permissions`"),
        ("retention", {"last": 3}, "unknown key; its place is `datasets.NAME.retention`"),
        ("datasets.d.group", "ml", "unknown key; its place is `datasets.d.permissions.group`"),
        ("datasets.d.profile", "x", "unknown key; its place is `datasets.d.storage_options.profile`"),
        ("target.exclude", [], "unknown key; its place is `cluster.exclude` or `datasets.NAME.exclude`"),
        ("partition", "gpu", "unknown key; its place is `cluster.partition`"),
        ("cluster.steps", {"verify": {"backend": "local"}}, "its place is `cluster.backend`"),
    ],
)  # fmt: skip
def test_bad_values(write: Any, path: str, value: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("USER", "ann")
    monkeypatch.delenv("NOWHERE", raising=False)
    if path == "datasets..hidden":
        config = {**GOOD, "datasets": {".hidden": {"source": "x"}}}
        path = "datasets..hidden"
    else:
        config = changed(path, value)
    message = refused(write(config))
    first = path.split(".")[0]
    assert first in message
    assert path.rsplit(".", 1)[-1] in message or path in message
    assert says in message
    assert "(line " in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("files", "limit", "allowed"),
    [
        (20_000, settings.FollowLimit(), (1000, 20)),
        (10, settings.FollowLimit(), (1, 1)),
        (1, settings.FollowLimit(), (1, 0)),
        (10, settings.FollowLimit(0.0, 0.0), (0, 0)),
        (10, settings.FollowLimit(1.0, 1.0), (10, 9)),
    ],
)
def test_how_many_files_may_change(files: int, limit: settings.FollowLimit, allowed: tuple[int, int]) -> None:
    assert limit.allowed(files) == allowed


@pytest.mark.parametrize("url", ["/nfs/data", "https://host/data/", "az://container/data/"])
def test_versions_stay_in_s3_alone(write: Any, url: str) -> None:
    message = refused(write(changed("datasets.d", {"source": url, "changed": "pinned"})))
    assert "datasets.d.changed" in message
    assert "versioned S3" in message


@pytest.mark.parametrize(
    ("intos", "says"),
    [
        (["", "a"], "several sources need a folder each"),
        (["a", "a"], "is, or lies in, the folder of sources[0]"),
        (["a", "a/b"], "is, or lies in, the folder of sources[0]"),
        (["a/b", "a"], "is, or lies in, the folder of sources[0]"),
        (["/a", "b"], "must be relative"),
        (["a/../b", "c"], "must not climb"),
        (["x" * 256, "c"], "longer than 255 bytes"),
    ],
)
def test_folders_of_several_sources(write: Any, intos: list[str], says: str) -> None:
    sources = [{"url": f"s3://b/{i}/", "into": into} for i, into in enumerate(intos)]
    message = refused(write(changed("datasets.d", {"sources": sources})))
    assert "datasets.d.sources[" in message
    assert says in message


SECRET = "hunter2-do-not-show"


@pytest.mark.parametrize(
    "value",
    [
        {"source": "s3://b/", "storage_options": {"key": SECRET}},
        {"source": "s3://b/", "storage_options": {"secret": SECRET}},
        {"source": "s3://b/", "storage_options": {"aws_secret_access_key": SECRET}},
        {"source": "s3://b/", "storage_options": {"client_kwargs": {"aws_session_token": SECRET}}},
        {"source": "az://c/", "storage_options": {"account_key": SECRET}},
        {"source": "az://c/", "storage_options": {"sas_token": SECRET}},
        {"source": "az://c/", "storage_options": {"connection_string": SECRET}},
        {"source": "az://c/", "storage_options": {"CONNECTION-STRING": SECRET}},
        {"source": "x", "password": SECRET},
        {"source": f"https://user:{SECRET}@host/x"},
        {"source": f"https://{SECRET}@host/x"},
        {"source": f"abfss://c:{SECRET}@account.dfs.core.windows.net/x"},
        {"source": f"https://host/x?X-Amz-Signature={SECRET}"},
        {"source": f"https://c.blob.core.windows.net/x?sv=1&sig={SECRET}"},
        {"source": "s3://b/", "storage_options": {"proxy": f"http://me:{SECRET}@proxy:3128"}},
        {"sources": [{"url": f"ftp://u:{SECRET}@h/x", "into": "a"}]},
    ],
)
def test_secrets_are_refused_and_never_shown(write: Any, value: dict[str, Any]) -> None:
    message = refused(write(changed("datasets.d", value)))
    assert SECRET not in message
    assert "datasets.d." in message
    assert "profile" in message
    assert "0600" in message


def test_what_only_looks_like_a_secret(write: Any) -> None:
    options = {
        "reader": "fsspec",
        "token": "google_default",
        "credentials_file": "/c",
        "endpoint_url": "http://h:1",
    }
    config = changed("datasets", {"token": {"source": "gs://b/", "storage_options": options}})
    assert load(write(config)).datasets["token"].sources[0].storage_options == options
    other = {"key_file": "/k", "anon": True}
    config = changed("datasets", {"token": {"source": "other://b/", "storage_options": other}})
    assert load(write(config)).datasets["token"].sources[0].storage_options == other
    url = "abfss://container@account.dfs.core.windows.net/x/"
    assert load(write(changed("datasets.d.source", url))).datasets["d"].sources[0].url == url


def test_all_problems_at_once(write: Any) -> None:
    message = refused(
        write(
            "target: {root: /x}\ndatasets:\n  a: {source: x, include: 3}\nplan: {shard_bytes: 5}\nengin: {}\n"
        )
    )
    assert "3 problems" in message
    assert "datasets.a.include (line 3)" in message
    assert "plan.shard_bytes (line 4)" in message
    assert "engin (line 5): unknown key; did you mean `engine`?" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"), ("# nothing\n", "is empty"), ("- a\n", "not a mapping"), ("text", "not a mapping"),
        ("target: {root: /x}\n", "datasets (line 1): is missing"),
        ("target: {root: /x}\ntarget: {root: /y}\n", "line 2"),
        ("a: [", "cannot be read"),
        ("target: {root: no}\n", "quotes"),
    ],
)  # fmt: skip
def test_bad_files(write: Any, text: str, says: str) -> None:
    message = refused(write(text))
    assert says in message
    assert "my.yaml" in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "--config FILE" in refused(tmp_path / "none.yaml")
    assert "Is a directory" in refused(tmp_path)


def test_json_round_trip(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What elements read back from the run's folder is what was configured."""
    monkeypatch.chdir(ROOT)
    config = load("config.yaml")
    frozen = json.loads(json.dumps(to_json(config)))
    assert from_json(settings.Config, frozen) == config


def test_frozen_settings_of_other_versions_are_read() -> None:
    frozen = to_json(settings.PlanConfig(shard_files=7))
    frozen["of_a_later_version"] = 1
    del frozen["reuse"]
    assert from_json(settings.PlanConfig, frozen) == settings.PlanConfig(shard_files=7)
    with pytest.raises(TypeError):
        from_json(settings.DatasetConfig, {"name": "d"})
    with pytest.raises(TypeError):
        from_json(settings.PlanConfig, [])


@pytest.mark.parametrize(
    ("given", "total", "kept"),
    [
        ("0B", 200 * settings.TIB, 0),
        ("10GiB", 10 * settings.GIB, 10 * settings.GIB),
        (None, 10 * settings.GIB, settings.GIB),
        (None, 100 * settings.TIB, settings.GIB),
        (None, 200 * settings.TIB, 10 * settings.TIB),
        (None, 10_000 * settings.TIB, 500 * settings.TIB),
    ],
)
def test_s18_what_is_left_free(write: Any, given: str | None, total: int, kept: int) -> None:
    """S18: the rows of `TargetConfig.kept`; what is given holds as it stands."""
    assert load(write(changed("target.keep_free", given))).target.kept(total) == kept


def test_each_source_reaches_its_servers_as_the_settings_say(write: Any) -> None:
    dataset = {
        "sources": [
            {"url": "s3://b/x/", "into": "a", "storage_options": {"proxy": "http://p:3128"}},
            {"url": "ftp://h/x/", "into": "b", "storage_options": {"ca_bundle": "/ca.pem"}},
        ]
    }
    config = load(write({**GOOD, "datasets": {"d": dataset}, "engine": {"timeout": "90s"}}))
    reach = [source.reach for source in config.datasets["d"].sources]
    assert reach == [(90.0, "", "http://p:3128"), (90.0, "/ca.pem", "")]
    frozen = serialization.RunConfig(
        json.loads(json.dumps(serialization.freeze(config, config.datasets["d"]))), "run.json"
    )
    assert [source.reach for source in frozen.dataset.sources] == reach
