"""The commented text of a new configuration, for `penstock init`."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from penstock.config import strict_yaml
from penstock.config.source_kinds import of_url, scheme
from penstock.config.validation import RESERVED
from penstock.core.human import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HEAD = """\
# Written by `penstock init`. `penstock preflight` tries it and changes nothing; `penstock run` stages.
# No secrets here: name a profile, or a file of mode 0600. Sizes and times carry their unit: 256MiB, 4h.
"""
WITHOUT_GROUP = "    # permissions: {group: NAME}            # whose members read what is published"
LONGEST = 64  # characters in a dataset's name, at most
WITHOUT_NAME = "data"  # the dataset's name if the source has no usable name
_PLAIN = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?[A-Za-z0-9/._+@=-]+(?::[0-9]+(?:/[A-Za-z0-9/._+@=-]*)?)?")
_COMMENTS_FROM = 42  # column at which comments begin, unless the line is longer


class KeyLine(NamedTuple):
    key: str
    value: str
    comment: str = ""


class NewFile(NamedTuple):
    """The values from which the text is made."""

    source: str
    root: str
    dataset: str
    options: Mapping[str, str | bool]  # keys of `storage_options`
    target_is: str  # a comment that describes the target
    group: KeyLine | None  # the key `permissions.group`; None if the text leaves it out
    cluster: tuple[KeyLine, ...]  # the keys of `cluster`

    def text(self) -> str:
        """The file's text, which the loader judges."""
        lines = [_line(0, "target"), _line(2, "root", self.root, self.target_is)]
        lines += [_line(0, "datasets"), _line(2, self.dataset), _line(4, "source", self.source)]
        if self.options:
            lines.append(_line(4, "storage_options"))
            lines += [_line(6, key, value) for key, value in self.options.items()]
        if self.group is not None:
            lines += [_line(4, "permissions"), _line(6, *self.group)]
        else:
            lines.append(WITHOUT_GROUP)
        lines.append(_line(0, "cluster"))
        lines += [_line(2, *line) for line in self.cluster]
        return HEAD + "".join(f"{line}\n" for line in lines)


def _line(indent: int, key: str, value: str | bool | None = None, comment: str = "") -> str:
    text = "" if value is None else f" {str(value).lower() if isinstance(value, bool) else scalar(value)}"
    line = f"{' ' * indent}{scalar(key)}:{text}"
    return f"{line:<{_COMMENTS_FROM}}  # {printable(comment)}" if comment else line


def scalar(text: str) -> str:
    """Write text as YAML that all readers read alike: in quotes unless it is plain."""
    if _PLAIN.fullmatch(text):
        try:
            if strict_yaml.parse(text).value == text:
                return text
        except strict_yaml.StrictYamlError:
            pass
    return json.dumps(text, ensure_ascii=False)


def dataset_name(source: str, taken: Callable[[str], bool]) -> str:
    """Return a valid name from the source's last folder, bucket or host. A `taken` name gets a number."""
    name = _valid(_last_folder(source)) or WITHOUT_NAME
    number, unique = 1, name
    while unique in RESERVED or taken(unique):
        number += 1
        end = f"-{number}"
        unique = name[: LONGEST - len(end)] + end
    return unique


def _last_folder(source: str) -> str:
    if not scheme(source):
        return source.rstrip("/").rpartition("/")[2]
    components = urlsplit(source)
    last = components.path.rstrip("/").rpartition("/")[2]
    # abfs://container@account/ has its container before the @.
    container, _, host = components.netloc.rpartition("@")
    return last or (container if of_url(source).place == "bucket" and container else host.partition(":")[0])


def _valid(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub("[^A-Za-z0-9._-]+", "-", plain).lstrip("._-")[:LONGEST].rstrip("-")
