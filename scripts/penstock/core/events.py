"""Events: what the steps tell the views. The steps emit counts; views render them.

A sink is any callable of one Event. It must not raise and must return soon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """`kind` is one of: start, progress, element, note, warning, end.

    - start: `data` may have `files`, `bytes` (totals, when known), `elements`
    - progress: `files`, `bytes` done so far in this step (monotonic), `failed`;
      optionally `states` ({state name: count}) of the elements
    - element: one element changed state: `index`, `state`, `node`, `reason`
    - note, warning: `text`, one line for people
    - end: `data` is the step's result, the same as its receipt's counts
    """

    kind: str
    dataset: str
    step: str
    data: Mapping[str, Any] = field(default_factory=dict)


Sink = Callable[[Event], None]


def silent(event: Event) -> None:
    """The sink that shows nothing."""
