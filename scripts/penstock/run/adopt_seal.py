"""adopt --seal: turns a compared tree into a release, without copying the files that equal the source.

It lists the source, notes in the run's state that the run adopts the tree, and calls all steps from plan to
publish. `run.adopted_tree` renames the tree into staging right before the copy.

The tree is not changed until all of it has been compared and the intention to adopt it has been noted
durably. The tree moves by one rename of its top folder. Files that the release does not contain are moved
aside; nothing is deleted. An ordinary copy fetches missing or wrong files. The same command continues after a
kill at any moment.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
from penstock.core.dataset_documents import AdoptedTree
from penstock.core.errors import FailedError, FindingsError, PreflightError
from penstock.core.findings import NOT_LISTED, TO_FETCH, UNREAD
from penstock.core.human import in_quotes
from penstock.core.layout import STATE, DatasetLayout
from penstock.dataset import documents, run_store, seals
from penstock.dataset.documents import load_run
from penstock.jobs import audits_and_adoptions, dataset_state
from penstock.jobs.dataset_state import holding
from penstock.jobs.run_cleanup import give_back
from penstock.run import copy_step, list_step, permissions_step, plan_step, publish_step, verify_step
from penstock.target import adopted_files, dataset_folders, modes

if TYPE_CHECKING:
    from penstock.core.step_results import AdoptionResult, SealingResult
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STEP = "adopt"
ASIDE = ".not-adopted"  # suffix of the folder for files that the release does not contain
# Kinds of differences that prevent a tree from becoming a release, unless the files concerned may be left
# out.
_LEFT = NOT_LISTED - {"folder"}


def prepare(context: Context, dataset: str, tree: Path) -> None:
    """Raise PreflightError if this tree cannot become a release of the dataset, before it is read. Makes the
    dataset's folders. Tries the rename with an empty folder beside the tree, and removes that folder."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    dataset_folders.check_root(layout.root)
    dataset_folders.prepare(layout)
    mine, theirs = os.path.realpath(layout.root), str(tree)
    if os.path.commonpath([os.path.realpath(layout.folder), theirs]) in (
        os.path.realpath(layout.folder),
        theirs,
    ):
        raise PreflightError(
            "the tree and the dataset's folder lie in one another",
            where=theirs,
            why=f"the dataset's folder is {layout.folder}",
            hint="choose another `target.root`, such as a folder beside the tree",
        )
    if os.path.commonpath([mine, theirs]) == theirs:
        raise PreflightError(
            "the target lies in the tree",
            where=theirs,
            why=f"`target.root` is {mine}",
            hint="choose a root beside it",
        )
    if os.path.commonpath([os.path.realpath(layout.state), theirs]) == theirs:
        raise PreflightError(
            "the dataset's state lies in the tree",
            where=theirs,
            why=f"`target.state_root` is {layout.state_root}",
            hint="choose a state root beside the tree",
        )
    if (holding_it := _dataset_at_or_above(tree)) is not None:
        raise PreflightError(
            "the tree is of a dataset that penstock staged",
            where=theirs,
            why=f"{holding_it} holds releases; taking the tree away would destroy them",
            hint="copy it to a folder of its own first; without --seal it is compared where it is",
        )
    status = tree.stat()
    if status.st_uid != os.geteuid():
        raise PreflightError(
            "the tree is another account's",
            where=theirs,
            why=f"it is of uid {status.st_uid}, this is uid {os.geteuid()}",
            hint="only its owner can hand it over: let that account run this, or chown the tree",
        )
    adopted_files.try_move(tree, layout.releases, Path(aside_of(theirs)))


def _dataset_at_or_above(tree: Path) -> Path | None:
    for folder in (tree, *tree.parents):
        layout = DatasetLayout(folder.parent, folder.name)
        if layout.state.is_dir() or (layout.current.is_symlink() and layout.releases.is_dir()):
            return folder
    return None


def under_way(context: Context, dataset: str, tree: Path) -> Run | None:
    """Return the run that has taken this tree, or None.

    A run that only intends to take the tree does not count: the tree at this path is compared again first.
    Raises PreflightError if this account is not the dataset's owner.
    """
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    if not layout.runs.is_dir():
        return None
    for name in sorted(os.listdir(layout.runs)):
        folder = layout.run(name)
        mark = documents.read_adopted_tree(folder) if folder.run_file.exists() else None
        if mark is not None and mark.tree == str(tree):
            run = load_run(layout, folder)
            # If another tree came to the same path later, it is not the tree of this run.
            if not os.path.lexists(tree) or (
                seals.of_run(run) is None and documents.stands_in(mark, run.data)
            ):
                return run
    return None


