"""What the cluster's configuration says of reserved cores: slurm.conf and cgroup.conf, judged.

Reserved cores are those of a node that SLURM gives to no job. Where no node reserves cores and no job asks
for some, only words unknown to SLURM are reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.core.human import nearest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.cluster.slurm.facts import SlurmSettings
    from penstock.cluster.slurm.nodes import Node
    from penstock.core.node_answer import FileValue

OFF_SPEC = "SlurmdOffSpec"
# values of TaskPluginParam in releases from 14.11 to 26.05 (slurm.conf(5))
PARAMETERS = (
    "None", "Sockets", "Cores", "Threads", "Boards", "LDoms", "Cpusets", "Sched", "Verbose", "Autobind",
    "OOMKillStep", OFF_SPEC,
)  # fmt: skip
# further values that `scontrol show config` prints
_PRINTED = re.compile(r"\(.*|autobind=.*|(mask|rank|map)\w*|quiet", re.IGNORECASE)
MOST = 8  # nodes that a message names


def allows(settings: SlurmSettings) -> bool:
    """Return AllowSpecResourcesUsage: whether --core-spec means anything, and may be less than the node
    keeps."""
    return settings.values.get("AllowSpecResourcesUsage", "").lower() in ("yes", "1")


def cores_first(settings: SlurmSettings) -> bool:
    """Return whether SLURM reserves a node's first cores first (`spec_cores_first`)."""
    return "spec_cores_first" in settings.words("SchedulerParameters")


def results(
    settings: SlurmSettings, nodes: Sequence[Node], asked: Iterable[int | None], conf: FileValue | None = None
) -> list[CheckResult]:
    """Judge the configuration. `nodes`: those that the run's jobs may use; `asked`: their core-specs (None:
    without); `conf`: ConstrainCores of a node's own cgroup.conf."""
    keeping = [node for node in nodes if node.reserved]
    wishes = [count for count in asked if count is not None]
    results = _misspelt(settings)
    if not keeping and not wishes:
        return results
    results += _written_twice(settings)
    results += _usage(settings, keeping, wishes)
    results += _off_spec(settings, keeping)
    results.append(_select(settings))
    results += _confined(settings, conf)
    results += _memory(keeping)
    return results


def meant(word: str) -> str:
    """Return the word of TaskPluginParam that was probably meant; "" where none is similar."""
    words = {name.lower(): name for name in PARAMETERS}
    return words.get(nearest(word.lower(), words), "")


def misspelling(words: str) -> str:
    """Return what to do about a word that SLURM itself calls wrong (`Bad TaskPluginParam: x`); "" where it
    names none."""
    wrong = re.search(r"Bad TaskPluginParam: (\S+)", words)
    if wrong is None:
        return ""
    right = meant(wrong[1])
    note = f" ({right} is misspelt)" if right else ""
    return f"write TaskPluginParam={right or OFF_SPEC} in slurm.conf on all nodes{note}"


def _misspelt(settings: SlurmSettings) -> list[CheckResult]:
    """Warn of each unknown word of TaskPluginParam, in the controller's configuration and in slurm.conf here.
    No daemon or command of SLURM starts with such a file (22.05: `fatal: Unable to process configuration
    file`)."""
    places = {"the controller's": settings.words("TaskPluginParam")}
    for match in re.finditer(
        r"^[ \t]*TaskPluginParam[ \t]*=([^#\n]*)", settings.written, re.IGNORECASE | re.MULTILINE
    ):
        places[settings.values.get("SLURM_CONF", "slurm.conf")] = [
            word.strip() for word in match[1].split(",") if word.strip()
        ]
    valid = {word.lower() for word in PARAMETERS}
    results = {}
    for place, words in places.items():
        for word in words:
            if word.lower() in valid or _PRINTED.fullmatch(word):
                continue
            right = meant(word)
            text = f"{printable(word)} ({printable(place)}) is no word that SLURM knows"
            mend = f"write TaskPluginParam={right or OFF_SPEC} in slurm.conf on all nodes"
            if right:
                text += f": {right} is misspelt"
            results[word] = CheckResult(
                "TaskPluginParam",
                f"{text}; none of its daemons starts with it",
                "warning",
                right,
                mend,
            )
    return list(results.values())


