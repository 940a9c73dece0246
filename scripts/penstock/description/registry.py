"""The forms in which a release can be described: a row for each.

A further form (RO-Crate, BagIt) is a module with `pieces` and `left_out`, a row here, and its file's name in
`core.layout`, by which an audit knows it; `penstock describe --form` and what publish writes follow from this
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.layout import CROISSANT
from penstock.description import croissant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.config.settings import DescribeConfig
    from penstock.core.documents.seal import Seal
    from penstock.description.published_release import PublishedRelease


class Form(NamedTuple):
    file: str
    """Its name beside the seal."""
    pieces: Callable[[PublishedRelease], Iterator[str]]
    """The document's text."""
    left_out: Callable[[DescribeConfig, Seal], Sequence[str]]
    """Keys of the dataset's description that the form asks for and that are not given."""


FORMS = {"croissant": Form(CROISSANT, croissant.pieces, croissant.left_out)}