def refuse(result: AdoptionResult, *, leave_extra: bool) -> None:
    """Raise FindingsError (exit 4) if a person must first decide or correct something."""
    counts = result["counts"]
    left = {kind: amount["files"] for kind, amount in counts.items() if kind in _LEFT}
    if "source" in counts:
        raise FindingsError(
            "objects changed at the source, or cannot be read there",
            where=result["tree"],
            why=f"{counts['source']['files']:,} of them",
            hint=f"they are listed in {result['all_differences']}; the same command compares again",
        )
    if left and not leave_extra:
        extras = ", ".join(f"{count:,} {kind}" for kind, count in left.items())
        raise FindingsError(
            "the tree holds what the release will not",
            where=result["tree"],
            why=extras,
            hint=f"they are listed in {result['all_differences']}; `--leave-extra` moves them to "
            f"{aside_of(result['tree'])} when the tree becomes the release",
        )
    _refuse_unread(result)
    _refuse_folders(result)


def _refuse_unread(result: AdoptionResult) -> None:
    """Raise PreflightError if folders are unreadable, since their content is not known."""
    kept = audits_and_adoptions.kept_differences(audits_and_adoptions.adoption_of_result(result))
    dark = [item.path for item in kept if item.kind == UNREAD and item.path.endswith("/")]
    if dark:
        raise PreflightError(
            f"{human.counted(len(dark), 'folder')} of the tree cannot be read",
            where=result["tree"],
            why=", ".join(map(in_quotes, dark[:5])),
            hint="give this account the rights to read them (chmod u+rx): the same command compares again",
        )


def _refuse_folders(result: AdoptionResult) -> None:
    """Raise PreflightError if the tree has other accounts' folders, whose modes only the owners may set, or
    datasets of penstock."""
    others = []
    for path, uid, _ in audits_and_adoptions.kept_folders(audits_and_adoptions.adoption_of_result(result)):
        if os.path.basename(path) == STATE:
            raise PreflightError(
                "a dataset that penstock staged lies in the tree",
                where=result["tree"],
                why=f"{in_quotes(path)} is the state of one",
                hint="move that dataset out of the tree first",
            )
        if uid != os.geteuid():
            others.append(path)
    if others:
        raise PreflightError(
            f"{len(others)} folders of the tree are other accounts'",
            where=result["tree"],
            why=", ".join(map(in_quotes, others[:5])),
            hint="chown them to this account first",
        )


def _refuse_groups(context: Context, dataset: str, result: AdoptionResult) -> None:
    """Raise PreflightError if folders would lose the setgid bit. The kernel drops it, without an error, if
    this account is not in the folder's group."""
    policy, mine = context.dataset(dataset).permissions, {os.getegid(), *os.getgroups()}
    setgid = modes.dir_mode(policy) & stat.S_ISGID
    if os.geteuid() == 0 or not setgid or modes.group_id(policy) is not None:
        return
    others = [] if os.stat(result["tree"]).st_gid in mine else ["."]
    kept = audits_and_adoptions.kept_folders(audits_and_adoptions.adoption_of_result(result))
    others += [path for path, _, gid in kept if gid not in mine]
    if others:
        raise PreflightError(
            f"{human.counted(len(others), 'folder')} of the tree with a group that this account is not in",
            where=result["tree"],
            why=f"{', '.join(map(in_quotes, others[:5]))}: the mode {policy.dir_mode:o} is not kept there",
            hint="set `permissions.group` to a group of this account, or chgrp them",
        )


def aside_of(tree: str) -> str:
    return f"{tree.rstrip('/')}{ASIDE}"


def intended(context: Context, dataset: str, result: AdoptionResult) -> list[str]:
    layout, counts = context.layout(dataset), result["counts"]
    fetch = sum(amount["files"] for kind, amount in counts.items() if kind in TO_FETCH)
    size = sum(amount["bytes"] for kind, amount in counts.items() if kind in TO_FETCH)
    aside = sum(amount["files"] for kind, amount in counts.items() if kind in NOT_LISTED)
    wrong = sum(amount["files"] for kind, amount in counts.items() if kind in TO_FETCH and kind != "missing")
    moves = f"{result['tree']} becomes a release of {dataset} below {layout.releases}, by one rename"
    sentences = [
        f"{moves}; nothing is found at its old place then",
        f"{fetch:,} files, {size:,} bytes, are fetched from the source",
    ]
    if aside or wrong:
        sentences.append(
            f"{aside + wrong:,} things are moved to {aside_of(result['tree'])}; nothing is deleted"
        )
    by_size = sum(amount["files"] for amount in result["same"] if amount["how"] == "size")
    if by_size:
        sentences.append(
            f"{by_size:,} files are taken by their size alone: the release says so (grade `size`)"
        )
    undo = audits_and_adoptions.undo(audits_and_adoptions.adoption_of_result(result))
    sentences.append(f"modes, times and places as they were are kept in {undo}")
    return sentences


