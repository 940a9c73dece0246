"""Keys, region and endpoint of an S3 source, resolved in the parent process: from the configuration, or as
AWS's own tools do, through botocore, in a process with a time limit. And the signature by these keys: AWS
Signature Version 4, of a request without a body.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import hmac
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, masked_words, printable
from penstock.fs import small_files
from penstock.host import command, interpreter
from penstock.sources.credentials import ENVIRONMENT, read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from penstock.config.settings import SourceConfig


# Signs requests without a body by AWS Signature Version 4 ("Create a signed AWS API request"). Tests compare
# the signatures with AWS's test vectors and with those of botocore (`tests/oracles`).

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()  # the digest of the body that a request without a body states
_sha256 = hashlib.sha256


@dataclass(frozen=True)
class Keys:
    """An access key. `repr` shows its id (`access`), but neither the secret nor the session token."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)
    # when temporary keys expire, in seconds since the epoch; None if never, or unknown
    expires: float | None = None


def _padded(key: bytes, with_: int) -> hashlib._Hash:
    """Return SHA-256's state after the padded key (RFC 2104: 0x36 for the inner hash, 0x5c for the outer)."""
    return _sha256(bytes(byte ^ with_ for byte in key.ljust(64, b"\0")))


class Signer:
    """Signs for one access key, region and service, in one thread. Keeps the day's signing key."""

    def __init__(self, keys: Keys, region: str, service: str = "s3") -> None:
        self.keys, self.region, self.service = keys, region, service
        self._second = -1
        self._stamp = self._scope = ""
        self._inner = self._outer = _sha256()

    def stamp(self, now: float | None = None) -> str:
        """Return the time of signing in the form of `x-amz-date`."""
        second = int(time.time() if now is None else now)
        if second != self._second:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            if stamp[:8] != self._stamp[:8]:
                key = ("AWS4" + self.keys.secret).encode()
                for text in (stamp[:8], self.region, self.service, "aws4_request"):
                    key = hmac.digest(key, text.encode(), "sha256")
                self._inner, self._outer = _padded(key, 0x36), _padded(key, 0x5C)
                self._scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
            self._stamp, self._second = stamp, second
        return self._stamp

    def prepare(self, headers: Sequence[tuple[str, str]], payload: str = EMPTY_SHA256) -> tuple[str, str]:
        """Return the parts that are equal in all requests with these headers and this stamp. They are the
        canonical request after its query, and the Authorization header without its signature."""
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        names = ";".join([name for name, _ in headers])
        start = (
            f"AWS4-HMAC-SHA256 Credential={self.keys.access}/{self._scope}, SignedHeaders={names}, Signature="
        )
        return f"{lines}\n{names}\n{payload}", start

    def sign(self, canonical: str) -> str:
        """Sign a canonical request. HMAC continues copies of two kept states, since new states would cost
        more than all the hashing."""
        digest = _sha256(canonical.encode()).hexdigest()
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"AWS4-HMAC-SHA256\n{self._stamp}\n{self._scope}\n{digest}".encode())
        outer.update(inner.digest())
        return outer.hexdigest()


# Finds keys, region and endpoint as AWS's own tools do: through botocore, in a process with a time limit.
#
# botocore may call programs or services that hang (a `credential_process`, a sign-on, a metadata service) or
# want a person (a one-time code). So the process reads no terminal, and after LIMIT seconds it ends, with all
# programs that it started. It prints the keys, or a sentence that quotes the output of the failing program.
# The command is `python -m penstock.sources.s3_credentials REQUEST`; REQUEST and output are JSON.

# Seconds until keys must be found. Preflight waits longer for a node's report, so the node can still name the
# program that hangs.
LIMIT = 30.0
GRACE = 5.0  # seconds after LIMIT at which the process is killed, if it has not even reported its failure
# bytes of memory for the process, at most, since a helper (a program that botocore starts) may print without
# end
MOST = 1 << 30
SHOWN = 300  # characters of a program's output in a message, at most
HINT = (
    "public bucket: `storage_options: {anon: true}`\n"
    "  a profile: `aws configure --profile NAME`, then `storage_options: {profile: NAME}`\n"
    "  a file with keys, mode 0600: `storage_options: {credentials_file: FILE}`"
)
CODE_HINT = (
    "get a session by `aws sts get-session-token --serial-number ... --token-code ...`, and put its three "
    "keys into a credentials_file or a profile of their own; or name a credential_process, which needs nobody"
)
NO_KEYS = "neither the environment nor the AWS configuration has keys"
SIGN_ON = "its sign-on (SSO)"
_SHAPED = re.compile(r"(?=[\w+/=]*[a-z])(?=[\w+/=]*[A-Z])[\w+/=]{32,}|\b[0-9a-f]{32,}")
_helpers: list[subprocess.Popen[bytes]] = []  # the processes of programs that botocore started


