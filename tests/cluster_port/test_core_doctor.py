"""What preflight says of the cores that SLURM keeps its jobs off, beside those of WEKA's client: L1, L2, L3,
L4, L5, S22 and S23, by machines of several shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import machines

from penstock.cluster.slurm import core_doctor, core_settings
from penstock.cluster.slurm.core_doctor import Job
from penstock.cluster.slurm.facts import SlurmSettings
from penstock.config.settings import JobOptions
from penstock.core import range_lists
from penstock.core.node_answer import FileValue, HeldCores, NodeCores
from penstock.core.run_steps import CheckResult
from penstock.host import machine_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.machines import Shape

RIGHT = {
    "AllowSpecResourcesUsage": "Yes",
    "CgroupPlugin": "autodetect",
    "ConstrainCores": "yes",
    "SchedulerParameters": "(null)",
    "SelectType": "select/cons_tres",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SlurmdParameters": "(null)",
    "TaskPlugin": "task/affinity,task/cgroup",
    "TaskPluginParam": "SlurmdOffSpec",
}
BARE = machines.TWO_18.node()
KEEPING = BARE._replace(reserved=2, cpu_spec="17,35", memory_spec=20 << 30)
WHOLE = Job(2, True)


def site(written: str = "", **values: str) -> SlurmSettings:
    return SlurmSettings({**RIGHT, **values}, written)


def found(results: list[CheckResult], about: str) -> CheckResult:
    (one,) = (one for one in results if one.about == about)
    return one


def seen(
    folder: Path, shape: Shape, held: str = "", *, by: str = "mount options", net: str = "", **more: object
) -> NodeCores:
    """What such a machine says, with WEKA on it."""
    machine = machine_settings.read_topology(machines.sys_tree(folder, shape))
    holds = HeldCores("client", range_lists.cpus(held), by, (net,) if net else ())
    files = (FileValue("/etc/wekaio/service.conf", "false"),)
    cores = NodeCores(machine, weka=True, held=(holds,) if held else (), isolate_cpusets=files)
    return cores._replace(**more)  # type: ignore[arg-type]


def test_l1_a_cluster_that_is_right_and_asked() -> None:
    """L1: nothing is said against it."""
    results = core_settings.results(site(), [BARE], [2])
    assert {one.about: one.verdict for one in results} == {
        "AllowSpecResourcesUsage": "ok",
        "TaskPluginParam": "ok",
        "SelectType": "ok",
        "ConstrainCores": "ok",
    }


def test_l1_nothing_is_said_where_no_core_is_reserved() -> None:
    """L1: but of words that SLURM does not know."""
    assert core_settings.results(site(SelectType="select/linear"), [BARE], [None]) == []
    (one,) = core_settings.results(site(TaskPluginParam="SlurmOffSpec"), [BARE], [None])
    assert one.verdict == "warning"


@pytest.mark.parametrize(
    ("values", "written", "words"),
    [
        ({}, "TaskPluginParam=SlrumdOffSpec\n", "SlrumdOffSpec (/etc/slurm/slurm.conf) is no word"),
        ({}, "  taskpluginparam = Cores,SlurmdOfSpec # x\n", "SlurmdOffSpec is misspelt"),
        ({"TaskPluginParam": "SlrumdOffSpec"}, "", "SlrumdOffSpec (the controller's) is no word"),
        ({}, "#TaskPluginParam=SlrumdOffSpec\nTaskPluginParam=SlurmdOffSpec,Cores\n", ""),
        ({"TaskPluginParam": "(null type)"}, "", ""),
        ({"TaskPluginParam": "OOMKillStep,SlurmdOffSpec,cores,autobind=threads,mask_cpu"}, "", ""),
        ({}, "TaskPluginParam=Xyzzy\n", "Xyzzy (/etc/slurm/slurm.conf) is no word"),
    ],
)
def test_l1_a_misspelt_word_is_called_out(values: dict[str, str], written: str, words: str) -> None:
    """L1: as one vendor's own guide has it once."""
    results = core_settings.results(site(written, **values), [BARE], [2])
    wrong = [one for one in results if "is no word that SLURM knows" in one.found]
    assert [one.verdict for one in wrong] == (["warning"] if words else [])
    if words:
        assert words in wrong[0].found
        assert wrong[0].mend.startswith("write TaskPluginParam=SlurmdOffSpec in slurm.conf")


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        (
            "scontrol: error: Bad TaskPluginParam: SlrumdOffSpec\nscontrol: fatal",
            "(SlurmdOffSpec is misspelt)",
        ),
        ("Bad TaskPluginParam: Core", "write TaskPluginParam=Cores in slurm.conf"),
        ("Bad TaskPluginParam: Xyzzy", "write TaskPluginParam=SlurmdOffSpec in slurm.conf on all nodes"),
        ("Unable to contact slurm controller", ""),
    ],
)
def test_l1_slurms_own_words_for_a_misspelt_word(words: str, mend: str) -> None:
    """L1: of a slurm.conf that no command of SLURM reads."""
    assert mend in core_settings.misspelling(words)
    assert bool(core_settings.misspelling(words)) == bool(mend)