def _written_twice(settings: SlurmSettings) -> list[CheckResult]:
    """Warn where slurm.conf here gives a node both CoreSpecCount and CpuSpecList: SLURM reports an error
    (22.05: `CoreSpecCount=1 is invalid with CPUSpecList, reset to 0`)."""
    lines = [
        line
        for line in re.sub(r"\\\n", " ", settings.written).splitlines()
        if re.match(r"\s*NodeName\s*=", line, re.IGNORECASE)
    ]
    both = [
        line.split()[0]
        for line in lines
        if re.search(r"\bCoreSpecCount=", line, re.IGNORECASE)
        and re.search(r"\bCpuSpecList=", line, re.IGNORECASE)
    ]
    if not both:
        return []
    text = f"both CoreSpecCount and CpuSpecList: {printable(', '.join(both[:MOST]))}; SLURM drops the former"
    mend = "keep CpuSpecList, which says which cores, in slurm.conf"
    return [CheckResult("NodeName lines", text, "warning", "one of the two", mend)]


def _usage(settings: SlurmSettings, keeping: Sequence[Node], wishes: Sequence[int]) -> list[CheckResult]:
    """
    | AllowSpecResourcesUsage | nodes keep cores | a job asks | result                                   |
    |-------------------------|------------------|------------|------------------------------------------|
    | yes                     | some             | any        | a warning: every user may take the cores |
    | yes                     | none             | any        | ok                                       |
    | no                      | any              | no         | ok                                       |
    | no                      | any              | yes        | nothing: `site` stops, it is ignored     |
    """
    about = "AllowSpecResourcesUsage"
    if allows(settings) and keeping:
        text = (
            f"yes, and {_names(keeping)} keep cores for themselves: every user may take these by asking for "
            "less (`sbatch --core-spec=0`)"
        )
        mend = (
            "write AllowSpecResourcesUsage=no in slurm.conf: the nodes then keep their cores whatever a job "
            "asks for (and set cluster.core_spec: auto or none)"
        )
        return [CheckResult(about, text, "warning", "no, where nodes keep cores", mend)]
    if allows(settings):
        return [CheckResult(about, "yes: --core-spec is obeyed, and no node keeps cores for itself")]
    if wishes:
        return []
    return [CheckResult(about, f"no: no job gets the cores that {_names(keeping)} keep")]


def _off_spec(settings: SlurmSettings, keeping: Sequence[Node]) -> list[CheckResult]:
    """
    | TaskPluginParam has SlurmdOffSpec | nodes keep cores | result                                       |
    |-----------------------------------|------------------|----------------------------------------------|
    | yes                               | any              | ok; on cgroup v2 a note on slurmstepd        |
    | no                                | some             | a warning: slurmd is confined to these cores |
    | no                                | none             | a note                                       |
    """
    about, wanted = "TaskPluginParam", OFF_SPEC
    mend = f"write TaskPluginParam={OFF_SPEC} in slurm.conf on all nodes, and restart slurmctld and slurmd"
    if OFF_SPEC.lower() in (word.lower() for word in settings.words("TaskPluginParam")):
        if settings.values.get("CgroupPlugin", "").endswith("v2"):
            text = f"{OFF_SPEC}: slurmd stays off the kept cores; under cgroup v2 slurmstepd is not covered"
            return [CheckResult(about, text, "note", wanted)]
        return [CheckResult(about, f"{OFF_SPEC}: slurmd stays off the cores that nodes keep", wanted=wanted)]
    if keeping:
        text = (
            f"no {OFF_SPEC}: slurmd runs ON the cores that {_names(keeping)} keep (under cgroup v1 "
            "slurmstepd, too), beside WEKA's client where these are its cores"
        )
        return [CheckResult(about, text, "warning", wanted, mend)]
    text = f"no {OFF_SPEC}: it has no effect until a node keeps cores by CoreSpecCount or CpuSpecList"
    return [CheckResult(about, text, "note", wanted, mend)]


