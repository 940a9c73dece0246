"""The typed configuration, into which `config.loader.load` converts the YAML file.

Sizes are bytes, rates bytes per second, durations seconds. Each key is declared only here: type, default,
allowed values, unit, and its meaning in words (`config.annotations`). Sections about a release's content also
declare whether a key is part of the run's identity (`DECIDES` or `APART`). Fields marked `FIXED` are not
keys: the file cannot set them. `make docs` generates docs/configuration*.md and the JSON schema from this
module, in the order of the fields. A section's docstring is its text on that page. Options of sources are in
`config.source_kinds`.
"""

# Annotations are read at run time, so `from __future__ import annotations` is not used. Each dataclass has a
# docstring, since making its default docstring would take some milliseconds in every process.
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from penstock.config.annotations import (
    EITHER,
    FIXED,
    NAME,
    RUNS,
    WRITES,
    About,
    Choice,
    Example,
    Fields,
    InPlace,
    Items,
    Named,
    Number,
    Text,
    Unit,
)
from penstock.config.command_options import BACKENDS
from penstock.core.grades import STORAGE_GRADES
from penstock.core.run_steps import IN_ELEMENTS

AUTO_TIME = 0  # value for a time limit that penstock works out (`core.estimates`)

# mark of keys in a run's identity: if a value changes, the listing leads to a new run and a new release
DECIDES = "decides"
APART = "apart"  # mark of keys outside a run's identity: if a value changes, the run is still found
Size = Annotated[int, Unit("size", zero=True)]
Rate = Annotated[int, Unit("rate")]
Duration = Annotated[float, Unit("duration")]
FileMode = Annotated[int | None, Unit("file_mode")]
FolderMode = Annotated[int | None, Unit("dir_mode")]
Folder = Annotated[Path, "folder"]
Accounts = Annotated[
    tuple[Annotated[str, Text("the name or the number of an account", NAME, number=True)], ...],
    Items("a list of accounts, by name or number", unique=True),
    "accounts",
]

# Seconds for which a reader's pin keeps a release from removal, unless `gc.grace` is longer.
LONGEST_PIN = 14 * 86400.0
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40
# On file systems larger than this, this percentage stays free by default. Parallel file systems slow down,
# and their targets fill unevenly, long before they are full.
LARGE, KEPT_PERCENT = 100 * TIB, 5


