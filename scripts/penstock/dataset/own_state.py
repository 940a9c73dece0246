"""Where an account keeps the state of auditing or comparing another account's dataset: in its home, since
only the owner may write the dataset's state."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import OlderVersionError, PreflightError
from penstock.fs import small_files
from penstock.target import state_marker

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout


def layout_of(layout: DatasetLayout) -> DatasetLayout:
    """Return the dataset's paths with the state below XDG_STATE_HOME or `~/.local/state`. Makes nothing.
    Without a home the path is relative and leads nowhere."""
    configured = os.environ.get("XDG_STATE_HOME")
    home = Path(configured).absolute() if configured else Path(os.path.expanduser("~/.local/state"))
    place = hashlib.sha256(os.fsencode(layout.root.absolute())).hexdigest()[:16]
    return replace(layout, state_root=home / "penstock" / place)


def beside(layout: DatasetLayout, what: str) -> DatasetLayout:
    """As `layout_of`, and make the state's folder durably with its version marker. `what` names the state for
    people, such as `this audit`. Raises PreflightError if the folder cannot be made, OlderVersionError and
    NewerFormatError if another version made it."""
    own = layout_of(layout)
    try:
        if not own.state.is_absolute():
            raise FileNotFoundError(errno.ENOENT, "this account has no home", str(own.state))
        small_files.make_dirs(own.state)
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