def _select(settings: SlurmSettings) -> CheckResult:
    """
    | SelectType           | result    |
    |----------------------|-----------|
    | cons_tres, cons_res  | ok        |
    | not shown            | a note    |
    | another              | a warning |
    """
    about, wanted = "SelectType", "select/cons_tres"
    value = settings.values.get("SelectType", "")
    if "cons_" in value:
        return CheckResult(about, printable(value), wanted=wanted)
    mend = f"write SelectType={wanted} in slurm.conf, and restart slurmctld"
    if not value:
        return CheckResult(about, "not known", "note", wanted, mend)
    text = f"{printable(value)}: it does not keep jobs off single cores"
    return CheckResult(about, text, "warning", wanted, mend)


def _confined(settings: SlurmSettings, conf: FileValue | None) -> list[CheckResult]:
    """Judge TaskPlugin and ConstrainCores: without both, cores are reserved only in the books.

    | TaskPlugin      | ConstrainCores, by the controller, else by a node's cgroup.conf | result     |
    |-----------------|-----------------------------------------------------------------|------------|
    | no task/cgroup  | any                                                             | a warning  |
    | task/cgroup     | yes                                                             | ok         |
    | task/cgroup     | no, or not set in a file that was read                          | a warning  |
    | task/cgroup     | not known                                                       | a note     |
    """
    if "task/cgroup" not in settings.words("TaskPlugin"):
        text = "no task/cgroup: cores are reserved in the books only, and nothing keeps processes off them"
        mend = (
            "write TaskPlugin=task/affinity,task/cgroup and ProctrackType=proctrack/cgroup in slurm.conf, "
            "and ConstrainCores=yes in cgroup.conf"
        )
        return [CheckResult("TaskPlugin", text, "warning", "task/affinity,task/cgroup", mend)]
    about, wanted = "ConstrainCores", "yes"
    mend = "write ConstrainCores=yes in cgroup.conf on all nodes, and restart slurmd"
    value, place = settings.values.get("ConstrainCores"), "the controller's cgroup.conf"
    if value is None and conf is not None and not conf.error:
        value, place = conf.value or "not set, so no", conf.path
    if value is None:
        return [CheckResult(about, "not known", "note", wanted, "look at cgroup.conf on a node")]
    text = f"{printable(value)} ({printable(place)})"
    if value.lower() == "yes":
        return [CheckResult(about, text, wanted=wanted)]
    return [CheckResult(about, f"{text}: nothing keeps processes off kept cores", "warning", wanted, mend)]


def _memory(keeping: Sequence[Node]) -> list[CheckResult]:
    """Note nodes that keep cores and no memory (MemSpecLimit); ok where all keep both; else nothing."""
    without = [node for node in keeping if not node.memory_spec]
    if without:
        text = f"{_names(without)} keep cores and no memory for the same services"
        mend = "write MemSpecLimit=<MiB> beside CpuSpecList or CoreSpecCount in slurm.conf"
        return [CheckResult("MemSpecLimit", text, "note", "what WEKA's client and the system need", mend)]
    if keeping:
        least = min(node.memory_spec for node in keeping) >> 20
        return [CheckResult("MemSpecLimit", f"{least} MiB and more on nodes that keep cores")]
    return []


def _names(nodes: Sequence[Node]) -> str:
    names = [printable(node.name) for node in nodes[:MOST]]
    return ", ".join(names) + (f" and {len(nodes) - MOST} more" if len(nodes) > MOST else "")
