"""Where an account keeps the state of an audit or a comparison of a dataset that is another account's: in its
home, since the dataset's own state folder is its owner's alone."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import OlderVersionError, PreflightError
from penstock.fs import durable
from penstock.target import state_marker

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout


def layout_of(layout: DatasetLayout) -> DatasetLayout:
    """The dataset's paths, with its state where this account would keep it: below
    XDG_STATE_HOME or `~/.local/state`. Makes nothing. For an account without a home the path is
    relative, and leads nowhere."""
    given = os.environ.get("XDG_STATE_HOME")
    home = Path(given).absolute() if given else Path(os.path.expanduser("~/.local/state"))
    place = hashlib.sha256(os.fsencode(layout.root.absolute())).hexdigest()[:16]
    return replace(layout, state_root=home / "penstock" / place)


def beside(layout: DatasetLayout, what: str) -> DatasetLayout:
    """As `layout_of`, and makes the folder of the state, durably, with the marker of its version. `what`
    names the state for people, such as `this audit`. Raises PreflightError where no such folder can be made,
    OlderVersionError and NewerFormatError where another version made it."""
    own = layout_of(layout)
    try:
        if not own.state.is_absolute():
            raise FileNotFoundError(errno.ENOENT, "this account has no home", str(own.state))
        durable.make_dirs(own.state)
        state_marker.mark_state(own)
    except OlderVersionError as error:
        hint = f"remove {own.state.parent}: the same command begins anew"
        raise OlderVersionError(error.what, where=error.where, why=error.why, hint=hint) from None
    except OSError as error:
        raise PreflightError(
            f"there is no place for the state of {what}",
            where=str(own.state),
            why=str(error.strerror),
            hint="set XDG_STATE_HOME to a folder of yours that the nodes see, too",
        ) from None
    return own