def of_profile(profile: str, url: str, *, instance_metadata: bool) -> tuple[Keys, dict[str, str]]:
    """Return the keys of the profile ("" for the environment's, or `default`), and further settings of AWS's
    tools.

    The settings are `region`, `endpoint` and `ca_bundle` ("" if not set), the `profile`, and the `method`
    that found the keys. Raises PreflightError with the profile, the failing program and the program's output.
    `url` is the source's.
    """
    request = {"profile": profile, "instance_metadata": instance_metadata, "seconds": LIMIT}
    said = command.run(
        [*interpreter.command(__name__), json.dumps(request)], deadline=LIMIT + GRACE, more=os.environ
    )
    try:
        answer: dict[str, Any] = json.loads(said.out)
    except ValueError:
        answer = {"why": cleaned(said.words)}
    if "why" in answer:
        name = answer.get("profile") or profile or os.environ.get("AWS_PROFILE") or "default"
        what = f"the profile {in_quotes(name)} of the AWS configuration gives no keys"
        if answer["why"] == NO_KEYS and not profile:
            what = "no credentials for the source"
        why = answer["why"] + (_kept(answer["said"]) if answer.get("said") else "")
        raise PreflightError(what, where=url, why=why, hint=answer.get("hint", HINT))
    keys = Keys(answer["access"], answer["secret"], answer["session"], answer["expires"])
    return keys, answer


def cleaned(text: str) -> str:
    """Shorten a program's output to one line of at most SHOWN characters, without possible secrets."""
    line = "; ".join(filter(None, (line.strip() for line in text.splitlines())))
    return printable(_SHAPED.sub("...", masked_words(line))[:SHOWN])


def _kept(words: str) -> str:
    """Save a helper's whole output in a file that only this account can read. Return words that name the
    file, for the end of a message; "" if the file cannot be written."""
    with contextlib.suppress(OSError, RuntimeError):
        state = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
        log = state / "penstock" / "credential_process.log"
        small_files.make_dirs(log.parent)
        small_files.write_file(log, words.encode("utf-8", "surrogateescape"))
        return f"; all that it said is in {printable(str(log))}"
    return ""


# ---- in the process


class _LateError(Exception):
    """LIMIT seconds have passed."""


def main() -> None:
    """Print the answer, and end all programs that were started for it."""
    request = json.loads(sys.argv[1])
    answer: dict[str, Any] = {"profile": request["profile"] or os.environ.get("AWS_PROFILE") or "default"}
    answer["by"] = "the configuration"

    def late(_number: int, _frame: FrameType | None) -> None:
        raise _LateError

    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    within = MOST if most == resource.RLIM_INFINITY else min(MOST, most)
    resource.setrlimit(resource.RLIMIT_DATA, (within, most))
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    warnings.simplefilter("ignore")
    try:
        _find(request, answer)
    except _LateError:
        answer["why"] = f"{answer['by']}: no answer within {request['seconds']:.0f} s"
    except EOFError:  # no terminal to read
        answer["why"] = f"{answer['by']}: it asks for a one-time code, and nobody is there to type it"
        answer["hint"] = CODE_HINT
    except Exception as error:  # noqa: BLE001 - whatever botocore and what it calls raise is the answer
        said = getattr(error, "kwargs", {}).get("error_msg") or ""
        answer["why"] = f"{answer['by']}: {_words(error)}"
        if _helpers and _helpers[-1].returncode:
            answer["said"] = said
            first = cleaned(said.strip().partition("\n")[0])
            status = f"exit status {_helpers[-1].returncode}"
            answer["why"] = f"{answer['by']}: {f'{first} ({status})' if first else status}"
        if answer["by"] == SIGN_ON:
            answer["hint"] = f"sign on by `aws sso login --profile {answer['profile']}`"
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    # This also ends a hanging helper, which belongs to this process's own session.
    os.killpg(0, signal.SIGKILL)


