"""Which cores SLURM keeps its jobs off (S23), what `core_spec: auto` asks for (S22), and which cores a mount
of WEKA is best given (L3): over machines of several shapes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest
from tests.support import machines

from penstock.cluster.slurm import core_settings
from penstock.cluster.slurm.core_settings import L3, NUMA, SOCKET
from penstock.cluster.slurm.facts import read_nodes
from penstock.config.settings import AUTO_CORES, JobOptions
from penstock.core import range_lists
from penstock.host import machine_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.machines import Shape

    from penstock.cluster.slurm.core_settings import Numbering
    from penstock.core.node_answer import Machine


def numbered(folder: Path, shape: Shape, socket_is: str = SOCKET) -> tuple[Machine, Numbering]:
    machine = machine_settings.read_topology(machines.sys_tree(folder, shape))
    numbers = core_settings.numbering(machine, socket_is)
    assert numbers is not None
    return machine, numbers


def test_s23_the_order_in_which_slurm_reserves_cores() -> None:
    """S23: the last core of each socket, last socket first, round robin; `spec_cores_first` the other way."""
    assert list(core_settings.in_order(2, 3)) == [5, 2, 4, 1, 3, 0]
    assert list(core_settings.in_order(2, 3, first=True)) == [0, 3, 1, 4, 2, 5]


TWO_18 = machines.TWO_18.node()
TWO_24 = machines.TWO_24_HT.node()


@pytest.mark.parametrize(
    ("spec", "first", "cores"),
    [
        ({"reserved": 0}, False, ()),
        ({"reserved": 2}, False, (17, 35)),
        ({"reserved": 3}, False, (17, 34, 35)),
        ({"reserved": 2}, True, (0, 18)),
        # As `scontrol` shows it: the list goes before the number.
        ({"reserved": 4, "cpu_spec": "24-27"}, False, (24, 25, 26, 27)),
        ({"reserved": 4, "cpu_spec": "24-27"}, True, (24, 25, 26, 27)),
    ],
)
def test_s23_the_cores_that_a_node_keeps(
    spec: dict[str, object], first: bool, cores: tuple[int, ...]
) -> None:
    """S23."""
    node = TWO_18._replace(**spec)  # type: ignore[arg-type]
    assert core_settings.reserved(node, first=first) == cores


def test_s23_a_list_takes_the_whole_of_each_core_that_it_names() -> None:
    """S23: of two threads a core, CPUs 46 and 95 are in the cores 23 and 47."""
    assert core_settings.reserved(TWO_24._replace(reserved=2, cpu_spec="46,95")) == (23, 47)
    assert core_settings.reserved(TWO_24._replace(reserved=2, cpu_spec="46,95", threads=0)) == ()


@pytest.mark.parametrize(
    ("reserved", "asked", "allowed", "cores"),
    [
        ("", None, True, ()),
        ("", 2, False, ()),
        ("", 2, True, (17, 35)),
        ("", 3, True, (17, 34, 35)),
        ("24-27", None, True, (24, 25, 26, 27)),
        ("24-27", 2, False, (24, 25, 26, 27)),
        ("24-27", 0, True, ()),
        ("24-27", 2, True, (24, 25)),
        ("24-27", 4, True, (24, 25, 26, 27)),
        ("24-27", 6, True, (17, 24, 25, 26, 27, 35)),
        ("17,35", 4, True, (16, 17, 34, 35)),
    ],
)
def test_s23_the_cores_that_a_job_is_not_given(
    reserved: str, asked: int | None, allowed: bool, cores: tuple[int, ...]
) -> None:
    """S23, the rows of `core_settings.kept`: a job's --core-spec takes the node's list first, then adds in
    order; S22: less than the node's opens cores that the node keeps."""
    node = TWO_18._replace(reserved=len(range_lists.cpus(reserved)), cpu_spec=reserved)
    assert core_settings.kept(node, asked, allowed=allowed) == cores