@pytest.mark.parametrize(
    ("allowed", "node", "asked", "verdict", "words"),
    [
        ("Yes", KEEPING, 2, "warning", "every user may take these"),
        ("Yes", KEEPING, None, "warning", "`sbatch --core-spec=0`"),
        ("Yes", BARE, 2, "ok", "no node keeps cores"),
        ("No", KEEPING, None, "ok", "no job gets the cores that n1 keep"),
        ("No", KEEPING, 2, "", ""),
    ],
)
def test_l1_s22_who_may_take_reserved_cores(
    allowed: str, node: object, asked: int | None, verdict: str, words: str
) -> None:
    """L1, S22: the rows of `core_settings._usage`."""
    results = core_settings.results(site(AllowSpecResourcesUsage=allowed), [node], [asked])  # type: ignore[list-item]
    rows = [one for one in results if one.about == "AllowSpecResourcesUsage"]
    assert [one.verdict for one in rows] == ([verdict] if verdict else [])
    if rows:
        assert words in rows[0].found
    if verdict == "warning":
        assert "write AllowSpecResourcesUsage=no in slurm.conf" in rows[0].mend


@pytest.mark.parametrize(
    ("values", "node", "verdict", "words"),
    [
        ({}, KEEPING, "ok", "slurmd stays off"),
        ({"CgroupPlugin": "cgroup/v2"}, KEEPING, "note", "slurmstepd is not covered"),
        ({"TaskPluginParam": "(null type)"}, KEEPING, "warning", "slurmd runs ON the cores that n1 keep"),
        ({"TaskPluginParam": "Cores"}, BARE, "note", "no effect until a node keeps cores"),
    ],
)
def test_l1_s23_where_slurmd_runs(values: dict[str, str], node: object, verdict: str, words: str) -> None:
    """L1, S23: the rows of `core_settings._off_spec`."""
    one = found(core_settings.results(site(**values), [node], [2]), "TaskPluginParam")  # type: ignore[list-item]
    assert one.verdict == verdict
    assert words in one.found
    if verdict == "warning":
        assert "write TaskPluginParam=SlurmdOffSpec in slurm.conf" in one.mend


CONF = FileValue("/etc/slurm/cgroup.conf", "no")


@pytest.mark.parametrize(
    ("values", "conf", "about", "verdict", "words"),
    [
        ({"TaskPlugin": "task/none"}, None, "TaskPlugin", "warning", "in the books only"),
        ({}, CONF, "ConstrainCores", "ok", "yes (the controller's cgroup.conf)"),
        ({"ConstrainCores": "no"}, None, "ConstrainCores", "warning", "nothing keeps processes off"),
        ({"ConstrainCores": ""}, CONF, "ConstrainCores", "warning", "no (/etc/slurm/cgroup.conf)"),
        ({"ConstrainCores": ""}, CONF._replace(value=None), "ConstrainCores", "warning", "not set, so no"),
        ({"ConstrainCores": ""}, CONF._replace(value="Yes"), "ConstrainCores", "ok", "Yes (/etc"),
        ({"ConstrainCores": ""}, CONF._replace(error="Permission denied"), "ConstrainCores", "note", "not k"),
        ({"ConstrainCores": ""}, None, "ConstrainCores", "note", "not known"),
        ({"SelectType": "select/linear"}, None, "SelectType", "warning", "select/linear: it does not keep"),
        ({"SelectType": "select/cons_res"}, None, "SelectType", "ok", "cons_res"),
        ({"SelectType": ""}, None, "SelectType", "note", "not known"),
    ],
)
def test_l1_what_confines_jobs(
    values: dict[str, str], conf: FileValue | None, about: str, verdict: str, words: str
) -> None:
    """L1: the rows of `core_settings._confined` and `_select`. "" is not shown."""
    settings = SlurmSettings({name: value for name, value in {**RIGHT, **values}.items() if value})
    one = found(core_settings.results(settings, [BARE], [2], conf), about)
    assert one.verdict == verdict
    assert words in one.found
    if verdict == "warning":
        assert "write " in one.mend