class Settings:
    """Compares and shows settings by their fields. Methods that dataclasses generate for each class would
    take a third of this module's import, in every process."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(name + "=" + repr(value) for name, value in vars(self).items())
        return f"{type(self).__qualname__}({values})"


STRIPING = (
    r"^(inherit|auto|targets=[1-9][0-9]{0,2}"
    r"(, ?chunk=((64|128|256|512)KiB|(1|2|4|8|16|32|64|128|256|512)MiB|1GiB))?)$(?!\n)"
)  # pattern of `target.striping`, which `fs.placement` reads


@dataclass(frozen=True, eq=False, repr=False)
class TargetConfig(Settings):
    """The file system that datasets are staged to."""

    root: Annotated[
        Folder,
        Text("a folder on the parallel file system"),
        About("""The folder that holds one folder for each dataset. A relative path is relative to the working
            directory. On SLURM every node must see it under this path."""),
        Example("/beegfs/datasets"),
    ]  # the target's root; an absolute path after loading
    state_root: Annotated[
        Folder | None,
        Text("a folder for locks and journals"),
        About("""Where each dataset's locks, journals, plans and history go, instead of
            `<root>/<dataset>/.penstock`. Set it where the target must hold nothing but data; `.penstock`
            there is then a small file that names it. While it is not mounted, whatever would change the
            dataset is refused. On SLURM every node must see it under this path; two targets never share
            one."""),
        Example("/beegfs/penstock-state"),
    ] = None
    owners: Annotated[
        Accounts,
        About("""Accounts, by name or number, whose datasets below this root `gate` and `path` accept. The
            dataset's folder, its release and the seal must belong to one of them. An empty list stands for
            the root's owner and the account that calls. Name the service accounts that stage for a team
            here."""),
        Example(["svc-data", 1234]),
    ] = ()
    contact: Annotated[
        str | None,
        Text("an address or a name", r"^[^\x00-\x1f]{1,200}$"),
        About("""Whom to ask for a dataset that nobody stages: `after`, `gate` and `path` then name this
            contact instead of the dataset's owner. The site's file may set it for all."""),
        Example("data@site.example"),
    ] = None
    keep_free: Annotated[
        Size | None,
        About("""Space that a run leaves free on the target. A run that would leave less stops before it
            copies, with exit status 6. If others take the room meanwhile, it stops while it copies, and can
            be resumed. `null` is 1GiB, and on file systems beyond 100TiB 5 % of them."""),
        Example("2TiB"),
    ] = None  # see `kept`
    filesystem: Annotated[str, FIXED] = "auto"  # kind of file system; `auto`: that of the mount (`fs.kinds`)
    # metadata operations a second that all runs in the root share, set by the site; None if the kind of file
    # system decides
    ops: Annotated[int | None, FIXED] = None
    striping: Annotated[
        str,
        Text(
            "inherit, auto, or such as `targets=4, chunk=1MiB` (a power of two from 64KiB on; chunk may be "
            "left out)",
            STRIPING,
        ),
        About("""Over how many targets of a BeeGFS or a Lustre new files are striped. It is set on the staging
            folder before its first file is made, and read back. `inherit` leaves it as it is. `auto` goes by
            the size class that holds most bytes: 1 target for files below 16 MiB, 4 below 1 GiB, else 8.
            `targets=4, chunk=1MiB` names both; a chunk that is not named stays, as does the pool. If the site
            forbids it (BeeGFS: `sysAllowUserSetPattern`), a warning has the administrator's command."""),
        Example("auto", "targets=4, chunk=1MiB"),
    ] = "inherit"
    sign_with: Annotated[
        Folder | None,
        Text("the path of an OpenSSH key"),
        About("""The OpenSSH key that publish signs each release's seal with (`ssh-keygen -Y sign`). It is a
            private key without a passphrase, in a file that only its owner may read. Or it is the public key
            of one that the account's ssh-agent holds. It needs `signers`. Preflight makes a signature, so
            that a key that cannot sign stops the run before anything is copied."""),
        Example("~/.ssh/penstock_ed25519"),
    ] = None
    signers: Annotated[
        Folder | None,
        Text("the path of a file of allowed signers"),
        About("""Whose signatures hold: a file of allowed signers as ssh-keygen(1) describes it, which nobody
            but its owner may change. Where it is given, `gate`, `path`, `audit`, `rollback` and publish
            refuse a release without such a signature. [signatures.md](signatures.md) says how it works."""),
        Example("/etc/penstock/allowed_signers"),
    ] = None

    def kept(self, total: int) -> int:
        """Return the bytes that a run leaves free on a file system of `total` bytes.

        | `keep_free` | the file system | left free               |
        |-------------|-----------------|-------------------------|
        | set         | any             | `keep_free`             |
        | not set     | up to 100 TiB   | 1 GiB                   |
        | not set     | larger          | 5 %, and at least 1 TiB |
        """
        if self.keep_free is not None:
            return self.keep_free
        return max(total * KEPT_PERCENT // 100, TIB) if total > LARGE else GIB


Inventory = Annotated[
    str | None, Text("the URL or path of an inventory's manifest.json, or of its folder"), "url"
]
KeyList = Annotated[str | None, Text("the path or s3:// URL of a list of keys"), "url"]
Archived = Annotated[str, Choice("refuse", "skip")]
Times = Annotated[str, Choice("store", "metadata")]
Options = Annotated[
    Mapping[str, object],
    Fields("a mapping of references: endpoint_url, region, profile, credentials_file, ca_bundle, ..."),
]  # options of a kind of source (`config.source_kinds`)


class Reach(NamedTuple):
    """How a source's servers are reached, whatever they speak; passed whole to what opens a connection."""

    timeout: float = 60.0  # seconds without a byte after which a connection is given up
    ca_bundle: str = ""  # a file or folder of certificate authorities; for "" see `http_endpoint`
    proxy: str = ""  # proxy for servers that speak HTTP; for "" see `http_endpoint`


@dataclass(frozen=True, eq=False, repr=False)
class SourceConfig(Settings):
    """Where a dataset's data, or a part of it, comes from."""

    url: Annotated[
        str,
        "url",
        Text("a URL such as s3://bucket/prefix/, or a folder"),
        About("Where the data comes from."),
        Example("https://data.example.org/labels/"),
    ]
    into: Annotated[
        str,
        "into",
        Text("a relative folder below the release's data", shortest=0),
        About("""The folder, below `data/`, that this source is copied into. Every one of several sources
            needs its own; none lies in another's."""),
        Example("labels"),
    ] = ""  # a normalised path
    inventory: Annotated[Inventory, About("`inventory` of this source.")] = field(default=None, kw_only=True)
    list_from: Annotated[KeyList, About("`list_from` of this source.")] = field(default=None, kw_only=True)
    archived: Annotated[Archived, About("`archived` of this source.")] = field(default="refuse", kw_only=True)
    times: Annotated[Times, About("`times` of this source.")] = field(default="store", kw_only=True)
    storage_options: Annotated[
        Options,
        About("Options of this source alone; they go before the dataset's."),
        Example({"profile": "staging"}),
    ] = field(default_factory=dict)
    timeout: Annotated[Duration, FIXED] = field(default=60.0, kw_only=True)  # copied from `engine.timeout`

    @property
    def reach(self) -> Reach:
        """How the source's servers are reached."""
        options = self.storage_options
        return Reach(self.timeout, str(options.get("ca_bundle") or ""), str(options.get("proxy") or ""))


class DatasetSources:
    """The keys of a dataset that say where its data comes from: `source` and the options of that one source,
    or else the list `sources`."""

    source: Annotated[
        str,
        EITHER,
        Text("a URL such as s3://bucket/prefix/, or a folder"),
        About("Where the data comes from. Every dataset has `source` or `sources`, not both."),
        Example("s3://bucket/imagenet/"),
    ]
    sources: Annotated[
        tuple[Annotated[SourceConfig, Fields("`{url: ..., into: ...}`")], ...],
        EITHER,
        Items("a list of `{url: ..., into: ...}`", least=1, most=1000),
        About("Several sources, each copied into a folder of its own below the release's `data/`."),
    ]
    inventory: Annotated[
        Inventory,
        About("""An S3 Inventory of the source's bucket, read in place of its listing. It is the URL or path
            of a `manifest.json`, or of the folder with it. The folder of an inventory configuration stands
            for its newest inventory. Of several `sources`, each has its own."""),
        Example("s3://inventories/bucket/daily/"),
    ] = SourceConfig.inventory
    list_from: Annotated[
        KeyList,
        About("""A list of keys, read in place of the source's listing: a path or an `s3://` URL. Its name's
            ending tells CSV with a header (`.csv`, `.csv.gz`) and Parquet (`.parquet`); any other list has a
            key a line, or keys between NULs. What the list leaves out (size, version) is asked of the source.
            Of several `sources`, each has its own."""),
        Example("/data/lists/train.csv"),
    ] = SourceConfig.list_from
    archived: Annotated[
        Archived,
        About("""Objects of S3 (GLACIER, DEEP_ARCHIVE) and Azure (Archive) that cannot be read before somebody
            has them restored. `refuse`: if any of them would have to be read, plan stops before a byte is
            copied. `skip` leaves all of them out and counts them. Of several `sources`, each has its
            own."""),
    ] = SourceConfig.archived
    times: Annotated[
        Times,
        About("""Where the times of files from S3 or Azure come from. `store` takes the time at which the
            store got the object. `metadata` takes the time that rclone, s3fs and others write into its
            metadata (`x-amz-meta-mtime`, `x-ms-meta-mtime`). That costs one request an object at each
            listing. An object without it keeps the store's time; list says how many. Of several `sources`,
            each has its own."""),
    ] = SourceConfig.times
    storage_options: Annotated[
        Options,
        About("""How the source is reached: see the tables of each kind below. With several sources, each uses
            the options that its kind has. References only: a key or URL that would hold a secret is
            refused."""),
        Example({"profile": "staging"}),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class ModeRule(Settings):
    """Other modes for the files and folders whose path below `data/` a pattern matches."""

    match: Annotated[
        str,
        Text("a pattern of gitignore that does not begin with ! or #", "^[^!#]"),
        About("A pattern of gitignore, matched with paths below the release's `data/`."),
        Example("bin/**"),
    ]
    file: Annotated[FileMode, About("Mode of the files that it matches, in quotes."), Example("0550")] = None
    dir: Annotated[FolderMode, About("Mode of the folders that it matches, in quotes."), Example("2750")] = (
        None
    )


AclEntry = Annotated[
    str,
    Text(
        "an entry such as group:genomics:r-X (NFSv4 ACLs, such as A:g:genomics@site:rx, are not set)",
        r"^(user|u|group|g):[^\x00-\x1f\x7f:]{1,255}:(?=.)r?-?w?-?[xX]?-?$",
    ),
]


@dataclass(frozen=True, eq=False, repr=False)
class PermissionsConfig(Settings):
    """The group, the modes, the ACL and the times of the release's files."""

    group: Annotated[
        str | None,
        Text("the name of a group", NAME),
        About(r"""The group that reads the release, by its name or number: any that a node knows, such as
        `'domain users'` or `'CORP\ml'`. `null` is the group of the target's folder."""),
        Example("ml"),
        DECIDES,
    ] = None
    file_mode: Annotated[
        int,
        Unit("file_mode"),
        About(
            """Mode of the files, in quotes. Without write bits a file that others train on cannot be changed
            by mistake."""
        ),
        Example("0444"),
        DECIDES,
    ] = 0o440
    dir_mode: Annotated[
        int,
        Unit("dir_mode"),
        About("Mode of the folders, in quotes. The `2` hands the group down to what is made inside."),
        Example("2555"),
        DECIDES,
    ] = 0o2550
    mtime: Annotated[
        str,
        Choice("keep", "now"),
        About("Modification times of the files: `keep` those of the source, or `now`, the time of the copy."),
        DECIDES,
    ] = "keep"
    modes: Annotated[
        tuple[ModeRule, ...],
        Items("a list of rules such as {match: 'bin/**', file: '0550'}"),
        About("""Other modes by path. The last rule that matches a path goes before the others, and before
            `file_mode` and `dir_mode`. A rule without `file` says nothing of files, a rule without `dir`
            nothing of folders."""),
        Example([{"match": "bin/**", "file": "0550"}]),
        DECIDES,
    ] = ()
    acl: Annotated[
        tuple[AclEntry, ...],
        Items("a list of entries such as group:genomics:r-X", unique=True),
        About("""POSIX ACL of every file and folder, as setfacl writes it: what named users and groups may do
            beside the owner, the group and others. `X` is execute for folders, and for files that have an
            execute bit. Users and groups stand by name or by number. Folders get the same entries as default
            ACL, so that what is made in them inherits them. Where it is empty, ACLs are neither set nor
            looked at."""),
        Example(["group:genomics:r-X", "group:imaging:r-X"]),
        DECIDES,
    ] = ()  # entries of named users and groups (`core.posix_acl.parse`)


@dataclass(frozen=True, eq=False, repr=False)
class FollowLimit(Settings):
    """How much of a dataset may change while it is copied, as fractions of its files: see `allowed`."""

    changed: float = 0.05
    gone: float = 0.001

    def allowed(self, files: int) -> tuple[int, int]:
        """Return how many of `files` may be copied in a newer version than listed, and how many may be
        dropped because they are gone. A fraction above 0 allows at least one file, and 0 allows none. One
        file must stay, since a release is never empty."""
        changed, gone = (
            max(1, int(fraction * files)) if fraction else 0 for fraction in (self.changed, self.gone)
        )
        return min(changed, files), max(0, min(gone, files - 1))


WebPage = Annotated[str | None, Text("a URL of the web", "^https?://[^ ]+$", longest=2000)]


@dataclass(frozen=True, eq=False, repr=False)
class PartyConfig(Settings):
    """A person or an organisation, as a description names it."""

    name: Annotated[
        str,
        Text("a name", longest=500),
        About("The name of a person or an organization."),
        Example("Example University"),
    ]
    kind: Annotated[str, Choice("person", "organization"), About("Whose name it is.")] = "person"
    url: Annotated[WebPage, About("A page of the web."), Example("https://example.org")] = None
    email: Annotated[
        str | None,
        Text("an address such as data@example.org", "^[^@ ]+@[^@ ]+$", longest=320),
        About("An address."),
        Example("data@example.org"),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class DescribeConfig(Settings):
    """What the description of a dataset's releases says beside what seal and manifest say."""

    name: Annotated[
        str | None,
        Text("a name for people", longest=500),
        About("The dataset's name for people. `null` is its name in this file."),
        Example("ImageNet 2012"),
    ] = None
    description: Annotated[
        str | None,
        Text("a text without line ends (YAML's `>-` folds several lines into one)", longest=100000),
        About("What the dataset is. `null` is a sentence with the release's name, files and bytes."),
        Example("1.3 million photographs in 1,000 classes."),
    ] = None
    license: Annotated[
        tuple[Annotated[str, Text("the URL of a license, or its name", longest=2000)], ...],
        Items("a list of licenses", unique=True),
        About("The licenses, by URL (those of spdx.org are known to catalogues) or by name."),
        Example(["https://spdx.org/licenses/CC-BY-4.0.html"]),
    ] = ()
    url: Annotated[
        WebPage,
        About("The dataset's page. `null`: the source's URL, if there is one source and it is a web URL."),
        Example("https://data.example.org/imagenet"),
    ] = None
    creators: Annotated[
        tuple[PartyConfig, ...], Items("a list of `{name: ...}`"), About("Who made the dataset.")
    ] = ()
    publisher: Annotated[PartyConfig | None, About("Who publishes it.")] = None
    keywords: Annotated[
        tuple[Annotated[str, Text("a word or a few", longest=500)], ...],
        Items("a list of keywords", unique=True),
        About("Words that it shall be found by."),
        Example(["images", "classification"]),
    ] = ()
    cite_as: Annotated[
        str | None,
        Text("a citation, such as BibTeX, without line ends", longest=10000),
        About("How the dataset is cited, best as BibTeX."),
        Example("@inproceedings{deng2009, title={ImageNet}, year={2009}}"),
    ] = None
    languages: Annotated[
        tuple[Annotated[str, Text("a language tag such as en", "^[A-Za-z0-9-]{2,35}$")], ...],
        Items("a list of language tags such as en", unique=True),
        About("The languages of the data (BCP 47)."),
        Example(["en", "de"]),
    ] = ()


@dataclass(frozen=True, eq=False, repr=False)
class RetentionConfig(Settings):
    """Which releases gc keeps: any release that at least one of these rules covers."""

    last: Annotated[
        int | None,
        Number("a number of releases, 1 or more", 1, 1000000),
        About("This many of the most recently published releases stay."),
        Example(3),
    ] = None  # None if the rule is not used; likewise for `within`
    within: Annotated[
        Duration | None, About("Those that were published within this time stay."), Example("90d")
    ] = None
    named: Annotated[bool, About("Those whose name was configured (`release`) stay.")] = True


Patterns = Annotated[
    tuple[Annotated[str, Text("a pattern as in .gitignore, in quotes", longest=4096)], ...],
    Items("a list of patterns as in .gitignore, each in quotes"),
]


@dataclass(frozen=True, eq=False, repr=False)
class DatasetConfig(Settings):
    """What is staged, and by which rules."""

    name: Annotated[str, DECIDES]  # the dataset's key in `datasets`
    # The list step adds each source's URL and folder to the identity.
    sources: Annotated[tuple[SourceConfig, ...], InPlace(DatasetSources), APART]
    include: Annotated[
        Patterns,
        About("""Keys that belong to the dataset, as patterns of `.gitignore`. A key is staged when a pattern
            of `include` matches it and none of `exclude` does."""),
        Example(["*.tar", "/labels/"]),
        DECIDES,
    ] = ("**",)
    exclude: Annotated[
        Patterns,
        About("Keys that are left out, as patterns of `.gitignore`; `!pattern` takes back an earlier one."),
        Example(["**/.DS_Store"]),
        DECIDES,
    ] = ()
    release: Annotated[
        str,
        Text(
            "auto, or a name of letters, digits, `.`, `_`, `-` that begins with a letter or digit",
            "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        ),
        About("The release's name. `auto` is the date and the beginning of the listing's digest."),
        Example("v2"),
        DECIDES,
    ] = "auto"
    links: Annotated[
        str,
        Choice("refuse", "skip", "follow"),
        About("""Symbolic links in a source that is a folder, or shows them (FTP, SFTP). `refuse` names them
            and copies nothing. `skip` leaves them out and counts them. `follow` copies the regular files that
            they lead to; in a folder source, links to targets outside the source are refused."""),
        DECIDES,
    ] = "refuse"
    empty_folders: Annotated[
        str,
        Choice("leave", "keep"),
        About("""Folders without any file, in a source that is a folder: `leave` leaves them out and counts
            them, `keep` makes them in the release."""),
        APART,
    ] = "leave"  # if folders are kept, the list step adds them to the identity
    checksums: Annotated[
        tuple[Annotated[str, Text("a key such as SHA256SUMS", longest=1024)], ...],
        Items("a list of keys of checksum files"),
        About("""Checksum files beside the data, as `sha256sum`, `md5sum`, `sha1sum`, `sha512sum`, `xxhsum`
            and `openssl dgst` write them; what `sha256sum -c` takes is taken. Each file that they name is
            compared with them while it is copied."""),
        Example(["SHA256SUMS"]),
        DECIDES,
    ] = ()
    unlisted: Annotated[
        str,
        Choice("refuse", "skip"),
        About("""Names that the files of `checksums` state, that belong to the dataset, and that the source's
            listing lacks: `refuse` names them and copies nothing, `skip` stages what is listed and counts
            them."""),
        APART,
    ] = "refuse"
    changed: Annotated[
        str,
        Choice("refuse", "follow", "pinned"),
        About("""What becomes of an object that changed since it was listed. `refuse`: the others are copied,
            the run ends with exit status 5 and names it. `follow`: its new version is copied, or it is
            dropped if it is gone, as long as at most 5 % of the files change and 0.1 % are gone. `pinned`: a
            versioned S3 bucket is listed and read by version ids, so that no change is seen."""),
        APART,
    ] = "refuse"  # `follow` allows changes within `FollowLimit`
    follow_limit: Annotated[FollowLimit, FIXED, APART] = FollowLimit()
    recall: Annotated[
        Size,
        About("""For folder sources: how many bytes a copy may cause to be recalled from an archive (released
            files, stubs, tiered files). Plan counts such bytes of the files that are to be copied, and stops
            with exit status 3 if there are more."""),
        Example("20TiB"),
        APART,
    ] = 0
    permissions: Annotated[PermissionsConfig, Fields(), DECIDES] = PermissionsConfig()
    retention: Annotated[
        RetentionConfig | None,
        Fields("a mapping with at least one of last, within, named", least=1),
        About("""Which releases `penstock gc` leaves. A release stays if one of these rules holds it. So do
            the current release, pinned releases, what a run needs, and what left `current` within `gc.grace`.
            Without it gc removes no release. Nothing is ever removed but by gc and `penstock remove`."""),
        APART,
    ] = None  # None if gc removes no release
    describe: Annotated[
        DescribeConfig | None,
        Text("the path of a YAML file with name, description, license, ..."),
        About("""A file with what catalogues are shown of the dataset, such as its license. Where it is given,
            publish writes the description of the release beside the seal, as Croissant 1.0
            (`croissant.json`). [descriptions.md](descriptions.md) has the file's keys."""),
        Example("imagenet.about.yaml"),
        "description",
        APART,
    ] = None  # None if publish writes no description


AUTO_CORES: Final = "auto"


@dataclass(frozen=True, eq=False, repr=False)
class JobOptions(Settings):
    """What one step asks of SLURM. None: not asked for."""

    partition: Annotated[
        str | None,
        Text(
            "a partition's name, or several with commas",
            "^[A-Za-z0-9_.][A-Za-z0-9_.-]*(,[A-Za-z0-9_.][A-Za-z0-9_.-]*)*$",
        ),
        About("`--partition`. `null` is the site's default."),
        Example("data"),
    ] = None
    account: Annotated[
        str | None,
        Text("an account's name", "^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"),
        About("`--account`, which the jobs are charged to. `null` is your default account."),
        Example("ml"),
    ] = None
    qos: Annotated[
        str | None,
        Text("a QOS's name", "^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"),
        About("`--qos`. `null` is the site's default."),
    ] = None
    reservation: Annotated[
        str | None,
        Text("a reservation's name", "^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"),
        About("`--reservation`. `null` asks for none."),
    ] = None
    constraint: Annotated[
        str | None,
        Text("features joined by & or |, such as ib&rack1", r"^[A-Za-z0-9_.\[(][A-Za-z0-9_.&|*()\[\]-]*$"),
        About("`--constraint`: features that a node must have. `null` asks for none."),
        Example("ib&rack1"),
    ] = None
    exclude: Annotated[
        str | None,
        Text(
            "a list of hosts such as n[1-4],n9",
            r"^[A-Za-z0-9][A-Za-z0-9._-]*((\[[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\][A-Za-z0-9._-]+)*\[[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\])?(,[A-Za-z0-9][A-Za-z0-9._-]*((\[[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\][A-Za-z0-9._-]+)*\[[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\])?)*$",
        ),
        About("`--exclude`: nodes on which no element runs."),
        Example("n[1-4],n9"),
    ] = None
    wckey: Annotated[
        str | None,
        Text("a workload characterization key", "^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"),
        About("`--wckey`, by which accounting sums up. Clusters without TrackWCKey ignore it."),
        Example("ingest"),
    ] = None
    licenses: Annotated[
        tuple[
            Annotated[
                str, Text("a licence such as wan:1", "^[A-Za-z0-9_.][A-Za-z0-9_.@-]*(:[1-9][0-9]{0,5})?$")
            ],
            ...,
        ],
        Items("a list of licences such as wan:1"),
        About("`--licenses`, for each element: what a site counts, such as shares of a link to the outside."),
        Example(["wan:1"]),
    ] = ()
    time: Annotated[
        int | None,
        Unit("time_limit"),
        About("""`--time` of each element, rounded up to minutes. `auto` takes the plan's estimate of the
            shards that are left, divided by the elements, with a margin. That is 30 minutes to 4 hours, and
            never longer than the partition allows. An element stops tidily before its end, and another
            element goes on with its shard. `null` is the partition's default, which is often no limit at all:
            such jobs are not backfilled. [slurm-options.md](slurm-options.md#time) has the rest."""),
        Example("4h"),
    ] = AUTO_TIME
    memory: Annotated[
        int | None,
        Unit("size"),
        About("""`--mem` of each element, rounded up to MiB. `null` is the site's default, often the whole
            node's memory."""),
        Example("16GiB"),
    ] = None
    core_spec: Annotated[
        int | Literal["auto"] | None,
        "none",
        Number(
            "a number of cores, auto, or none",
            0,
            1024,
            words=(
                "auto",
                "none",
            ),
        ),
        About("""`--core-spec`: cores of each node that are left to system services, such as a WEKA or BeeGFS
            client. Any number, 0 too, takes whole nodes. `auto` asks for 2 where the cluster obeys the
            option, and no node of the job keeps cores itself (CpuSpecList, CoreSpecCount) or has only 2. Else
            it asks for nothing. `none` leaves the option out."""),
        Example(2, "none"),
    ] = AUTO_CORES  # None to leave the option out; `auto` until the cluster has decided
    cpus: Annotated[
        int | None,
        Number("a number of CPUs", 1, 65536),
        About("""`--cpus-per-task` of each element. `null` is what the node has: elements take whole nodes.
            Set it, with `core_spec: none`, to share nodes with other jobs."""),
        Example(8),
    ] = None
    max_elements: Annotated[
        int,
        Number("a number of nodes, at least 1", 1, 1000000),
        About("""Elements of a step that run at once. On SLURM these are nodes, where elements take whole
            nodes. On one machine they are processes, at most half as many as CPUs."""),
    ] = 4

    @property
    def spec_cores(self) -> int | None:
        """The value of `core_spec` after the cluster has decided it. Raises ValueError for `auto`."""
        if isinstance(self.core_spec, str):
            raise ValueError("the cluster has not settled what core_spec: auto comes to")
        return self.core_spec

    @property
    def whole_nodes(self) -> bool:
        """Whether the job asks for --exclusive. Raises as `spec_cores`.

        | core_spec | cpus  | --exclusive                                               |
        |-----------|-------|-----------------------------------------------------------|
        | a number  | any   | no, since --core-spec itself takes whole nodes            |
        | none      | set   | no                                                        |
        | none      | null  | yes, so that an element gets all CPUs and not only one    |
        """
        return self.spec_cores is None and self.cpus is None

    @property
    def node_alone(self) -> bool | None:
        """Whether the job gets whole nodes, through --core-spec or --exclusive. None if the cluster decides,
        as it does for `core_spec: auto` together with `cpus`."""
        if isinstance(self.core_spec, str):
            return replace(self, core_spec=None).whole_nodes or None
        return self.core_spec is not None or self.whole_nodes


Interpreter = Annotated[
    str | None, RUNS, Text("the absolute path of an interpreter, without blanks", "^/[A-Za-z0-9_./+-]+$")
]


@dataclass(frozen=True, eq=False, repr=False)
class ClusterConfig(Settings):
    """Where the steps run, and what they ask of SLURM. The job options (from `partition` on) hold for every
    step; `steps` changes them for one. docs/slurm-options.md says what becomes of each."""

    backend: Annotated[
        str,
        Choice(*BACKENDS),
        About("""Who runs the elements of copy, verify, audit, adopt and repair: `local` runs them as
            processes of this machine, `slurm` as job arrays. `--backend` and `snakemake --profile slurm`
            override it."""),
    ] = BACKENDS[0]
    steps: Annotated[
        Mapping[str, Annotated[JobOptions, Fields("a mapping of job options")]],
        Named("step names with the job options that differ for them", (*IN_ELEMENTS, "submit")),
        About("""Job options of single steps, by the step's name: any of the keys from `partition` on. Options
            that a step does not name are taken from `cluster`. Where `verify` differs from `copy`, reading
            back is an array of its own, after the copy. `submit` is the job of `penstock run --submit`: one
            core, and memory by what the last listing counted, where nothing is set for it."""),
        Example({"verify": {"partition": "cpu", "core_spec": "none"}}),
    ] = field(default_factory=dict)  # complete options by step: `options`, overridden by the step's keys
    python: Annotated[
        Interpreter,
        About("""The Python interpreter that elements run with. `null` is the one that runs penstock now. Set
            it where the nodes have penstock's environment under another path. If accounts other than the
            caller's can write this file, any interpreter but the one that runs penstock now is refused."""),
        Example("/opt/penstock/bin/python"),
    ] = None
    # seconds between queries of SLURM, after the first query; up to a minute in long runs
    poll: Annotated[Duration, FIXED] = 15.0
    slurm_api: Annotated[
        str,
        Choice("commands", "pyslurm", "auto"),
        About("""How penstock talks to SLURM. `commands`: by sbatch, squeue and the like. `pyslurm`: by its
            Python bindings for submissions, cancels, throttles, nodes and partitions, and by the commands for
            the rest. Preflight stops where pyslurm cannot be used. `auto`: as `pyslurm` where it can be used,
            else as `commands`. Receipts of copy and verify name the way taken (`slurm_api`)."""),
    ] = "commands"
    pyslurm_python: Annotated[
        Interpreter,
        About("""The Python interpreter (3.6 or later) that has pyslurm, of the cluster's own release. `null`
            is the one that runs penstock now. Refused as `python` is."""),
        Example("/opt/pyslurm/bin/python3"),
    ] = None
    retries: Annotated[int, FIXED] = 2  # further tries for a failed shard within one command
    mail: Annotated[
        str | None,
        Text("an address, or an account of the cluster", "^[A-Za-z0-9][A-Za-z0-9._+%@-]{0,199}$"),
        About("""Who gets mail when the controller that `penstock run --submit` submits ends or fails:
            `--mail-user`, `--mail-type=END,FAIL`."""),
        Example("alice@example.org"),
    ] = None
    probe: Annotated[bool, FIXED] = True  # whether preflight checks a node's environment in a one-second job
    gpu_nodes: Annotated[
        str,
        Choice("allow", "refuse"),
        About("""Whether elements that take whole nodes (by `core_spec`, or where `cpus` is `null`) may run on
            nodes with GPUs, which they then hold without use. With `refuse` preflight stops where such a node
            is among those that `partition` and `constraint` leave."""),
        Example("allow"),
    ] = "refuse"
    options: Annotated[JobOptions, InPlace(JobOptions)] = JobOptions()  # options for every step

    def of(self, step: str) -> JobOptions:
        """Return the step's own job options, or those of all steps if it has none."""
        return self.steps.get(step, self.options)


@dataclass(frozen=True, eq=False, repr=False)
class ListConfig(Settings):
    """How sources are listed."""

    # seconds for which an interrupted listing can be continued; 0 for never
    resume_within: Annotated[Duration, FIXED] = 3600.0


@dataclass(frozen=True, eq=False, repr=False)
class PlanConfig(Settings):
    """What is taken over from the current release."""

    shard_bytes: Annotated[Size, FIXED, APART] = TIB  # bytes of a shard, at most; approximate
    shard_files: Annotated[int, FIXED, APART] = 500_000  # number of files in a shard, at most
    # bytes; objects of at least this size are split into parts, which may be in several shards
    giant_bytes: Annotated[Size, FIXED, DECIDES] = 64 * GIB
    part_bytes: Annotated[Size, FIXED, DECIDES] = 256 * MIB  # size of a part, a whole number of MiB
    reuse: Annotated[
        str,
        Choice("auto", "reflink", "link", "copy", "none"),
        About("""How files that did not change since the current release come into the new one. `reflink`: an
            inode of its own that shares the blocks (XFS, btrfs). `link`: a hard link, one inode for both
            releases. `copy`: copied on the target, which takes the room once more. `none`: fetched from the
            source again. `auto`: `reflink` where the file system can do it, else `link`, else `none`. If
            files would be linked and the current release has other `permissions`, plan stops and says how
            many bytes are doubled. `--copy-unchanged` copies them."""),
        Example("copy"),
        APART,
    ] = "auto"


@dataclass(frozen=True, eq=False, repr=False)
class EngineConfig(Settings):
    """How an element copies and reads. By default an element measures the machine and the source while it
    copies, and adapts."""

    workers: Annotated[int | None, FIXED] = None  # processes of an element; None if the element's CPUs decide
    streams: Annotated[
        int | None,
        "auto",
        Number("auto, or a number of streams from 1 to 4096", 1, 4096, words=("auto",)),
        About("""Files or parts of files that one element copies at once, over all its workers. `auto` begins
            with 1 to 8 a worker and adds more, up to 64 in all, while that makes the copy faster. Set it
            where a store or proxy limits connections."""),
    ] = None  # number of streams, which is processes times threads; None for `auto`
    # `fsync` for each file, `syncfs` as a barrier, or `auto` if the file system decides
    durability: Annotated[str, FIXED] = "auto"
    limit: Annotated[
        Rate | None,
        About("""The most that one element reads from the source. `max_elements` of them run at once, each
            with this limit. `null` sets no limit."""),
        Example("20Gbit/s"),
    ] = None
    attempts: Annotated[int, FIXED] = 5  # tries for each object before it counts as failed
    timeout: Annotated[
        Duration,
        About("How long a connection may bring no byte before it counts as broken."),
        Example("2min"),
    ] = 60.0


@dataclass(frozen=True, eq=False, repr=False)
class VerifyConfig(Settings):
    """What a release must prove before it is published, and how. docs/audit-proof.md explains the grades."""

    source_checksum: Annotated[
        str,
        Choice("auto", "require", "stated", "fast"),
        About("""Which checksums of the source are compared with the bytes that came. `auto`: the cheapest of
            those that prove most. `require`: a file that no checksum of the source proves is refused.
            `stated`: an etag is not taken for an MD5, for stores whose etags look like one and are none.
            `fast`: no MD5 and no SHA of the store, which take most CPU; checksum files beside the data count
            all the same."""),
        APART,
    ] = "auto"
    minimum_grade: Annotated[
        str,
        Choice("auto", *STORAGE_GRADES),
        About("""The weakest proof of what was stored that a file may be published with: `written` and not
            read back, `reread`, `cold` (read back past this machine's caches), `cold-other-node` (and by a
            node that did not write it). `auto` wants `cold` where the target allows it, `reread` elsewhere.
            With `auto` a linked file may have `reread` where `cold` is wanted, if a job holds it in memory on
            the node that verifies. A warning counts such files."""),
        APART,
    ] = "auto"
    linked: Annotated[
        float | None,
        Unit("reading_age"),
        About("""Which of the files linked from the previous release are read back by verify. `all`: all of
            them. With a duration, each file is read again before its last reading is older than that. Until
            then a file is carried over if inode, size and times are unchanged. It keeps grade and date of its
            last reading, and counts as `carried`. If `minimum_grade` is `reread` or more, all are read.
            [audit-linked.md](audit-linked.md) says when a file is due, and what that proves."""),
        Example("all", "7d"),
        APART,
    ] = 30 * 86_400.0  # seconds; None (`all`) if each linked file is read each time
    direct: Annotated[
        str,
        Choice("unshared", "always"),
        About("""Which files are read back by O_DIRECT on BeeGFS. There such a read harms other readers of the
            file on the same node: theirs fail with EREMOTEIO, but for tuneFileCacheType=native. `unshared`:
            files that no job can have open, which are those new in a staging. Released files are read after
            their pages were dropped, and the storage servers' memory may answer. `always`: all files, from
            the targets' disks, if no job reads on the nodes that verify, audit and repair. On other file
            systems that honour O_DIRECT, all files are read back by it, with either value."""),
        APART,
    ] = "unshared"
    digests: Annotated[
        tuple[Annotated[str, Choice("xxh3_128", "sha256")], ...],
        "digests",
        Items("a list with xxh3_128, and sha256 if wanted", unique=True, word="xxh3_128"),
        About("""Digests of each file in the manifest. `xxh3_128` is always one of them; `sha256` costs CPU,
            of giants too, and adds `manifest.sha256` for `sha256sum -c`."""),
        Example(["xxh3_128", "sha256"]),
        DECIDES,
    ] = ("xxh3_128",)

    @property
    def carries_for(self) -> float | None:
        """The value of `linked` if a release may have files that were not read back for it, else None."""
        return self.linked if self.minimum_grade in ("auto", "written") else None

    @property
    def whole_giants(self) -> bool:
        """Whether verify also computes digests of whole giants, as it must for digests that cannot be
        combined from their parts."""
        return self.digests != ("xxh3_128",)


@dataclass(frozen=True, eq=False, repr=False)
class AuditConfig(Settings):
    """What an audit does with files whose data lies elsewhere. docs/audit-reading.md explains it."""

    recall: Annotated[
        Size,
        About("""How many bytes of tiered files one audit may recall; shards share this budget. Tiered are
            WEKA's files whose data is in the object store. With `0B` none is read: what was skipped is
            counted. Files that are offline (stubs) are never read, whatever stands here."""),
        Example("10TiB"),
    ] = 0


@dataclass(frozen=True, eq=False, repr=False)
class GcConfig(Settings):
    """What keeps releases from being removed. docs/retention.md explains it."""

    grace: Annotated[
        Duration,
        About("""How long a release stays at least after it left `current`, pinned or not. It also stays as
            long as the longest job that any partition of the cluster allows. `penstock remove --now` does not
            wait."""),
        Example("30d"),
    ] = 14 * 86400.0
    # seconds between marking a release for removal and the last look at pins; None if the kind of file system
    # decides
    settle: Annotated[Duration | None, FIXED] = None

    @property
    def longest_pin(self) -> float:
        """Seconds after which a reader's pin ends: 14 days, or `grace` if that is longer."""
        return max(LONGEST_PIN, self.grace)


@dataclass(frozen=True, eq=False, repr=False)
class BandwidthConfig(Settings):
    """The bandwidth cap that the elements of all runs jointly stay within. It holds for all datasets, roots,
    accounts and clusters that name the same folder. docs/bandwidth.md explains it. `engine.limit` stays each
    element's own ceiling."""

    folder: Annotated[
        Folder | None,
        Text("a folder that all who use the link share"),
        About("""The folder of the link: in it lie the administrator's cap file, and the shares that elements
            hold. One for each link, whatever the targets are. On SLURM every node must see it under this
            path. A relative path is relative to the working directory."""),
        Example("/beegfs/.penstock-wan"),
    ] = None  # None if each element has only `engine.limit`
    link: Annotated[
        Rate | None,
        About("""What the link carries. The elements together read no more than this minus `reserve`, and no
            more than the cap file says. `null` leaves it to the cap file."""),
        Example("100Gbit/s"),
    ] = None
    reserve: Annotated[Rate | None, About("How much of the link is left to others."), Example("20Gbit/s")] = (
        None
    )
    requests: Annotated[
        int | None,
        Number("a number of requests a second", 1, 999999999),
        About("""Requests a second that the elements together make to their sources. A request is a try of an
            object, or of a part of a large object. `null` sets no cap; the cap file may."""),
        Example(2000),
    ] = None
    distance: Annotated[
        str | None,
        Text("a distance with its unit, such as 8000km or 5000mi", "^[1-9][0-9]{0,5}(km|mi)$(?!\n)"),
        About("""How long the link is. With it summary and report say how many PiB-miles an hour the copy
            made. `null` leaves that out."""),
        Example("8000km"),
    ] = None

    @property
    def miles(self) -> float:
        """`distance` in miles, or 0.0."""
        text = self.distance or "0mi"
        return float(text[:-2]) / (1.609344 if text.endswith("km") else 1)

    @property
    def rate(self) -> int | None:
        """Bytes a second that all elements may read together; None if the folder's cap file decides."""
        return None if self.link is None else self.link - (self.reserve or 0)


@dataclass(frozen=True, eq=False, repr=False)
class NotifyConfig(Settings):
    """A command that is called once for each event of a dataset, such as a failure or a publication.
    docs/runs.md explains it."""

    command: Annotated[
        tuple[Annotated[str, Text("a program or an argument", shortest=0)], ...],
        RUNS,
        Items("a list: a program and its arguments"),
        About("""The program and its arguments; no shell. It gets the event as JSON on its standard input; one
            penstock command spends at most a minute on all its calls. What it prints is not read. Refused
            where others than the account that calls penstock may write this file, unless the site's file
            lists the program. An empty list calls nothing."""),
        Example(["/usr/local/bin/notice", "--channel", "data"]),
    ] = ()
    events: Annotated[
        tuple[Annotated[str, Choice("failed", "findings", "stale", "published")], ...],
        Items("a list of events", unique=True),
        About("For what it is called."),
    ] = ("failed", "findings", "stale")
    stale: Annotated[
        Duration,
        About("""How old the last run that published a dataset, or found it unchanged, may be before the event
            `stale`. The next `penstock run` or `audit` with this configuration checks all its datasets and
            sends the event."""),
        Example("36h"),
    ] = 8 * 86400.0
    timeout: Annotated[Duration, FIXED] = 60.0


@dataclass(frozen=True, eq=False, repr=False)
class Config(Settings):
    """The whole file."""

    target: Annotated[TargetConfig, Fields("`root:` and what else the target needs")]
    datasets: Annotated[
        Mapping[str, Annotated[DatasetConfig, Fields("a mapping with `source:`")]],
        Named(
            "a mapping of dataset names to what they are made of",
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
            rule="a dataset's name has 1 to 64 letters, digits, `.`, `_` or `-`, and begins with a letter "
            "or digit",
            least=1,
        ),
        About("""What is staged: a mapping from each dataset's name to its keys below. A name has 1 to 64
            letters, digits, `.`, `_` or `-`, and begins with a letter or digit; `all` and `results` are
            taken. `penstock run` without names stages all of them."""),
    ]
    cluster: Annotated[ClusterConfig, Fields("`backend:` and job options")] = ClusterConfig()
    list: Annotated[ListConfig, FIXED] = ListConfig()
    plan: Annotated[PlanConfig, Fields("a mapping")] = PlanConfig()
    engine: Annotated[EngineConfig, Fields("a mapping")] = EngineConfig()
    verify: Annotated[VerifyConfig, Fields("a mapping")] = VerifyConfig()
    audit: Annotated[AuditConfig, Fields("a mapping")] = AuditConfig()
    gc: Annotated[GcConfig, Fields("a mapping")] = GcConfig()
    bandwidth: Annotated[BandwidthConfig, Fields("a mapping")] = BandwidthConfig()
    notify: Annotated[NotifyConfig, Fields("a mapping")] = NotifyConfig()
    metrics: Annotated[
        Folder | None,
        WRITES,
        Text("a file's name"),
        About("""A file that `penstock run` writes anew when it ends. It holds what `penstock metrics` shows
            for the whole root. The collector reads only files whose names end in `.prom`. A run in a SLURM
            job writes none. A relative path is relative to the working directory. The file is refused if
            others than the account that calls penstock may write this configuration, or if another file
            stands there."""),
        Example("/var/lib/prometheus/node-exporter/penstock.prom"),
    ] = None
