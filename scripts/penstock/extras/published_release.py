"""What a description is made of: a release's seal and manifest, and the dataset's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DescribeConfig
    from penstock.dataset.seals import Stored


class PublishedRelease(NamedTuple):
    folder: Path  # holds `data/` and the manifests: the release's, or its staging
    stored: Stored
    words: DescribeConfig
