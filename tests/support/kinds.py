"""Every kind of JSON document that the package declares, found by walking its modules."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from penstock import core
from penstock.core.typed_json import Document

if TYPE_CHECKING:
    from collections.abc import Iterator


def _declared() -> Iterator[Document[Any]]:
    for module in pkgutil.walk_packages(core.__path__, "penstock.core."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (
                part
                for part in (value.values() if isinstance(value, dict) else [value])
                if isinstance(part, Document)
            )


DOCUMENTS = sorted(
    {id(document): document for document in _declared()}.values(), key=lambda document: document.kind.__name__
)
