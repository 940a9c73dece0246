"""The Python interpreter, and what of the user's surroundings reaches it.

A module of the working directory or of PYTHONPATH (a `yaml.py`, a `queue.py`, an old library of a module
system) would be imported in place of the real one: in a shared folder that is somebody else's code. And the
user's locale would decide how the names of objects and files are encoded. So every process runs isolated and
in Python's UTF-8 mode: those that penstock starts are started so (`command`); the first one, which a person
starts, replaces itself by one that is (`isolate`) where its surroundings differ.

`sys` and `os` alone are imported here: any other module might already be the wrong one. Nothing is touched,
but that `isolate` replaces this process.
"""

import os
import sys

ISOLATED = ("-I", "-X", "utf8")
"""No PYTHON* variable, no working directory on the path of modules, no site-packages of the user's; names and
arguments in UTF-8, whatever the locale."""
WITH_USER_SITE = ("-E", "-P", "-X", "utf8")
"""The same with the user's site-packages: for an installation by `pip install --user`, which lies there."""
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
"""Python's variables that change nothing of what is imported or computed; what UTF8 does is looked at."""
CANNOT_START = 3


def isolated(python: str | None = None) -> list[str]:
    """The words that start this interpreter isolated, or `python`, another one (`cluster.python`), whose
    user's site-packages do not count."""
    return [python or sys.executable, *(WITH_USER_SITE if not python and _installed_by_user() else ISOLATED)]


def command(module: str, python: str | None = None) -> list[str]:
    """The words that run `module` by `isolated`."""
    return [*isolated(python), "-m", module]


def isolate() -> None:
    """Returns in a process whose surroundings are those of `command`; elsewhere replaces this process by such
    a one, with the same arguments (some 20 ms). Ends the process with status 3 where penstock is installed
    on PYTHONPATH alone, which cannot be kept apart from what else lies there. To be called before anything
    but `sys` and `os` is imported."""
    if sys.flags.ignore_environment and sys.flags.safe_path and sys.flags.utf8_mode:
        return
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, or that of the script
    obeyed = any(name.startswith("PYTHON") and name not in HARMLESS for name in os.environ)
    utf8 = sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8"
    if utf8 and not obeyed and _installed_by_user() == _user_site_used():
        return
    _refuse_on_pythonpath()
    # As bytes: what the locale could not decode arrives as it was.
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