def test_l1_memory_belongs_to_kept_cores() -> None:
    """L1: MemSpecLimit."""
    one = found(core_settings.results(site(), [KEEPING], [None]), "MemSpecLimit")
    assert (one.verdict, one.found) == ("ok", "20480 MiB and more on nodes that keep cores")
    bare = [KEEPING._replace(name=f"n{number}", memory_spec=0) for number in range(10)]
    one = found(core_settings.results(site(), [*bare, KEEPING], [None]), "MemSpecLimit")
    assert one.verdict == "note"
    assert one.found.startswith("n0, n1, n2, n3, n4, n5, n6, n7 and 2 more keep cores and no memory")
    assert "write MemSpecLimit=<MiB>" in one.mend


def test_s23_a_node_with_both_settings_is_an_error() -> None:
    """S23: `both together are an error`; the controller shows one for the other, so slurm.conf is read."""
    text = "NodeName=n[1-2] CPUs=36 \\\n  CoreSpecCount=2 CpuSpecList=17,35\nNodeName=n3 CoreSpecCount=2\n"
    one = found(core_settings.results(site(text), [KEEPING], [2]), "NodeName lines")
    assert one.verdict == "warning"
    assert "NodeName=n[1-2]" in one.found
    assert "n3" not in one.found


@pytest.mark.parametrize(
    ("spec", "verdict", "words"),
    [
        ({"reserved": 8, "cpu_spec": "28-31,60-63"}, "ok", "keeps its jobs off CPU 56-63"),
        ({"reserved": 8, "cpu_spec": "56-63"}, "stop", "CpuSpecList has the kernel's numbers"),
        ({"reserved": 8}, "ok", "CoreSpecCount 8"),
        ({"reserved": 4}, "stop", "jobs are given CPU 56-59 of these cores"),
        ({"reserved": 0}, "stop", "SLURM keeps none"),
    ],
)
def test_l4_wekas_own_example(tmp_path: Path, spec: dict[str, object], verdict: str, words: str) -> None:
    """L4: WEKA holds CPUs 56 to 63 of the kernel, where even ones are on one socket. CpuSpecList=28-31,60-63
    is right, and 56-63 is not."""
    node = machines.EVEN_ODD.node(**spec)
    here = seen(tmp_path, machines.EVEN_ODD, "56-63", by="weka local resources")
    results = core_doctor.node_results(node, here, site(), [Job(None, True)])
    one = found(results, "cores on n1")
    assert one.verdict == verdict
    assert "WEKA's container client holds CPU 56-63 (by weka local resources)" in one.found
    assert words in one.found
    if verdict == "stop":
        assert one.wanted == "CpuSpecList=28-31,60-63, which is CPU 56-63 of the kernel"
        assert "write CpuSpecList=28-31,60-63 in the line of slurm.conf that has NodeName=n1" in one.mend
    if spec.get("cpu_spec") == "56-63":
        assert "or give WEKA's mount cores that SLURM keeps: core=" in one.mend


@pytest.mark.parametrize(
    ("shape", "held", "verdict", "wanted"),
    [
        (machines.TWO_18, "17,35", "ok", ""),
        (machines.TWO_18, "34-35", "stop", "CpuSpecList=34-35, which is CPU 34-35"),
        (machines.TWO_24_HT, "23,47", "ok", ""),
        (machines.TWO_24_HT, "23,47,71,95", "ok", ""),
        # The highest numbers are second threads of the last cores of one socket.
        (machines.TWO_24_HT, "94-95", "stop", "CpuSpecList=92-95, which is CPU 46-47,94-95"),
        (machines.EPYC, "63,127", "ok", ""),
        # What the seed's script takes there: the last core of the first cache.
        (machines.EPYC, "7,127", "stop", "CpuSpecList=7,127, which is CPU 7,127"),
        (machines.EVEN_ODD, "62-63", "ok", ""),
    ],
)
def test_l3_l4_what_a_jobs_core_spec_leaves_beside_what_weka_holds(
    tmp_path: Path, shape: Shape, held: str, verdict: str, wanted: str
) -> None:
    """L3, L4: --core-spec=2 on nodes that keep nothing themselves."""
    here = seen(tmp_path, shape, held)
    one = found(core_doctor.node_results(shape.node(), here, site(), [WHOLE]), "cores on n1")
    assert one.verdict == verdict
    if wanted:
        assert one.wanted.startswith(wanted)
    assert ("siblings 71,95 of WEKA's" in one.found) == (held == "23,47")


