"""Fixed results of commands, for the golden screens: of each a rich one, in which all is set that is shown,
and a poor one, which has no more than it must."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.core import typed_json
from penstock.core.catalogue_rows import DiffCount, DiffRow, Explanation, OtherSteps, SizeClass
from penstock.core.element_documents import StepUse, Usage
from penstock.core.estimates import (
    ASSUMED,
    Known,
    Rate,
    Reached,
    Work,
    forecast,
)
from penstock.core.findings import (
    Difference,
    Finding,
    LastAudit,
    LastRepair,
    Verdict,
)
from penstock.core.run_steps import CheckResult
from penstock.core.step_results import Frees
from penstock.dataset import release_records

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
TB = 10**12
HOSTILE = "x\x1b[31m\n\u202e\udcff"
LONG = "/target/" + "a-folder-of-a-long-name/" * 5 + "data"
WORDS = "a sentence of many words that goes on until it does not fit into one line of a terminal any more"

AUDIT = LastAudit(
    audit="a1", began="2026-03-14T12:00:00Z", choice="sample", status="FINDINGS",
    counts={"missing": 1, "changed": 1200}, files=1200, of_files=123456, bytes=5 * GIB, seconds=12.5,
    promise="finds 1 % of damage", ended="2026-03-14T12:10:00Z", by="ann", skipped={"offline": 3},
    grade="cold",
)  # fmt: skip
CLOSED = release_records.last_audit_of(
    Verdict("imagenet", "r2", "sha256:00", last=AUDIT, repair=LastRepair("2026-03-14T13:00:00Z", "a1", 1201))
)
OPEN = release_records.last_audit_of(
    Verdict("imagenet", "r2", "sha256:00", last=LastAudit(audit="a2", status="PASSED"))
)

CHECKS = [
    CheckResult("interpreter", "/opt/python 3.11.2", wanted="not shown of what is in order"),
    CheckResult("storage target 104", "Offline", "stop", "Online", "`penstock cancel data`"),
    CheckResult(f"mount {LONG}", WORDS, "warning", WORDS, WORDS),
    CheckResult(HOSTILE, HOSTILE, "note", HOSTILE, HOSTILE),
]
PREFLIGHT: Any = {
    "dataset": "imagenet", "checked": ["interpreter: /opt/python 3.11.2"], "warnings": ["mount: slow"],
    "results": CHECKS, "nodes": [{"format": 1, "host": "n1"}],
}  # fmt: skip
NO_CHECKS: Any = {"dataset": "imagenet", "checked": [], "warnings": [], "results": [], "nodes": []}

NOW = 1773576000.0
"""2026-03-15T12:00:00Z."""
STATUS: list[Any] = [
    {
        "dataset": "imagenet", "state": "published", "pause": "ann: until noon", "current": "r2",
        "releases": ["r1", "r2"], "lock": "ann runs `penstock copy` on n1", "path": LONG, "files": 123456,
        "bytes": 3 * GIB, "sealed": "2026-03-14T12:00:00Z", "last_audit": CLOSED,
        "findings": {"missing": 1, "changed": 1200}, "seen": "2026-03-14T12:00:00Z", "run": "0" * 16,
        "release": "r3", "arrays": ["7 of copy: 3 elements"], "abandoned": ["r0.staging"],
        "pins": ["r1: job 7"],
        "ops": ["ann on n1 since noon"],
        "work": {
            "state": "copying", "step": "copy", "percent": 42.1,
            "copy": {
                "elements": 12, "done": 3, "files": 1200, "bytes": GIB, "of_bytes": 3 * GIB, "failed": 1
            },
            "verify": {
                "elements": 12, "done": 1, "files": 400, "bytes": GIB // 3, "of_bytes": 3 * GIB, "failed": 0
            },
        },
    },
    {
        "dataset": "held", "state": "held", "why": WORDS, "to_do": "ask ann", "last_audit": OPEN,
        "work": {"state": "stopped", "step": "copy", "percent": 42.1, "signal": "SIGINT", "at": "2026-11-26"},
    },
    {
        "dataset": "failed", "state": "failed",
        "work": {"state": "failed", "why": HOSTILE, "to_do": "free space", "exit": 6, "at": "2026-11-26"},
    },
]  # fmt: skip
NO_STATUS: list[Any] = [{"dataset": "d", "state": "nothing published", "current": None}]

RELEASE: Any = {
    "release": "2026-11-21-3fa9c1d2", "path": f"{LONG}/r2", "current": True, "state": "published",
    "problem": "",
    "files": 123456, "bytes": 3 * GIB, "sealed": "2026-11-21T10:00:00Z", "age": 90000.0,
    "source_grade": "full",
    "storage_grade": "cold-other-node", "base": "r1", "unchanged": 1200, "last_audit": CLOSED,
    "audit_age": 600.0,
    "findings": {"missing": 1}, "held_by": ["last: 1 of 2", "pin: job 7 of ann", WORDS, "pin: job 9"],
    "pins_unopened": 2, "last_pin": {"by": "ann", "age": 60.0},
}  # fmt: skip
UNKNOWN_RELEASE: Any = {
    "release": "r1", "path": "/t/r1", "current": False, "state": "held", "problem": WORDS, "files": None,
    "bytes": None, "sealed": None, "age": None, "source_grade": "", "storage_grade": "", "base": None,
    "unchanged": 0, "last_audit": None, "audit_age": None, "findings": {}, "held_by": [], "pins_unopened": 0,
    "last_pin": None,
}  # fmt: skip
DATASETS: list[Any] = [
    {
        "dataset": "imagenet", "path": "/t/imagenet", "owner": {"uid": 7, "user": "ann"}, "current": "r2",
        "state": "published", "problem": WORDS, "pause": f"ann: {WORDS}", "hold": WORDS,
        "releases": [
            RELEASE,
            {
                **RELEASE, "release": "r1", "current": False, "last_audit": OPEN, "held_by": [],
                "pins_unopened": 0,
            },
            UNKNOWN_RELEASE,
        ],
        "files": 246912, "bytes": 6 * GIB,
        "stagings": [
            {"name": f".{HOSTILE}.staging", "kind": "staging", "state": "under way", "age": 60.0},
            {"name": ".x", "kind": "other", "state": "unknown", "age": None},
        ],
    },
    {
        "dataset": "d", "path": "/t/d", "owner": None, "current": None, "state": "nothing published",
        "problem": "", "pause": "", "hold": "", "releases": [], "files": 0, "bytes": 0, "stagings": [],
    },
]  # fmt: skip

HISTORY_ROW: Any = {
    "at": "2026-11-21T10:00:00Z", "event": "published", "release": "2026-11-21-3fa9c1d2", "by": "ann",
    "host": "n1",
    "text": WORDS, "known": True, "line": {"format": 1, "event": "published"},
}  # fmt: skip
UNKNOWN_ROW: Any = {
    **HISTORY_ROW, "at": "then", "event": "moved", "release": "", "by": "", "host": "", "text": "",
    "known": False,
}  # fmt: skip
HISTORIES: list[Any] = [
    {
        "dataset": "imagenet", "path": "/t/history.jsonl", "problem": WORDS,
        "lines": [HISTORY_ROW, UNKNOWN_ROW] * 2,
        "damaged": 2,
    }
]  # fmt: skip
NO_HISTORY: list[Any] = [{"dataset": "d", "path": "/t/h", "problem": "", "lines": [], "damaged": 0}]

SHOWN: Any = {
    "dataset": "imagenet",
    "row": RELEASE,
    "owner": {"uid": 7, "user": ""},
    "seal": {
        "giants": 2, "part_bytes": GIB, "penstock": "1.0.0", "run": "0" * 16, "scanned": 200000,
        "sources": [{"url": "s3://bucket/prefix", "into": "a"}, {"url": "file:///b", "into": ""}],
        "include": ["*.tar", "*.json"], "exclude": ["tmp/**"], "ignored": {"excluded": 5, "markers": 0},
        "amended": {
            "changed": 1200, "gone": 3, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:30:00Z",
        },
        "permissions": {
            "octal": {"files": "0640", "folders": "0750"}, "gid": 100, "group": "users", "uid": 7,
            "user": None,
            "modes": [{"match": "*.sh", "file": 0o750, "dir": None}], "acl": ["user:12:r-x"],
        },
        "evidence": {
            "required_source": "size", "required_storage": "", "fsync_ends": "in the client's cache",
            "read_after": {"least": 190, "median": 2500, "soon": 7},
        },
        "carried": {"files": 989010, "bytes": 1, "oldest_read": "2026-11-02T03:04:05Z"},
    },
    "seal_digest": "sha256:" + "0" * 64, "seal_in_history": "same", "signature": "ann's key, and it holds",
    "source_evidence": [
        {"grade": "full", "files": 123000, "bytes": GIB}, {"grade": "size", "files": 1, "bytes": 1},
    ],
    "storage_evidence": [{"grade": "cold", "files": 123456, "bytes": 3 * GIB}],
    "manifests": [
        {"name": "manifest.parquet", "bytes": 1 << 20, "sha256": "0"},
        {"name": "x", "bytes": None, "sha256": "1"},
    ],
    "read_back": "2026-11-02T03:04:05Z",
    "verdict": {
        "repair": {"at": "2026-11-03T00:00:00Z", "repaired": 3, "left": 1},
        "overruled": {"at": "2026-11-04T00:00:00Z", "by": "ann", "why": WORDS, "counts": {"missing": 1}},
    },
    "advice": "`penstock repair imagenet` restores what is damaged",
    "history": [HISTORY_ROW, UNKNOWN_ROW],
    "audits": [HISTORY_ROW],
}  # fmt: skip
BARELY_SHOWN: Any = {
    "dataset": "d", "row": UNKNOWN_RELEASE, "owner": None, "seal": None, "seal_digest": "",
    "seal_in_history": "unreadable", "signature": "", "source_evidence": [], "storage_evidence": [],
    "manifests": [], "read_back": None, "verdict": None, "advice": "", "history": [], "audits": [],
}  # fmt: skip

AREA: Any = {
    "kind": "release", "name": "2026-11-21-3fa9c1d2", "state": "current", "files": 1200, "folders": 3,
    "bytes": 3 * GIB, "unique_files": 7, "unique_bytes": GIB, "frees": [], "project": 12, "pool": "nvme",
    "unreadable": 0,
}  # fmt: skip
USES: list[Any] = [
    {
        "dataset": "imagenet", "path": "/t/imagenet", "problem": "",
        "areas": [
            AREA,
            {**AREA, "kind": "staging", "name": HOSTILE, "state": "left", "project": None},
            {**AREA, "kind": "state", "name": "", "state": "", "files": 0, "folders": 0, "unreadable": 3},
            {**AREA, "kind": "other", "name": "", "state": "", "files": 0, "folders": 0},
        ],
        "shared_files": 5, "shared_bytes": GIB, "outside_files": 1, "outside_bytes": 7, "files": 1207,
        "folders": 9,
        "bytes": 4 * GIB,
        "owners": [
            {"uid": 7, "user": "ann", "gid": 100, "group": "users", "files": 1200, "bytes": GIB},
            {"uid": 8, "user": "", "gid": 101, "group": "", "files": 1, "bytes": 1},
        ],
        "last_pins": {"r1": {"by": HOSTILE, "age": 90000.0}}, "seconds": 1.5,
    },
]  # fmt: skip
NO_USES: list[Any] = [
    {
        "dataset": "d", "path": "/t/d", "problem": "it cannot be read", "areas": [], "shared_files": 0,
        "shared_bytes": 0, "outside_files": 0, "outside_bytes": 0, "files": 0, "folders": 0, "bytes": 0,
        "owners": [], "last_pins": {}, "seconds": 0.0,
    }
]  # fmt: skip

DIFF: Any = {
    "kind": "summary", "dataset": "imagenet", "before": "r1", "after": "", "source": ["s3://b/p", "s3://c/p"],
    "equal": False,
    "counts": {
        "unchanged": DiffCount(5, 5, 5),
        "changed": DiffCount(1200, 3 * GIB, GIB),
        "unproven": DiffCount(1, 7, 0),
        "renamed": DiffCount(0, 0, 0),
    },
    "permissions": "group: users -> staff",
}  # fmt: skip
SAME: Any = {
    "kind": "summary", "dataset": "d", "before": "r1", "after": "r2", "source": [], "equal": True,
    "counts": {},
    "permissions": "",
}  # fmt: skip
DIFF_ROWS = [
    DiffRow("changed", os.fsencode(HOSTILE), None, 7, 8),
    DiffRow("changed", b"b", None, 5 * GIB, 5 * GIB + 1),
    DiffRow("unproven", b"c", None, 5, 5),
    DiffRow("renamed", b"d/new", b"d/old", 5, 5),
    DiffRow("removed", b"e", None, None, 5),
    DiffRow("added", b"f", None, 5, None),
]

AUDITED: Any = {
    "dataset": "data", "release": "r1", "audit": "a1", "status": "FINDINGS",
    "counts": {"changed": 60, "extra": 1},
    "findings": [
        Finding("extra", HOSTILE, "a file that was not published"),
        Finding("changed", "giant", "read as b", (2, 5)),
        Finding("changed", "part", "read as c", tuple(range(12))),
        *(Finding("changed", f"f{number}", "read as d") for number in range(58)),
    ],
    "all_findings": f"{LONG}/findings.jsonl",
    "skipped": {"offline": {"files": 3, "bytes": GIB, "paths": [("a", "released by HSM"), (HOSTILE, "b")]}},
    "all_skipped": "/t/skipped.jsonl", "grade": "cold", "files": 1200, "of_files": 123456, "rows": 1300,
    "resumed": 7, "bytes": 5 * GIB, "elements": 3, "methods": {"direct": 1198, "cached": 2, "new": 1},
    "choice": "sample", "owner": True, "promise": WORDS, "began": "2026-03-14T12:00:00Z", "moved_bytes": GIB,
    "seconds": 2.0,
}  # fmt: skip
CLEAN: Any = {
    **AUDITED, "status": "PARTLY", "counts": {}, "findings": [], "skipped": {}, "all_skipped": "",
    "methods": {},
    "files": 0, "of_files": 1, "bytes": 0,
}  # fmt: skip
REPAIRED: Any = {
    "dataset": "data", "release": "r1", "audit": "a1", "status": "PARTLY", "repaired": [["a", "direct"]] * 60,
    "unrepairable": [[HOSTILE, WORDS]], "left": ["c"], "also_repaired": {"r0": ["a"], "r2": ["a", "b"]},
    "also_in": {"r3": 1, "r4": 2}, "fetched_bytes": 2048, "moved_bytes": 2048, "seconds": 0.5,
    "fsync_ends": "in the client's cache",
}  # fmt: skip
NOT_REPAIRED: Any = {
    "dataset": "data", "release": "r1", "audit": "a1", "status": "NOTHING", "repaired": [],
    "unrepairable": [],
    "left": [], "also_repaired": {}, "also_in": {}, "fetched_bytes": 0, "moved_bytes": 0, "seconds": 0.0,
}  # fmt: skip
OVERRULED: Any = {
    "dataset": "data", "release": "r1", "status": "OVERRULED", "counts": {"missing": 1200, "changed": 2},
    "why": WORDS,
}  # fmt: skip

NO_FREES = Frees(0, 0, 0, {}, {}, {}, 0)
FREES = Frees(
    bytes=3 * GIB, inodes=1201, shared_bytes=GIB, users={"ann": 2 * GIB, "1000": GIB},
    groups={HOSTILE: 3 * GIB}, projects={"12": 3 * GIB}, unseen_folders=2,
)  # fmt: skip
COLLECTED: Any = {
    "dataset": "data", "dry_run": False,
    "releases": [
        {"release": "r1", "files": 301, "bytes": 1 << 20, "removed": True, "held_by": []},
        {
            "release": "r2", "files": 1, "bytes": 7, "removed": False,
            "held_by": [f"grace: {WORDS}", "last: 2 of 2"],
        },
    ],
    "stagings": [
        {"staging": ".r0.staging", "removed": True, "why": ""},
        {"staging": HOSTILE, "removed": False, "why": WORDS},
    ],
    "interrupted": [".removed-r0-1"], "ended_pins": [f"pin {number}" for number in range(22)],
    "unpinned": [HOSTILE], "frees": FREES, "cleared": 3, "waits": WORDS, "gone": "/t/data",
}  # fmt: skip
NOT_COLLECTED: Any = {
    "dataset": "d", "dry_run": True, "releases": [], "stagings": [], "interrupted": [], "ended_pins": [],
    "unpinned": [], "frees": NO_FREES, "cleared": 0, "waits": "",
}  # fmt: skip

ADOPTED: Any = {
    "dataset": "data", "tree": LONG, "adoption": "c1", "status": "DIFFERS",
    "same": [
        {"files": 5, "bytes": 5, "how": "checksum", "grade": "full"},
        {"files": 1200, "bytes": GIB, "how": "source", "grade": ""},
        {"files": 2, "bytes": 2, "how": "size", "grade": ""},
        {"files": 1, "bytes": 1, "how": "size", "grade": "etag-md5"},
    ],
    "counts": {
        "missing": {"files": 1, "bytes": 7}, "content": {"files": 60, "bytes": GIB},
        "time": {"files": 1, "bytes": 1},
        "excluded": {"files": 3, "bytes": 0},
    },
    "differences": [
        Difference("time", "t", 1, "of another time"),
        Difference("missing", HOSTILE, 7, "the tree does not have it"),
        *(Difference("content", f"f{number}", 9, "read as d", "checksum") for number in range(55)),
    ],
    "all_differences": f"{LONG}/differences.jsonl", "files": 1268, "bytes": 2 * GIB, "scanned": 1300,
    "ignored": {"excluded": 32}, "sources": ["s3://b/p", "s3://c/p"], "read_source": True,
    "methods": {"direct": 1198, "cached": 2}, "earlier": 1000, "elements": 3, "began": "2026-03-14T12:00:00Z",
    "moved_bytes": GIB, "seconds": 7.25,
}  # fmt: skip
NOT_ADOPTED: Any = {
    **ADOPTED, "tree": "/t/data", "status": "SAME", "same": [], "counts": {}, "differences": [],
    "methods": {},
    "earlier": 0, "files": 0, "bytes": 0,
}  # fmt: skip
SEALED: Any = {
    "dataset": "data", "release": "r1", "path": LONG, "current": "r1", "fetched": 1200, "aside": ["/t/aside"],
    "undo": "/t/undo",
}  # fmt: skip
BARELY_SEALED: Any = {**SEALED, "path": "/t/r1", "current": None, "fetched": 0, "aside": []}

LISTED: Any = {
    "dataset": "imagenet", "run": "0" * 16, "release": "r2", "files": 123456, "bytes": 3 * GIB,
    "scanned": 200000,
    "listing_digest": "sha256:00", "ignored": {"excluded": 76544, "markers": 3}, "hard_links": {},
    "published": False, "current": "r1",
}  # fmt: skip
LISTED_BEFORE: Any = {**LISTED, "ignored": {}, "published": True, "current": None}
PLANNED: Any = {
    "dataset": "imagenet", "run": "0" * 16, "release": "r2", "published": False, "files": 123456,
    "bytes": 3 * GIB,
    "giants": 2, "unchanged": 1200, "unchanged_bytes": GIB, "renamed": 7, "taken": 3, "taken_bytes": 9,
    "shards": 12,
    "base": "r1", "folders": 99, "why": [f"12 shards: {WORDS}", HOSTILE],
}  # fmt: skip
PLANNED_BEFORE: Any = {
    **PLANNED, "published": True, "files": 1, "bytes": 1, "giants": 0, "unchanged": 0, "unchanged_bytes": 0,
    "renamed": 0, "shards": 0, "base": None, "why": [],
}  # fmt: skip
PREVIEWS: Any = {
    "datasets": {
        "imagenet": {
            "dataset": "imagenet", "sources": ["s3://b/p", f"file://{LONG}"], "target": LONG,
            "backend": "slurm",
            "state": "published", "current": "r1", "files": 123456, "bytes": 3 * GIB, "lock": f"ann {WORDS}",
            "would": WORDS, "takes": f"5 files; {WORDS}", "problem": f"a\n  b {HOSTILE}",
        },
        "d": {"dataset": "d", "sources": [], "target": "/t", "backend": "local", "current": None},
    }
}  # fmt: skip

_USAGE: Any = {
    "steps": [
        {
            "step": "copy", "elements": 12, "node_hours": 1.52, "core_hours": 9.13, "cpu_seconds": 3600.5,
            "cpu_efficiency": 0.634, "memory_peak": 400 << 20, "wait_median": 12.0, "wait_longest": 3725.0,
            "run_median": 250.0, "run_longest": 540.0,
        },
        {"step": "verify", "elements": 12, "core_hours": 0.0123},
        {
            "step": "", "elements": 24, "node_hours": 1.52, "core_hours": 1234.5, "cpu_efficiency": 0.5,
            "memory_peak": 400 << 20, "wait_median": 12.0, "wait_longest": 3725.0, "run_median": 250.0,
            "run_longest": 540.0,
        },
    ],
    "worst": [
        {"column": "queue_wait", "step": "copy", "element": 7, "node": "n4", "value": 3725.0},
        {"column": "seconds", "step": "verify", "element": 1, "node": "", "value": 540.0},
        {"column": "cpu_efficiency", "step": "copy", "element": 3, "node": "", "value": 0.021},
    ],
    "sources": {"queue_wait": {"controller": 20, "slurmdbd": 4}, "hours": {"element": 24}},
    "notes": ["2 starts left no figures"],
    "file": "/t/elements.parquet",
}  # fmt: skip
USAGE, NO_USAGE = typed_json.read(Usage, _USAGE), Usage([StepUse("copy", 1)])
RESULT: Any = {
    "dataset": "imagenet", "status": "FINDINGS", "why": f"{WORDS} {HOSTILE}", "run": "0" * 16,
    "release": "r2",
    "path": LONG, "current": "/t/current", "current_release": "r1",
    "report": "results/imagenet/0/report.html",
    "seconds": 41.0, "scanned": {"files": 20004, "bytes": 4 * GIB}, "ignored": {"excluded": 2, "markers": 0},
    "hard_links": {"files": 1234567, "of": 123456, "bytes": 3 * GIB},
    "amended": {"changed": 1200, "gone": 3, "from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:30:00Z"},
    "unchanged": {"files": 2, "bytes": 100}, "renamed": {"files": 1, "bytes": 50}, "taken": {"files": 7},
    "copied": {"files": 20000, "bytes": 3 * GIB, "seconds": 20.0, "moved_bytes": GIB, "moved_seconds": 5.0},
    "resumed": {"files": 9, "bytes": 2 * GIB}, "verified": {"files": 20002, "bytes": 3 * GIB, "seconds": 4.0},
    "giants": 2, "parts": 8, "failed": 30,
    "retries": 1234, "retried": {"HTTP 503": 1200, HOSTILE: 34}, "slowest": [(8.25, GIB, HOSTILE)],
    "bytes_in": GIB, "bytes_out": 3 * GIB,
    "ceiling": Reached("network link", 0.962, 2.5e9, "bytes"), "pib_miles_an_hour": 147.0588,
    "usage": USAGE, "carried": "carried 989,010 files, the oldest reading of 2026-11-02",
    "read_after": "read back 3 min after writing at least, 41 min in the median",
    "evidence": {
        "source": {"size": {"files": 2}, "full": {"files": 20000}}, "storage": {"cold": {"files": 20002}},
        "methods": {"direct": {"files": 20002}},
    },
    "last_audit": CLOSED, "findings": {"missing": 1}, "warnings": [f"{WORDS} {HOSTILE}"],
    "failures": [{"path": f"{HOSTILE}{number}", "why": WORDS} for number in range(12)],
}  # fmt: skip
NO_RESULT: Any = {"dataset": "d"}

CEILINGS = forecast(
    Work(3_081_617, 12 * TB),
    4,
    [
        Known("network link", "all", Rate(2.5e9, "bandwidth cap")),
        Known("target's metadata", "all", Rate(5000, "target.ops"), "operations"),
        Known("target's writes", "all", Rate(9.6e9, "rehearsed 2 Nov")),
        Known("nodes' networks", "node", Rate(12.5e9, "this machine")),
        Known("nodes' CPUs", "node", Rate(6.25e9, ASSUMED)),
        Known("source", "all", None),
    ],
)
CLASSES = (
    SizeClass(128 << 10, 1_900_000, 110 * 10**9),
    SizeClass(1 << 30, 1_181_610, 11 * TB),
    SizeClass(64 << 30, 0, 0),
    SizeClass(None, 7, 890 * 10**9),
)
EXPLANATIONS: Mapping[str, Explanation] = {
    "first release": Explanation(
        "corpus", 3_081_617, 12 * TB, Work(3_081_617, 12 * TB), 4, CEILINGS, 600.5, classes=CLASSES,
        shards=12, requests={"get": 3_081_617, "list": 3082}, queue=[f"start: not before {HOSTILE}"],
        space=["takes 10.9 TiB of 375 TiB free on beegfs", WORDS],
    ),
    "some changed": Explanation(
        "corpus", 3_081_617, 12 * TB, Work(5, 1000), 4, forecast(Work(5, 1000), 4, [
            Known("elements (files)", "node", Rate(10, f"release {HOSTILE}"), "files")
        ]), None, HOSTILE,
        {"unchanged": DiffCount(7, 8, 8), "added": DiffCount(5, 1000), "removed": DiffCount(2)},
        CLASSES, 1, OtherSteps("r1", 3600.0),
    ),
    "nothing changed": Explanation(
        "corpus", 2, 9, Work(0, 0), 1, forecast(Work(0, 0), 1, []), None, "r1",
        {"unchanged": DiffCount(2, 9, 9)},
    ),
    "assumed": Explanation(
        "", 200_000_000, 20_000 * TB, Work(200_000_000, 20_000 * TB), 16,
        forecast(Work(200_000_000, 20_000 * TB), 16, [Known("network link", "all", Rate(8.75e9, "given"))]),
        9.5,
    ),
    "nothing known": Explanation("", 5, None, Work(5, None), 1, forecast(Work(5, None), 1, [])),
}  # fmt: skip
"""What `penstock plan` shows."""
