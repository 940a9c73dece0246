"""Text of XML answers, as stores write it: their pages and errors are read by patterns, not by a parser.
Pure."""

from __future__ import annotations

import re

# The ampersand comes last: `&amp;lt;` means `&lt;`, not `<`.
_ENTITIES = (
    ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"),
)  # fmt: skip
_NUMBERED = re.compile(r"&#(x[0-9A-Fa-f]{1,8}|[0-9]{1,8});")
_TAG = re.compile(rb"<(\w+)>([^<]*)</")


def plain(text: str) -> str:
    """The text with XML's entities replaced by their characters."""
    if "&" not in text:
        return text
    text = _NUMBERED.sub(_numbered, text)
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text


def _numbered(match: re.Match[str]) -> str:
    number = match[1]
    code = int(number[1:], 16) if number[0] == "x" else int(number)
    # An ampersand stays escaped here: `_ENTITIES` replaces it, once.
    if code == 38:
        return "&amp;"
    # Half of a surrogate pair is no character: no key has one.
    return match[0] if code >= 0x110000 or 0xD800 <= code < 0xE000 else chr(code)


def first_values(body: bytes) -> dict[str, str]:
    """The text of the first element of each name that holds nothing but text: the `Code` and `Message` of an
    error. {} for what is no XML."""
    values: dict[str, str] = {}
    for tag, value in _TAG.findall(body):
        values.setdefault(tag.decode("latin-1"), plain(value.decode("utf-8", "replace")))
    return values
