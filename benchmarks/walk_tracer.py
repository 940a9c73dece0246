"""What `walks.py` puts into each process of a walk: it notes where a value passes, or what calls what.

`walks.py` copies this file into an environment of its own, as a module that every interpreter there imports
as it starts; `walk.json` beside it says what is traced, and where the notes go. A process appends a line to
the notes as soon as there is something new, so one that is killed leaves what it knew.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

DEPTH = 4
"""So deep a value is looked for in containers: a list of rows of a frame is three."""
LONGEST = 1000
"""Containers with more than so many members are not looked through; the walks have a handful of files."""


class Trace:
    """Of one process: where one of `values` passes, texts and numbers; or, with `within`, the calls from one
    module into another while the function runs whose full name ends so."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._package: str = order["package"]
        self._values = [str(value) for value in order["values"]]
        self._bytes = [value.encode() for value in self._values]
        self._numbers = [value for value in order["values"] if isinstance(value, int | float)]
        self._within: str = order["within"]
        self._depth = 0
        self._notes = os.open(order["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._noted: set[tuple[str, str]] = set()
        self._modules: dict[str, str] = {}

    def _module(self, file: str) -> str:
        """`jobs.element` of a file of the package, "" of all others."""
        module = self._modules.get(file)
        if module is None:
            module = ""
            if file.startswith(self._package):
                module = file[len(self._package) : -len(".py")].replace("/", ".").removesuffix(".__init__")
            self._modules[file] = module
        return module

    def __call__(self, frame: Any, event: str, result: object) -> None:
        # Not what runs as a module is imported, its classes included.
        if event not in ("call", "return") or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        module = self._module(frame.f_code.co_filename)
        if not module:
            return
        if self._within:
            self._count(frame, module, event)
            return
        given = {form for value in self._arguments(frame) for form in self._forms(value, DEPTH)}
        returned = self._forms(result, DEPTH) if event == "return" else set()
        for form in given | returned:
            self._note("HAS", module, form)
        if given and returned and not given & returned:
            ends = (" and ".join(sorted(forms)) for forms in (given, returned))
            self._note("TURNS", f"{module}.{frame.f_code.co_name}", *ends)

    def _note(self, *words: str, once: bool = True) -> None:
        if not once or words not in self._noted:
            self._noted.add(words)  # type: ignore[arg-type]
            os.write(self._notes, ("\t".join(words) + "\n").encode())

    def _count(self, frame: Any, module: str, event: str) -> None:
        if f"{module}.{frame.f_code.co_name}".endswith(self._within):
            self._depth += 1 if event == "call" else -1
        if self._depth and event == "call":
            self._call(frame, module)

    def _call(self, frame: Any, module: str) -> None:
        """A line for each call from one module of the package into another: `BACK` where the module that is
        called waits further up for the one that calls."""
        waiting = []
        caller = frame.f_back
        while caller is not None:
            if name := self._module(caller.f_code.co_filename):
                waiting.append(name)
            caller = caller.f_back
        if not waiting:
            self._note("CALL", "", module, once=False)
        elif waiting[0] != module:
            self._note("BACK" if module in waiting else "CALL", waiting[0], module, once=False)

    @staticmethod
    def _arguments(frame: Any) -> Any:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[: count + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
        return (frame.f_locals[name] for name in names if name in frame.f_locals and name != "self")

    def _forms(self, value: Any, depth: int) -> set[str]:
        """The names of the types that hold the traced value, the innermost ones: `Entry.key`, `str`."""
        kind = type(value).__name__
        if isinstance(value, str | os.PathLike):
            text = os.fspath(value)
            return {kind} if isinstance(text, str) and any(part in text for part in self._values) else set()
        if isinstance(value, bytes | bytearray | memoryview):
            return {"bytes"} if any(part in bytes(value) for part in self._bytes) else set()
        if isinstance(value, int | float):
            return {kind} if not isinstance(value, bool) and value in self._numbers else set()
        if kind in ("RecordBatch", "Table", "Array", "ChunkedArray", "StringArray"):
            return {"Arrow"} if self._forms(value.to_pylist(), 3) else set()
        if depth == 0:
            return set()
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = list(value)
        elif hasattr(value, "__dataclass_fields__"):
            inner = [getattr(value, name, None) for name in value.__dataclass_fields__]
        else:
            return set()
        if len(inner) > LONGEST:
            return set()
        forms = set()
        for member in inner:
            for form in self._forms(member, depth - 1):
                plain = form in ("str", "bytes", "int", "float") or form.endswith("Path")
                typed = hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__")
                forms.add(kind if plain and typed else form)
        return forms


def begin() -> None:
    order = json.loads(Path(__file__).with_name("walk.json").read_text())
    trace = Trace(order)
    threading.setprofile(trace)
    sys.setprofile(trace)


begin()
