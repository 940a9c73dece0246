"""The keys of `storage_options`, of each kind of source that penstock reads itself: what may be written for
them, and what docs/configuration-sources.md says of them. Declarations alone: no class here is ever
instantiated.

`config.semantic_checks` and `config.validation` refuse other keys and values by the annotations, which
`config.annotations` explains. Of what fsspec opens (another scheme, or `reader: fsspec`) no key is checked.
docs/configuration.py makes the page: of each class its docstring, its keys, and its `SECRETS`, the places in
which secrets are looked for, in order. A kind of source without `SECRETS` needs none.
"""

# Annotations are read at run time: no `from __future__ import annotations`.
from typing import Annotated

from penstock.config.annotations import About, Choice, Example, Items, Switch, Text

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
