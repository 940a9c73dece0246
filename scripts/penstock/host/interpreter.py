"""Starts Python isolated from the user's surroundings.

A module in the working directory or on PYTHONPATH (a `yaml.py`) would be imported in place of the real
module. In a shared folder that is somebody else's code. The user's locale would decide how names are encoded.
So every process runs isolated and in Python's UTF-8 mode. Penstock starts its own processes in this way
(`command`). The first process, which a person starts, replaces itself if it is not isolated (`isolate`).

Only `sys` and `os` are imported here, since any other module might already be a foreign one.
"""

import os
import sys

# Options for an interpreter without PYTHON* variables, without the working directory on the module path, and
# without the user's site-packages. Names and arguments are in UTF-8, whatever the locale.
ISOLATED = ("-I", "-X", "utf8")
# Options that also allow the user's site-packages, for an installation by `pip install --user`.
WITH_USER_SITE = ("-E", "-P", "-X", "utf8")
# Python's variables that change no import and no result. The effect of PYTHONUTF8 is checked separately.
HARMLESS = frozenset(
    f"PYTHON{name}"
    for name in (
        "DONTWRITEBYTECODE",
        "HASHSEED",
        "NOUSERSITE",
        "PYCACHEPREFIX",
        "SAFEPATH",
        "UNBUFFERED",
        "UTF8",
    )
)
CANNOT_START = 3


def isolated(python: str | None = None) -> list[str]:
    """Return the words that start this interpreter isolated. If `python` is given (`cluster.python`), start
    that interpreter, without its user's site-packages."""
    return [python or sys.executable, *(WITH_USER_SITE if not python and _installed_by_user() else ISOLATED)]


def command(module: str, python: str | None = None) -> list[str]:
    """Return the words that run `module` isolated."""
    return [*isolated(python), "-m", module]


def isolate() -> None:
    """Return if this process is isolated as with `command`, or else replace it by an isolated process (some
    20 ms). Call this before anything except `sys` and `os` is imported. Ends the process with status 3 if
    penstock is only on PYTHONPATH, since it cannot be separated from the other modules there."""
    if sys.flags.ignore_environment and sys.flags.safe_path and sys.flags.utf8_mode:
        return
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, or the script's folder
    obeyed = any(name.startswith("PYTHON") and name not in HARMLESS for name in os.environ)
    utf8 = sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8"
    if utf8 and not obeyed and _installed_by_user() == _user_site_used():
        return
    _refuse_on_pythonpath()
    # Arguments are passed as bytes, so that those that the locale could not decode arrive unchanged.
    os.execv(sys.executable, [*map(os.fsencode, [*command("penstock"), *sys.argv[1:]])])  # noqa: S606


def _user_site_used() -> bool:
    return bool(getattr(sys.modules.get("site"), "ENABLE_USER_SITE", False))


def _installed_by_user() -> bool:
    if not _user_site_used():
        return False
    folder = sys.modules["site"].getusersitepackages()
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name.startswith("penstock-") and name.endswith(".dist-info") for name in names)


def _refuse_on_pythonpath() -> None:
    installed = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if installed not in map(os.path.realpath, filter(None, entries)):
        return
    without = [*isolated(), "-c", "import importlib.util as u; exit(u.find_spec('penstock') is None)"]
    status = os.spawnv(os.P_WAIT, sys.executable, without)  # noqa: S606
    if status != 0:
        sys.stderr.write(
            f"penstock: it is installed on PYTHONPATH alone, which it does not obey [{installed}]\n"
            "  other modules on PYTHONPATH would take the place of its libraries; install it into a virtual\n"
            "  environment (python3 -m venv FOLDER) and call FOLDER/bin/penstock\n"
        )
        sys.stderr.flush()
        os._exit(CANNOT_START)
