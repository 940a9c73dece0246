"""The table of the kinds of sources, a row each, and the keys of `storage_options` of each kind. A new kind
is its row, its options, and its module in `penstock.sources`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from penstock.config.annotations import About, Choice, Example, Items, Switch, Text
from penstock.core.errors import ConfigError

# The keys of `storage_options`, of each kind of source that penstock reads itself: what may be written for
# them, and what docs/configuration-sources.md says of them. Declarations alone: no class here is ever
# instantiated.
#
# `config.validation` refuses other keys and values by the annotations, which
# `config.annotations` explains. Of what fsspec opens (another scheme, or `reader: fsspec`) no key is checked.
# docs/configuration.py makes the page: of each class its docstring, its keys, and its `SECRETS`, the places
# in which secrets are looked for, in order. A kind of source without `SECRETS` needs none.

# Annotations are read at run time: no `from __future__ import annotations`.


Reader = Annotated[
    str | None,
    Choice("penstock", "fsspec"),
    About(
        """Who talks to the store. `fsspec`: the library that fsspec has for it, for ways to log in that
        penstock's own reader does not know; all other options are then [that
        library's](sources-fsspec.md).""",
        default="penstock",
    ),
]
Endpoint = Annotated[
    str | None,
    Text("a server's URL, such as https://s3.example.org:9000", r"^https?://[^/?#\s@]+(/[^?#\s]*)?$"),
]
File = Annotated[str | None, Text("a file's path, as text")]
YesNo = Annotated[bool | None, Switch("true or false, without quotes")]
CaBundle = Annotated[
    File,
    About(
        """Certificate authorities that https is checked against: a file, or a folder. Where it is not given,
        `AWS_CA_BUNDLE` and `REQUESTS_CA_BUNDLE` of the environment count.""",
        default="the system's",
    ),
    Example("/etc/pki/site-ca.pem"),
]
Proxy = Annotated[
    str | None,
    Text("a proxy such as http://proxy.example.org:3128", r"^(http://)?[^/?#\s@]+/?$"),
    About("""The proxy, spoken to by http. Where it is not given, `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
        `NO_PROXY` of the environment count. A proxy that wants a password is named there, not here."""),
    Example("http://proxy.example.org:3128"),
]


class FolderOptions:
    """A folder needs no options."""


class S3Options:
    """S3 and what speaks its protocol."""

    SECRETS = (
        "none, with `anon: true`",
        (
            "`credentials_file`: lines `aws_access_key_id=`, `aws_secret_access_key=` and, for temporary "
            "keys, `aws_session_token=`"
        ),
        "`profile`, of `~/.aws/config` and `~/.aws/credentials`",
        "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` of the environment",
        "what AWS's own tools find: the default profile, SSO, a container's role",
        "the metadata service of a cloud instance, with `instance_metadata: true` alone",
    )
    reader: Reader
    endpoint_url: Annotated[
        Endpoint,
        About(
            """The server. Where it is not given, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` and the profile's
            `endpoint_url` count.""",
            default="AWS",
        ),
        Example("https://s3.example.org:9000"),
    ]
    region: Annotated[
        str | None,
        Text("a region such as us-east-1", "^[A-Za-z0-9_-]{1,64}$"),
        About(
            """The bucket's region. Where it is not given, `AWS_REGION`, `AWS_DEFAULT_REGION` and the
            profile's `region` count; a store that redirects to the bucket's region is followed.""",
            default="us-east-1",
        ),
        Example("eu-west-1"),
    ]
    profile: Annotated[
        str | None,
        Text("a profile of ~/.aws/config, as text", shortest=0),
        About(
            """A profile of `~/.aws/config` and `~/.aws/credentials`; its `endpoint_url` and `region` count
            too. With `credentials_file`: the section of that file.""",
            refers_to="names the keys",
        ),
        Example("staging"),
    ]
    credentials_file: Annotated[
        File,
        About(
            "A file of mode 0600 with keys, as plain lines or as an INI file.",
            refers_to="names the file that holds the keys",
        ),
        Example("~/.config/penstock/s3"),
    ]
    anon: Annotated[YesNo, About("`true`: requests are not signed (public buckets).", default="false")]
    addressing_style: Annotated[
        str | None,
        Choice("path", "virtual", "auto"),
        About(
            """Where the bucket's name goes: into the URL's path, or into the host's name. `auto` is `virtual`
            for AWS, `path` elsewhere.""",
            default="auto",
        ),
    ]
    requester_pays: Annotated[
        YesNo, About("`true` for buckets whose readers pay for the transfer.", default="false")
    ]
    instance_metadata: Annotated[
        YesNo,
        About(
            """`true` lets keys come from a cloud instance's metadata service, which is not asked
            otherwise.""",
            default="false",
        ),
    ]
    ca_bundle: CaBundle
    proxy: Proxy


