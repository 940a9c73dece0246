"""Starts Python isolated from the user's surroundings.

A module of the working directory or of PYTHONPATH (a `yaml.py`) would be imported in place of the real one:
in a shared folder that is somebody else's code. The user's locale would decide how names are encoded. So
every process runs isolated and in Python's UTF-8 mode. Penstock starts its processes so (`command`); the
first one, which a person starts, replaces itself where its surroundings differ (`isolate`).

Only `sys` and `os` are imported here: any other module might already be the wrong one.
"""

import os
import sys

# Without PYTHON* variables, the working directory on the module path, and the user's site-packages; names and
# arguments in UTF-8, whatever the locale.
ISOLATED = ("-I", "-X", "utf8")
# The same with the user's site-packages, for an installation by `pip install --user`.
WITH_USER_SITE = ("-E", "-P", "-X", "utf8")
# Python's variables that change no import and no result; the effect of UTF8 is checked separately.
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
    """Return the words that start this interpreter isolated, or `python`, another one (`cluster.python`),
    without its user's site-packages."""
    return [python or sys.executable, *(WITH_USER_SITE if not python and _installed_by_user() else ISOLATED)]


def command(module: str, python: str | None = None) -> list[str]:
    """Return the words that run `module` isolated."""
    return [*isolated(python), "-m", module]


def isolate() -> None:
    """Return if this process is isolated as by `command`; else replace it by one that is (some 20 ms). Call
    it before anything but `sys` and `os` is imported. Ends the process with status 3 if penstock is installed
    on PYTHONPATH alone, which cannot be separated from what else is there."""
    if sys.flags.ignore_environment and sys.flags.safe_path and sys.flags.utf8_mode:
        return
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, or that of the script
    obeyed = any(name.startswith("PYTHON") and name not in HARMLESS for name in os.environ)
    utf8 = sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8"
    if utf8 and not obeyed and _installed_by_user() == _user_site_used():
        return
    _refuse_on_pythonpath()
    # As bytes: arguments that the locale could not decode arrive unchanged.
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