def test_l4_cores_first_and_caches_as_sockets_are_read(tmp_path: Path) -> None:
    """L4, S23: SchedulerParameters and SlurmdParameters."""
    here = seen(tmp_path / "a", machines.TWO_18, "0,18")
    settings = site(SchedulerParameters="bf_continue,spec_cores_first")
    assert found(core_doctor.node_results(BARE, here, settings, [WHOLE]), "cores on n1").verdict == "ok"
    here = seen(tmp_path / "b", machines.EPYC, "119,127")
    settings = site(SlurmdParameters="l3cache_as_socket,config_overrides")
    books = machines.EPYC.node(sockets=16)
    assert found(core_doctor.node_results(books, here, settings, [WHOLE]), "cores on n1").verdict == "ok"


def test_l4_a_job_that_shares_its_node_is_warned_and_not_stopped(tmp_path: Path) -> None:
    """L4: it may be given other cores."""
    here = seen(tmp_path, machines.TWO_18, "34-35")
    one = found(core_doctor.node_results(BARE, here, site(), [Job(None, False)]), "cores on n1")
    assert one.verdict == "warning"


def test_l4_where_wekas_processes_may_run_warns_and_does_not_stop(tmp_path: Path) -> None:
    """L4: they may run on more cores than WEKA holds."""
    here = seen(tmp_path, machines.TWO_18, "34-35")
    unsure = HeldCores("other", (0, 1), "its processes", sure=False)
    for held, verdict in (
        ((here.held[0]._replace(sure=False),), "warning"),
        ((here.held[0], unsure), "stop"),
        ((here.held[0]._replace(cpus=(17, 35)), unsure), "warning"),
    ):
        results = core_doctor.node_results(BARE, here._replace(held=held), site(), [WHOLE])
        assert found(results, "cores on n1").verdict == verdict


def test_l2_less_than_the_node_keeps_opens_wekas_cores(tmp_path: Path) -> None:
    """L2: CoreSpecCount=4 and core_spec 2: the job would get two of WEKA's cores."""
    node = BARE._replace(reserved=4, cpu_spec="16-17,34-35")
    here = seen(tmp_path, machines.TWO_18, "16-17,34-35")
    one = found(core_doctor.node_results(node, here, site(), [WHOLE]), "cores on n1")
    assert one.verdict == "stop"
    assert "jobs are given CPU 34-35 of these cores" in one.found
    # Without the option, and where it means nothing, the node keeps them all.
    for job, allowed in ((Job(None, True), "Yes"), (WHOLE, "No")):
        settings = site(AllowSpecResourcesUsage=allowed)
        assert found(core_doctor.node_results(node, here, settings, [job]), "cores on n1").verdict == "ok"


def test_l4_books_that_do_not_fit_the_machine_leave_it_unknown(tmp_path: Path) -> None:
    """L4: pretended CPUs, and siblings that SLURM does not count."""
    here = seen(tmp_path, machines.TWO_24_HT, "23,47")
    books = machines.TWO_24_HT.node(threads=1, cpus=48, reserved=2, cpu_spec="46,47")
    one = found(core_doctor.node_results(books, here, site(), [WHOLE]), "cores on n1")
    assert one.verdict == "warning"
    assert "2 x 24 cores of 1 threads in its books, the machine 48 cores in 2 sockets" in one.found
    assert "`slurmd -C`" in one.mend
    nothing = here._replace(weka=False, held=())
    assert [r.verdict for r in core_doctor.node_results(books, nothing, site(), [WHOLE])] == ["note"]