def _find(request: dict[str, Any], answer: dict[str, Any]) -> None:
    import botocore.session

    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        default = "~/.aws/config" if name == "AWS_CONFIG_FILE" else "~/.aws/credentials"
        path = os.path.expanduser(os.environ.get(name) or default)
        if os.path.lexists(path):  # botocore ignores a file that it cannot read
            with open(path, "rb") as file:
                file.read(1)
    session = botocore.session.Session(profile=request["profile"] or None)
    scoped = session.get_scoped_config()
    answer["profile"] = session.get_config_variable("profile") or "default"
    answer["by"] = _by(scoped)
    answer["region"] = session.get_config_variable("region") or ""
    answer["endpoint"] = _endpoint(session, scoped)
    answer["ca_bundle"] = session.get_config_variable("ca_bundle") or ""
    resolver = session.get_component("credential_provider")
    for provider in resolver.providers:
        if hasattr(provider, "_popen"):  # the provider of a credential_process
            provider._popen = _started  # noqa: SLF001  else botocore keeps the exit status to itself
    if not request["instance_metadata"]:
        resolver.remove("iam-role")
    held = session.get_credentials()
    frozen = held.get_frozen_credentials() if held else None
    if frozen is None or not frozen.access_key:
        answer["why"] = NO_KEYS
        return
    # Only this private attribute of botocore states when temporary keys expire.
    ends = getattr(held, "_expiry_time", None)
    answer |= {
        "access": frozen.access_key,
        "secret": frozen.secret_key,
        "session": frozen.token or "",
        "expires": ends.timestamp() if ends else None,
        "method": held.method,
    }


def _started(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
    _helpers.append(subprocess.Popen(*words, **more))
    return _helpers[-1]


def _by(scoped: dict[str, Any]) -> str:
    """Describe for people where a profile's keys come from."""
    for key, words in (
        ("role_arn", "the role that it assumes"),
        ("credential_process", "its credential_process"),
        ("sso_session", SIGN_ON),
        ("sso_start_url", SIGN_ON),
    ):
        if scoped.get(key):
            return words
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return "the token of AWS_WEB_IDENTITY_TOKEN_FILE"
    return "what AWS's tools look through"


def _endpoint(session: Any, scoped: dict[str, Any]) -> str:
    services = session.full_config.get("services", {}).get(scoped.get("services", ""), {})
    of_s3 = services.get("s3", {}) if isinstance(services, dict) else {}
    if isinstance(of_s3, dict) and of_s3.get("endpoint_url"):
        return str(of_s3["endpoint_url"])
    return str(scoped.get("endpoint_url") or "")


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{printable(str(error.filename))}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"what it gave is larger than {MOST >> 20} MiB"
    if isinstance(error, json.JSONDecodeError):
        return "what it gave is no JSON"
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        return f"what it gave makes no sense ({type(error).__name__})"
    # botocore's error texts add a preface to a helper's words.
    stated = getattr(error, "kwargs", {}).get("error_msg") or str(error)
    return cleaned(str(stated).strip().partition("\n")[0]) or type(error).__name__


# Resolves keys, region and endpoint of an S3 source in the parent process: once, and again when the store
# refuses the keys.
#
# The first of these that is present counts: `anon`; `credentials_file`; the keys that AWS's own tools would
# use (`profile`, the environment, shared files, SSO, a container's role). To find AWS's keys, `of_profile`
# may start botocore in a process that may send requests. An instance's metadata service is queried only with
# `instance_metadata: true`.

_NAMES = {
    "aws_access_key_id": "access",
    "access_key_id": "access",
    "access_key": "access",
    "key": "access",
    "aws_secret_access_key": "secret",
    "secret_access_key": "secret",
    "secret_key": "secret",
    "secret": "secret",
    "aws_session_token": "session",
    "session_token": "session",
    "token": "session",
}
_ASKS_BOTOCORE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "BOTO_CONFIG")


@dataclass(frozen=True)
class S3Credentials:
    """The resolved values that a worker needs beside the configuration. Picklable."""

    keys: Keys | None  # None if requests are not signed
    region: str = "us-east-1"
    endpoint: str = ""  # the store's URL; "" for AWS's own endpoint of the region
    origin: str = ""  # see `sources.credentials`
    ca_bundle: str = ""  # the profile's file of certificate authorities, or ""

    @property
    def expires(self) -> float | None:
        """When the keys expire, in seconds since the epoch; None if never, or unknown."""
        return self.keys.expires if self.keys else None