class AzureOptions:
    """Azure Blob Storage."""

    SECRETS = (
        "none, with `anon: true`",
        (
            "`credentials_file`: one of the lines `connection_string=`, `account_key=`, `sas_token=`, or "
            "`client_id=`, `client_secret=` and `tenant_id=`"
        ),
        (
            "the same names in the environment: `AZURE_STORAGE_CONNECTION_STRING`, "
            "`AZURE_STORAGE_ACCOUNT_KEY`, ..."
        ),
        "what Azure's own tools find: managed identity, workload identity, `az login`",
    )
    reader: Reader
    account_name: Annotated[
        str | None,
        Text("a storage account's name", "^[a-z0-9]{3,24}$"),
        About("""The storage account. Needed where neither the URL, a connection string nor
            `AZURE_STORAGE_ACCOUNT_NAME` names it."""),
        Example("trainingdata"),
    ]
    account_host: Annotated[
        str | None,
        Text("a host's name", "^[A-Za-z0-9.-]+(:[0-9]+)?$"),
        About(
            "The account's host, for clouds with other names. It is reached by https.",
            default="`<account>.blob.core.windows.net`",
        ),
        Example("trainingdata.blob.core.usgovcloudapi.net"),
    ]
    endpoint_url: Annotated[
        Endpoint,
        About("The account's whole URL, for other servers; it goes before `account_host`."),
        Example("http://127.0.0.1:10000/devstoreaccount1"),
    ]
    credentials_file: Annotated[
        File,
        About("A file of mode 0600 with the account's secret.", refers_to="names the file that holds it"),
        Example("~/.config/penstock/azure"),
    ]
    anon: Annotated[YesNo, About("`true`: requests are not signed (public containers).", default="false")]
    ca_bundle: CaBundle
    proxy: Proxy


class WebOptions:
    """Web servers. No user name, password or token is ever sent."""

    redirects: Annotated[
        tuple[
            Annotated[
                str,
                Text(
                    "a host such as cdn.example.org, cdn.example.org:8443 or *.example.org",
                    r"^(\*\.)?[A-Za-z0-9._-]+(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$",
                ),
            ],
            ...,
        ],
        Items("a list of hosts that redirects may lead to"),
        About(
            """Hosts that a redirect may lead to, beside the server itself; without a port these are 80 and
            443. A redirect from https to http is never followed.""",
            default="the server itself",
        ),
        Example(["cdn.example.org", "cdn.example.org:8443", "*.example.org"]),
    ]
    listing: Annotated[
        str | None,
        Choice("known", "links"),
        About(
            """Which pages count as the listing of a folder. `known`: those that Apache, nginx, lighttpd,
            Caddy, Python's http.server and Go's net/http make, where they are complete; any other page is
            refused by its address. `links`: any page, for what it links to; summary and seal say of how many
            folders that is all that is known.""",
            default="known",
        ),
    ]
    unsized: Annotated[
        bool,
        About(
            """Take files whose size no answer states, such as archives that a server makes when they are
            asked for (chunked answers). Such a file is read twice, to its end: when it is listed, and when it
            is copied. Both readings must agree; no more is known of it. By default such a file is refused by
            name.""",
            default="false",
        ),
    ]
    ca_bundle: CaBundle
    proxy: Proxy


