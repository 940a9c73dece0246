"""A dataset staged and published in this process, to be damaged, audited and repaired."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from tests.support.staging_runs import context_for

from penstock.config.settings import SourceConfig
from penstock.core.layout import DATA
from penstock.dataset import pins
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.run import copy_step, list_step, permissions_step, plan_step, publish_step, verify_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.dataset.context import Context
    from penstock.dataset.gate import Published
    from penstock.dataset.pins import ReleasePin

STEPS = (list_step.run, plan_step.run, copy_step.run, permissions_step.run, verify_step.run, publish_step.run)


def content(number: int, size: int) -> bytes:
    """Bytes that differ from file to file, the same whenever asked."""
    block = number.to_bytes(4, "big") + b"penstock"
    return (block * (size // len(block) + 1))[:size]


def publish(
    context: Context, dataset: str = "data", verified: Callable[[Context], None] | None = None
) -> dict[str, Any]:
    """All steps up to the release; publish's result. `verified` is called before the last one, which removes
    state of the run."""
    *before, last = STEPS
    for step in before:
        step(context, dataset)
    if verified is not None:
        verified(context)
    return last(context, dataset)


def pinned_by_another(context: Context, look: Callable[[], Published]) -> ReleasePin:
    """What `look` names, pinned by a job of a cluster that is not known here: the pin stands until it is
    withdrawn."""
    here = kernel_facts.current_job()
    kernel_facts.enter_job(JobEnvironment(job="4711", proven=True, cluster="elsewhere"))
    try:
        return pins.pinned(context.layout("data"), look)[1]
    finally:
        kernel_facts.enter_job(here)


@contextlib.contextmanager
def published(tmp_path: Path, source: Path | str, **changes: Any) -> Iterator[Context]:
    """A context whose dataset `data` is published; `options` are the source's storage options,
    `verify` a VerifyConfig, `verified` as in `publish`, the rest as in `context_for`."""
    from dataclasses import replace

    options = changes.pop("options", None)
    verify = changes.pop("verify", None)
    engine = changes.pop("engine", None)
    verified = changes.pop("verified", None)
    if options is not None:
        changes["sources"] = (SourceConfig(str(source), "", options),)
    context = context_for(tmp_path, source, **changes)
    config = context.config
    context.config = replace(config, verify=verify or config.verify, engine=engine or config.engine)
    cluster = context.cluster
    try:
        publish(context, verified=verified)
        yield context
    finally:
        cluster.close()


def data_of(context: Context, dataset: str = "data") -> Path:
    """The published `data` folder that `current` names."""
    layout = context.layout(dataset)
    return layout.folder / os.readlink(layout.current) / DATA


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """The owner's write bit of a folder or file for a moment: its mode is what it was afterwards. A link is
    followed, to what it leads to by then."""
    mode = path.stat().st_mode & 0o7777
    path.chmod(mode | 0o200)
    try:
        yield
    finally:
        path.chmod(mode)


def damage(path: Path, change: Callable[[Path], None]) -> None:
    """Let `change` do what it likes with a file; its folder's mode and times are as before, its own
    too as far as it is still a file."""
    before, above = path.lstat(), path.parent.stat()
    with writable(path.parent):
        change(path)
    if path.is_file() and not path.is_symlink():
        path.chmod(before.st_mode & 0o7777)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(path.parent, ns=(above.st_atime_ns, above.st_mtime_ns))


def flip(path: Path, offset: int = 0) -> None:
    """One bit at rest, with the modification time of before."""

    def change(file: Path) -> None:
        file.chmod(0o600)
        with file.open("r+b") as stream:
            stream.seek(offset)
            byte = stream.read(1)[0]
            stream.seek(offset)
            stream.write(bytes([byte ^ 1]))
            stream.flush()
            os.fsync(stream.fileno())

    damage(path, change)
