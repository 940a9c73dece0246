"""JSON answers of stores, as values. Pure."""

from __future__ import annotations

import json
from typing import Any

from penstock.core.errors import FailedError, TransientError


def document(text: bytes, where: str) -> dict[str, Any]:
    """An answer that is a JSON object. Raises TransientError for one that is cut off, FailedError for what is
    none."""
    try:
        answer = json.loads(text)
    except ValueError:
        if text.startswith(b"{"):
            raise TransientError("the answer ends in the middle", where=where) from None
        answer = None
    if not isinstance(answer, dict):
        raise FailedError("the answer is no JSON object", where=where, hint="check endpoint_url")
    return answer
