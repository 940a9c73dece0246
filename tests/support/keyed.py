"""An fsspec protocol over a store of plain keys, which lists as Google's does (gcsfs 2026.10, seen).

A folder is what keys have in common up to a slash. What lies behind two slashes lists as a folder of the
folder's own name, and so does a folder's marker, a key that ends in a slash and has no bytes; one with bytes
lists as a file of the folder's name with a slash behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import fsspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class KeyedFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """`keyed://bucket/prefix`; the objects of all instances."""

    protocol = "keyed"
    objects: ClassVar[dict[str, bytes]] = {}

    def _matching(self, path: str, prefix: str = "") -> Iterator[tuple[str, str]]:
        whole = f"{path}/{prefix}" if path else prefix
        return ((key, key[len(path) + 1 :]) for key in sorted(self.objects) if key.startswith(whole))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        for key, rest in self._matching(path):
            first, slash, _ = rest.partition("/")
            if slash:
                name = f"{path}/{first}".rstrip("/")
                found[f"{name}\0"] = {"name": name, "size": 0, "type": "directory"}
            elif rest or self.objects[key]:
                found[key] = self._described(key)
            else:
                found[f"{path}\0"] = {"name": path, "size": 0, "type": "directory"}
        if not found:
            raise FileNotFoundError(path)
        return [found[name] if detail else found[name]["name"] for name in sorted(found)]

    def _described(self, key: str) -> dict[str, Any]:
        return {"name": key, "size": len(self.objects[key]), "type": "file", "generation": "1"}

    def find(
        self, path: str, maxdepth: Any = None, withdirs: bool = False, prefix: str = "", **_: Any
    ) -> list[str]:
        return [key for key, _ in self._matching(self._strip_protocol(path), prefix)]

    def info(self, path: str, **_: Any) -> Mapping[str, Any]:
        path = self._strip_protocol(path)
        if path in self.objects:
            return self._described(path)
        if any(self._matching(path)):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return self.objects[self._strip_protocol(path)][start:end]


fsspec.register_implementation("keyed", KeyedFileSystem, clobber=True)