class GcsOptions:
    """Google Cloud Storage."""

    SECRETS = (
        "none, with `anon: true`",
        "`credentials_file`: a service account's JSON file, or a line `token=` with the path of one",
        "the metadata server of a cloud instance, with `instance_metadata: true` alone",
        "`GOOGLE_APPLICATION_CREDENTIALS` of the environment: a service account's JSON file of mode 0600",
        "none",
    )
    reader: Reader
    endpoint_url: Annotated[Endpoint, About("The server, for anything but Google's.", default="Google")]
    credentials_file: Annotated[
        File,
        About(
            "A service account's JSON file, of mode 0600; or a file with the line `token=PATH`.",
            refers_to="names the file that holds it",
        ),
        Example("~/.config/penstock/reader.json"),
    ]
    anon: Annotated[YesNo, About("`true`: requests are not signed (public buckets).", default="false")]
    instance_metadata: Annotated[
        YesNo,
        About(
            "`true` takes the token of a cloud instance's metadata server, which is not asked otherwise.",
            default="false",
        ),
    ]
    project: Annotated[
        str | None,
        Text("a project's name", shortest=0),
        About("The project that pays for the transfer (requester pays)."),
    ]
    ca_bundle: CaBundle
    proxy: Proxy


# The table of the kinds of sources. A new kind needs a row here, its options above, and a module in
# `penstock.sources`.


@dataclass(frozen=True)
class SourceKind:
    """The properties of a kind of source that code outside its module needs."""

    name: str
    schemes: tuple[str, ...]  # schemes of the source's URLs; "" for a path
    # the kind's module in `penstock.sources`, which has `open_source`
    package: str = "generic"
    secrets: str = ""  # module of `penstock.sources` whose `resolve` finds credentials; "" if none are needed
    options: type | None = None  # keys of `storage_options`; None if a library gets them unchecked
    # name for the first part of the URL: a host or a bucket; "" if that part may be empty
    place: str = "host"
    user: bool = False  # whether the URL may have the name of an account or container before an @
    # whether the source serves ranges on the condition that the object is the listed version
    pins: bool = False
    states_checksums: bool = True  # whether the source may state a checksum of an object
    blocks: bool = False  # whether even a whole object is read with several requests (`port.REQUEST`)
    versions: bool = False  # whether objects can be listed and read by version ids
    archives: bool = False  # whether the source reports archived objects, and times in objects' metadata
    # whether equal etags in the form of an MD5 mean equal bytes, even under different names
    content_etags: bool = False
    prefetched: bool = False  # whether small objects may be requested before their turn
    # environment variables with the source's secrets, which are not set on nodes
    variables: tuple[str, ...] = ()


FOLDER = SourceKind(
    "folder", ("", "file", "local"), "posix", options=FolderOptions, place="", states_checksums=False
)
S3 = SourceKind(
    "s3", ("s3", "s3a"), "s3", "s3_credentials", S3Options, place="bucket", pins=True, versions=True,
    archives=True, content_etags=True, prefetched=True, variables=(
        "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL",
    ),
)  # fmt: skip
AZURE = SourceKind(
    "azure", ("az", "abfs", "abfss"), "azure", "azure", AzureOptions, place="bucket", user=True,
    pins=True, archives=True, variables=("AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
)  # fmt: skip
GCS = SourceKind(
    "gcs", ("gs", "gcs"), "gcs", "gcs", GcsOptions, place="bucket", pins=True,
    variables=("GOOGLE_APPLICATION_CREDENTIALS",),
)  # fmt: skip
WEB = SourceKind("web", ("http", "https"), "web", options=WebOptions, pins=True)
FTP = SourceKind("ftp", ("ftp",), secrets="generic_opener", user=True, states_checksums=False)
# the kind of sources that fsspec opens: URLs whose scheme is in no row, and sources with `reader: fsspec`
OTHER = SourceKind("", (), secrets="generic_opener", blocks=True)
KINDS = (
    FOLDER, S3, AZURE, WEB, GCS, FTP,
    replace(OTHER, name="file server", schemes=("sftp", "ssh", "smb"), user=True, states_checksums=False),
    replace(OTHER, name="hadoop", schemes=("hdfs", "webhdfs"), states_checksums=False),
    replace(OTHER, name="memory", schemes=("memory",), place=""),
)  # fmt: skip
_BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.schemes}


