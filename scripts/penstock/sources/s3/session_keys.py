"""Finds keys, region and endpoint as AWS's own tools do: through botocore, in a process with a time limit.

botocore may call programs or services that hang (a `credential_process`, a sign-on, a metadata service) or
want a person (a one-time code). So the process reads no terminal, and after LIMIT seconds it ends, with all
programs that it started. It prints the keys, or a sentence that quotes the output of the failing program. The
command is `python -m penstock.sources.s3.session_keys REQUEST`; REQUEST and output are JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, masked_words, printable
from penstock.fs import small_files
from penstock.host import command, interpreter
from penstock.sources.s3.sigv4 import Keys

if TYPE_CHECKING:
    from types import FrameType

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
        if answer["why"] == NO_KEYS:
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


if __name__ == "__main__":
    main()