def test_s23_what_scontrol_shows_of_a_node() -> None:
    """S23: Slurm 22.05 and later; a list without a count is counted by cores."""
    line = (
        "NodeName=n1 CoresPerSocket=24 CPUTot=96 Sockets=2 ThreadsPerCore=2 RealMemory=8000 Boards=1 {} "
        "Partitions=data State=IDLE"
    )
    (both,) = read_nodes(line.format("CoreSpecCount=2 CPUSpecList=46-47,94-95 MemSpecLimit=20480"))
    assert (both.sockets, both.cores, both.threads) == (2, 48, 2)
    assert (both.reserved, both.cpu_spec, both.memory_spec) == (2, "46-47,94-95", 20480 << 20)
    (alone,) = read_nodes(line.format("CPUSpecList=46-47,94"))
    assert (alone.reserved, alone.cpu_spec) == (2, "46-47,94")
    for none in ("", "CPUSpecList=N/A", "CPUSpecList="):
        (node,) = read_nodes(line.format(none))
        assert (node.reserved, node.cpu_spec, node.memory_spec) == (0, "", 0)


@pytest.mark.parametrize(
    ("asked", "allowed", "nodes", "comes_to"),
    [
        (4, False, [TWO_18], 4),
        (None, True, [TWO_18], None),
        (AUTO_CORES, False, [TWO_18], None),
        (AUTO_CORES, True, [TWO_18, TWO_24._replace(reserved=1)], None),
        (AUTO_CORES, True, [TWO_18._replace(cores=2)], None),
        (AUTO_CORES, True, [TWO_18, TWO_24], 2),
        (AUTO_CORES, True, [], 2),
    ],
)
def test_s22_what_auto_comes_to(asked: object, allowed: bool, nodes: list, comes_to: int | None) -> None:  # type: ignore[type-arg]
    """S22: the rows of `core_settings.settled`."""
    options = JobOptions(core_spec=asked)  # type: ignore[arg-type]
    found = core_settings.settled(options, nodes, allowed=allowed)
    assert found.spec_cores == comes_to
    if asked == AUTO_CORES:
        assert bool(core_settings.against(nodes, allowed=allowed)) == (comes_to is None)
    assert found.whole_nodes == (comes_to is None)


def test_s22_auto_itself_is_no_number() -> None:
    """S22."""
    with pytest.raises(ValueError, match="has not settled"):
        _ = JobOptions().spec_cores