def test_l4_a_node_without_weka_says_which_cpus_slurm_keeps(tmp_path: Path) -> None:
    """L4: and nothing where it keeps none."""
    here = seen(tmp_path, machines.TWO_18)._replace(weka=False)
    (one,) = core_doctor.node_results(KEEPING, here, site(), [Job(None, True)])
    assert one == CheckResult(
        "cores on n1", "SLURM keeps its jobs off CPU 17,35 (CpuSpecList 17,35 in SLURM's numbers)"
    )
    assert core_doctor.node_results(BARE, here, site(), [Job(None, True)]) == []


@pytest.mark.parametrize(
    ("shape", "held", "net", "udp", "words", "mend"),
    [
        (machines.quarters(), "24-27", "ib0", False, "", ""),
        (machines.quarters(), "52-55", "ib0", False, "is on another NUMA node than ib0 (node 1)",
         "mount with core=24,core=25,core=26,core=27, beside ib0 (NUMA node 1), and write CpuSpecList=24-27"),
        (machines.quarters(), "0,14", "ib0", False, "it holds the core of CPU 0",
         "mount with core=26,core=27"),
        (machines.quarters(), "", "", False, "which ones it holds is not known",
         "core=26,core=27, beside ib0"),
        (machines.TWO_18, "", "", True, "no core of its own (net=udp)",
         "mount with core=35,core=17, as SLURM chooses them, and write CpuSpecList=17,35"),
        (machines.TWO_24_HT, "", "", False, "not known", "core=47,core=23"),
        (machines.interleaved(32, nic=1), "", "", False, "not known", "core=61,core=63, beside ib0"),
    ],
)  # fmt: skip
def test_l3_which_cores_to_give_the_mount_is_said(
    tmp_path: Path, shape: Shape, held: str, net: str, udp: bool, words: str, mend: str
) -> None:
    """L3: the rows of `core_doctor._place_results`."""
    here = seen(tmp_path, shape, held, net=net, udp=udp)
    results = core_doctor.node_results(shape.node(), here, site(), [Job(None, True)])
    rows = [one for one in results if one.about == "WEKA's cores on n1"]
    assert [one.verdict for one in rows] == (["note"] if words else [])
    if words:
        assert words in rows[0].found
        assert mend in rows[0].mend


WEKA, SERVICE = "/etc/wekaio/weka.conf", "/etc/wekaio/service.conf"


@pytest.mark.parametrize(
    ("files", "verdict", "words", "mend"),
    [
        ([FileValue(WEKA), FileValue(SERVICE, "false")], "ok", f"false in {SERVICE}", ""),
        ([FileValue(WEKA, "False"), FileValue(SERVICE)], "ok", f"False in {WEKA}", ""),
        ([FileValue(WEKA, "true"), FileValue(SERVICE, "false")], "warning", f"true in {WEKA}", WEKA),
        ([FileValue(WEKA), FileValue(SERVICE, "true")], "warning", "true in", SERVICE),
        (
            [FileValue(WEKA), FileValue(SERVICE)],
            "warning",
            "not set, so true",
            "systemctl restart weka-agent",
        ),
        (
            [FileValue(WEKA), FileValue(SERVICE, error="Permission denied")],
            "note",
            "Permission denied",
            "grep",
        ),
    ],
)
def test_l5_isolate_cpusets_in_both_files(
    files: list[FileValue], verdict: str, words: str, mend: str
) -> None:
    """L5: the rows of `core_doctor.isolation_results`."""
    (one,) = core_doctor.isolation_results("isolate_cpusets on n1", files)
    assert one.verdict == verdict
    assert words in one.found
    assert mend in one.mend


def test_the_whole_judgement_by_nodes(tmp_path: Path) -> None:
    """L2, L4: the cluster's own results under "", a node's under its name; a node that said nothing, or that
    SLURM does not have, is left out."""
    here = seen(tmp_path, machines.TWO_18, "34-35")
    other = BARE._replace(name="n2")
    jobs = [
        (JobOptions(core_spec=2), ["n1", "n2"]),
        (JobOptions(core_spec=None, cpus=1), ["n2"]),
    ]
    results = core_doctor.judge(site(), [BARE, other], jobs, {"n1": here, "n2": None, "n9": here})
    assert set(results) == {"", "n1"}
    assert all(one.about.endswith(" on n1") for one in results["n1"])
    assert found(results["n1"], "cores on n1").verdict == "stop"
    nothing = [(JobOptions(core_spec=None), ["n1"])]
    assert core_doctor.judge(site(), [BARE], nothing, {}) == {}