def scheme(url: str) -> str:
    """Return the part before `://` in lower case; "" for a path."""
    name, separator, _ = url.partition("://")
    return name.lower() if separator else ""


_VARIABLE = re.compile(r"(?:^|/)\$(?:\w|\{\w+\})", re.ASCII)
_SCP = re.compile(r"([^/@:]+@[^/@:]+):(.*)", re.DOTALL)
_WITHOUT_SLASHES = re.compile(
    rf"({'|'.join(sorted({*_BY_SCHEME} - {''}))}):(/?)(.*)",
    re.DOTALL | re.IGNORECASE,
)


def with_slashes(text: str) -> str:
    """Complete `s3:/bucket/x` and `s3:bucket/x` to `s3://bucket/x`, and likewise other schemes. `file:/x`
    becomes its path. Return "" for any other text."""
    lacking = None if scheme(text) else _WITHOUT_SLASHES.fullmatch(text)
    if lacking is None:
        return ""
    name, slash, rest = lacking[1].lower(), lacking[2], lacking[3]
    return f"{slash}{rest}" if name in FOLDER.schemes else f"{name}://{rest}"


def no_path(text: str, *, source: bool) -> str:
    """Return why this text is no path, or "" if it is a URL or may be a path.

    A shell or scp would read some of these texts in another way:

    | the text                                     | its meaning                             |
    |----------------------------------------------|-----------------------------------------|
    | has `://`                                    | a URL                                   |
    | `s3:/...`, `s3:...`, or with another scheme  | a URL that lacks a slash or two         |
    | has a folder such as `$NAME` or `${NAME}`    | a variable, which nothing expands       |
    | `user@host:...`                              | a path of scp                           |
    | any other text                               | a path                                  |
    """
    if scheme(text):
        return ""
    if url := with_slashes(text):
        if not source:
            return "begins as a URL, and this is a folder that is mounted here"
        return f"is no URL: write {url} (or ./{text} for a folder of that name)"
    if _VARIABLE.search(text):
        expanded = os.path.expandvars(text)
        write = "the path out" if _VARIABLE.search(expanded) else expanded
        return f"has a variable, and none is expanded here: write {write}"
    if (remote := _SCP.fullmatch(text)) is None:
        return ""
    if not source:
        return "is a path of scp, and this is a folder that is mounted here"
    folder = remote[2] if remote[2].startswith("/") else "/FOLDER"
    return (
        f"is a path of scp, which is no source: write sftp://{remote[1]}{folder}, another URL (s3://, gs://, "
        "abfs://, https://, ftp://), or a folder that is mounted here"
    )


def through_fsspec(options: Mapping[str, object]) -> bool:
    """Return whether these `storage_options` choose fsspec over penstock's own reader."""
    return options.get("reader") == "fsspec"


def of_url(url: str) -> SourceKind:
    return _BY_SCHEME.get(scheme(url), OTHER)


def kind(url: str, options: Mapping[str, object]) -> SourceKind:
    """Return the kind of a source: that of its scheme, or `OTHER` for a store that fsspec reads."""
    by_url = of_url(url)
    return OTHER if by_url.place == "bucket" and through_fsspec(options) else by_url


def folder(url: str) -> str:
    """Return the absolute path for a path or a file URL, which is not decoded. Raises ConfigError for a
    relative file URL."""
    if not scheme(url):
        return os.path.abspath(os.path.expanduser(url))
    path = url.partition("://")[2]
    if not path.startswith("/"):
        raise ConfigError("a file URL without an absolute path", where=url, hint="write file:///folder")
    return os.path.abspath(path)