def mark(context: Context, dataset: str, result: AdoptionResult) -> Run:
    """List the source, and note durably that this run adopts the tree. Raises FailedError if the source
    changed since the comparison, PreflightError if the run's release already exists."""
    _refuse_groups(context, dataset, result)
    listed = list_step.run(context, dataset)
    layout = context.layout(dataset)
    if listed["published"]:
        raise PreflightError(
            "a release holds already what the source holds",
            where=f"{dataset}/{listed['release']}",
            why="a tree cannot become a release that stands",
            hint="compare them by `penstock adopt`, without --seal; or stage anew by `--new-release`",
        )
    run = run_store.open_run(layout, listed["run"])
    folder = audits_and_adoptions.adoption_of_result(result)
    adoption = audits_and_adoptions.described_adoption(folder)
    if run.info.listing_digest != adoption.listing:
        raise FailedError(
            "the source changed since the tree was compared with it",
            where=dataset,
            hint="the same command compares with what it holds now, and reads only what may differ",
        )
    with holding(context, dataset, run.id, STEP):
        _withdraw(run)
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        tree = AdoptedTree(
            run.id,
            adoption.id,
            str(folder.folder),
            adoption.tree,
            adoption.device,
            adoption.inode,
            aside_of(adoption.tree),
            at,
        )
        documents.write_adopted_tree(run.folder, tree)
    return run


def _withdraw(run: Run) -> None:
    """Withdraw an earlier intention to adopt, along with its plan, if nothing was changed for it yet. Raises
    PreflightError if the run has a plan without a tree, or has already taken another tree."""
    earlier = documents.read_adopted_tree(run.folder)
    if earlier is not None and documents.stands_in(earlier, run.data):
        raise PreflightError(
            "another tree became the staging of this release before",
            where=earlier.tree,
            hint=f"`penstock adopt {run.dataset} {earlier.tree} --seal` ends that; this tree stays as it is",
        )
    if earlier is not None:
        run_store.drop_derived(run.folder)
    elif run.folder.plan.exists():
        raise PreflightError(
            "a run of the dataset is under way without the tree",
            where=str(run.folder.folder),
            hint=f"end it by `penstock run {run.dataset}`, or remove {run.staging} and this folder",
        )


def go_on(context: Context, dataset: str, begun: Run | None = None) -> SealingResult:
    """Do all remaining steps of the run that `mark` made. `begun` is an earlier command's run, found by
    `under_way`.

    If the source changed before the tree's files were taken into the release, the tree is moved back to its
    old path, and FailedError is raised.
    """
    listed = list_step.run(context, dataset)
    layout = context.layout(dataset)
    run = run_store.open_run(layout, listed["run"])
    if documents.read_adopted_tree(run.folder) is None:
        if begun is not None:
            _undo_rename(context, dataset, run, begun)
        text = "the source changed since: what is the same is taken over from the run that adopted the tree"
        context.emit(run_steps.Warned(dataset, STEP, text))
    plan_step.run(context, dataset)
    copy_step.run(context, dataset)
    permissions_step.run(context, dataset)
    verify_step.run(context, dataset)
    published = publish_step.run(context, dataset)
    # Use the plan's numbers, since an earlier, killed command may have fetched some files.
    fetched = run.plan.files - run.plan.taken
    return sealed(layout, run, fetched, str(published["path"]))


def _undo_rename(context: Context, dataset: str, run: Run, begun: Run) -> None:
    mark = documents.read_adopted_tree(begun.folder)
    if mark is None or mark.settled or not documents.stands_in(mark, begun.data):
        return
    with holding(context, dataset, run.id, STEP):
        if not (alive := dataset_state.arrays_of(context, dataset, begun.folder)):
            give_back(context, begun, "the source changed before its files were taken over")
    raise FailedError(
        "the source changed since the tree was compared with it",
        where=dataset,
        why=alive or f"the tree is back at {mark.tree}",
        hint="the same command compares with what it holds now, and reads only what may differ",
    )


def sealed(layout: DatasetLayout, run: Run, fetched: int, path: str) -> SealingResult:
    tree = documents.read_adopted_tree(run.folder)
    moved = []
    if tree is not None and os.path.isdir(tree.aside):
        moved = [tree.aside]
    return {
        "dataset": layout.dataset,
        "release": run.release,
        "path": path,
        "current": dataset_folders.current(layout),
        "fetched": fetched,
        "aside": moved,
        "undo": str(Path(tree.folder) / "undo") if tree is not None else "",
    }