def resolve(config: SourceConfig) -> S3Credentials:
    """Resolve the credentials now. Raises PreflightError if they are missing or not kept safely."""
    options = config.storage_options
    e = os.environ
    region = options.get("region") or e.get("AWS_REGION") or e.get("AWS_DEFAULT_REGION")
    endpoint = options.get("endpoint_url") or e.get("AWS_ENDPOINT_URL_S3") or e.get("AWS_ENDPOINT_URL")
    keys: Keys | None
    origin = bundle = ""
    if options.get("anon"):
        keys = None
    elif options.get("credentials_file"):
        origin = os.path.expanduser(str(options["credentials_file"]))
        keys = read_file(origin, str(options.get("profile") or ""))
    else:
        trusted = options.get("ca_bundle") or e.get("AWS_CA_BUNDLE") or str(endpoint).startswith("http:")
        decided = bool(region and endpoint and trusted)
        keys, origin = _of_environment(options, decided=decided), ENVIRONMENT
        if keys is None:
            profile, metadata = str(options.get("profile") or ""), bool(options.get("instance_metadata"))
            keys, resolved = of_profile(profile, config.url, instance_metadata=metadata)
            region, endpoint = region or resolved["region"], endpoint or resolved["endpoint"]
            bundle, named = resolved["ca_bundle"], f"the profile {in_quotes(resolved['profile'])}"
            origin = ENVIRONMENT if resolved["method"] == "env" else named
    return S3Credentials(keys, str(region or "us-east-1"), str(endpoint or ""), origin, bundle)


def _of_environment(options: Any, *, decided: bool) -> Keys | None:
    """Find the keys that botocore would find first, without loading botocore (0.2 s of CPU in each step that
    reaches the store). None means that botocore has to be used.

    `decided` means that AWS's shared files do not affect region, endpoint and certificate authorities.

    | keys in the environment | a profile is named, or they expire  | decided, or no shared files | result  |
    |-------------------------|-------------------------------------|-----------------------------|---------|
    | no                      |                                     |                             | None    |
    | yes                     | yes                                 |                             | None    |
    | yes                     | no                                  | no                          | None    |
    | yes                     | no                                  | yes                         | the keys|
    """
    e = os.environ
    access, secret = e.get("AWS_ACCESS_KEY_ID"), e.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or options.get("profile") or any(e.get(name) for name in _ASKS_BOTOCORE):
        return None
    if not decided:
        files = (
            e.get("AWS_CONFIG_FILE") or "~/.aws/config",
            e.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
            "~/.boto",
            "/etc/boto.cfg",
        )
        if any(name != os.devnull and os.path.lexists(os.path.expanduser(name)) for name in files):
            return None
    return Keys(access, secret, e.get("AWS_SECURITY_TOKEN") or e.get("AWS_SESSION_TOKEN") or "")


def read_file(path: str, profile: str = "") -> Keys:
    """Read keys from a file that is this user's, with mode 0600. It contains KEY=VALUE lines, or INI with
    sections. Raises PreflightError if it has no access key."""
    text = read_secret(path)
    values = parse(text, profile)
    if values is None or not values.get("access") or not values.get("secret"):
        section = f" for profile {in_quotes(profile)}" if profile else ""
        raise PreflightError(
            f"the credentials file has no access key{section}",
            where=path,
            hint="it wants aws_access_key_id=... and aws_secret_access_key=...",
        )
    return Keys(values["access"], values["secret"], values.get("session", ""))


def parse(text: str, profile: str = "") -> dict[str, str] | None:
    """Parse a section of an INI, or plain lines. Return those of the fields `access`, `secret` and `session`
    that it has. Return None if the section is missing, or the text is no INI."""
    lines = [line.strip().removeprefix("export ") for line in text.splitlines()]
    if not any(line.startswith("[") for line in lines):
        lines.insert(0, f"[{profile or 'default'}]")
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), inline_comment_prefixes=None)
    try:
        parser.read_string("\n".join(lines))
    except configparser.Error:
        return None
    wanted = profile or "default"
    for section in (wanted, f"profile {wanted}"):
        if parser.has_section(section):
            pairs = parser.items(section)
            return {_NAMES[k.lower()]: v.strip().strip("\"'") for k, v in pairs if k.lower() in _NAMES}
    return None


if __name__ == "__main__":
    main()