@pytest.mark.parametrize(
    ("shape", "cores", "cpus", "written"),
    [
        (machines.TWO_18, (35, 17), "17,35", "17,35"),
        (machines.TWO_24_HT, (47, 23), "23,47,71,95", "46-47,94-95"),
        (machines.EPYC, (127, 63), "63,127", "63,127"),
        (machines.EVEN_ODD, (63, 31), "62-63", "31,63"),
        (machines.quarters(), (55, 27), "27,55", "27,55"),
    ],
    ids=["2x18", "2x24 with siblings", "EPYC", "even and odd", "four NUMA nodes"],
)
def test_l3_the_cores_that_slurm_picks_in_the_kernels_numbers(
    tmp_path: Path, shape: Shape, cores: tuple[int, ...], cpus: str, written: str
) -> None:
    """L3: the highest core of the last socket, then that of the socket before it."""
    _, numbers = numbered(tmp_path, shape)
    assert numbers.fits(shape.node())
    assert tuple(islice(core_settings.in_order(2, shape.node().cores // 2), 2)) == cores
    assert range_lists.listed(numbers.cpus(cores)) == cpus
    assert numbers.spec_list(cores) == written
    assert numbers.cores_of(range_lists.cpus(cpus)) == tuple(sorted(cores))


def test_l4_the_numbers_of_wekas_own_page(tmp_path: Path) -> None:
    """L4: the kernel's CPUs 56 to 63 are 28 to 31 and 60 to 63 of SLURM, with even CPUs on one socket."""
    _, numbers = numbered(tmp_path, machines.EVEN_ODD)
    assert numbers.spec_list(numbers.cores_of(range(56, 64))) == "28-31,60-63"
    assert range_lists.listed(numbers.cpus((28, 29, 30, 31))) == "56,58,60,62"
    assert range_lists.listed(numbers.cpus((60, 61, 62, 63))) == "57,59,61,63"


@pytest.mark.parametrize(
    ("socket_is", "sockets", "each", "picked"), [(SOCKET, 2, 64, "63,127"), (L3, 16, 8, "119,127")]
)
def test_l3_caches_may_count_as_sockets(
    tmp_path: Path, socket_is: str, sockets: int, each: int, picked: str
) -> None:
    """L3: EPYC with 8 caches of level 3 a socket, also with SlurmdParameters=l3cache_as_socket."""
    _, numbers = numbered(tmp_path, machines.EPYC, socket_is)
    assert [len(socket) for socket in numbers.sockets] == [each] * sockets
    books = machines.EPYC.node(sockets=sockets, reserved=2)
    assert numbers.fits(books)
    assert range_lists.listed(numbers.cpus(core_settings.reserved(books))) == picked
    assert not numbers.fits(books._replace(sockets=4))


def test_l3_numa_nodes_may_count_as_sockets_and_what_is_not_known_has_no_numbers(tmp_path: Path) -> None:
    """L3."""
    machine, numbers = numbered(tmp_path, machines.quarters(), NUMA)
    assert [len(socket) for socket in numbers.sockets] == [14] * 4
    assert core_settings.numbering(machine._replace(nodes={}), NUMA) is None
    assert core_settings.numbering(machine._replace(cores=())) is None


def test_l3_cores_of_a_socket_are_numbered_by_numa_node_and_cache_first(tmp_path: Path) -> None:
    """L3: as hwloc does it, where the kernel's numbers run across the NUMA nodes of one socket."""
    threads = {cpu: machines.Thread(0, cpu, cpu % 2, cpu % 4) for cpu in range(8)}
    _, numbers = numbered(tmp_path, machines.Shape(threads, {}))
    assert [core[0] for core in numbers.cores] == [0, 4, 2, 6, 1, 5, 3, 7]


@pytest.mark.parametrize(
    ("shape", "near", "count", "options", "written"),
    [
        (machines.TWO_18, None, 2, "core=35,core=17", "17,35"),
        (machines.TWO_18, 0, 2, "core=16,core=17", "16-17"),
        (machines.TWO_24_HT, None, 2, "core=47,core=23", "46-47,94-95"),
        (machines.TWO_24_HT, 1, 2, "core=46,core=47", "92-95"),
        (machines.EPYC, None, 2, "core=127,core=63", "63,127"),
        (machines.EPYC, 0, 1, "core=63", "63"),
        (machines.EVEN_ODD, None, 2, "core=63,core=62", "31,63"),
        (machines.EVEN_ODD, 1, 2, "core=61,core=63", "62-63"),
        (machines.quarters(), 1, 4, "core=24,core=25,core=26,core=27", "24-27"),
        (machines.plain(2, 2), 0, 2, "core=1,core=3", "1,3"),
        (machines.plain(1, 2), None, 2, "core=1", "1"),
    ],
)
def test_l3_the_cores_to_give_a_mount(
    tmp_path: Path, shape: Shape, near: int | None, count: int, options: str, written: str
) -> None:
    """L3: on the network device's side where that is known (WEKA's own page takes 24 to 27 for ib0 on NUMA
    node 1), else as SLURM picks them; never the core of CPU 0."""
    machine, numbers = numbered(tmp_path, shape)
    cores = core_settings.proposal(numbers, machine, count, near)
    assert numbers.mount_options(cores) == options
    assert numbers.spec_list(cores) == written


def test_l3_the_cores_to_give_a_mount_where_first_cores_are_reserved(tmp_path: Path) -> None:
    """L3 with `spec_cores_first`: the core of CPU 0 is passed over."""
    machine, numbers = numbered(tmp_path, machines.TWO_18)
    cores = core_settings.proposal(numbers, machine, 2, first=True)
    assert numbers.mount_options(cores) == "core=18,core=1"
