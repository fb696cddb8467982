"""Exchanges alone: who receives what, over each transport, and the table of message sizes and bandwidths."""

import re
from pathlib import Path

import pytest
import timings
from hypothesis import given
from hypothesis import strategies as st
from timings import kernel_samples, measurement

from hpcmm import analysis, report, store
from hpcmm.analysis import links as derived
from hpcmm.backends.cuda import presence
from hpcmm.model.measurement import Point
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import algorithms_of, links
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.schedules import block_rows
from hpcmm.report import csv_files

PROGRAM = Path(__file__).parent / "mpi_programs" / "links.py"
TWO_GPUS = [pytest.mark.gpu, pytest.mark.skipif(presence.count() < 2, reason="needs two GPUs")]


@pytest.mark.slow
def test_what_arrives_is_what_was_sent(mpi_output):
    assert "224 exchanges over mpi, mpi_rma: right" in mpi_output(4, PROGRAM, "cpu", timeout=300)


@pytest.mark.gpu
def test_what_arrives_between_gpus_is_what_was_sent_cuda(gpu, mpi_output):
    printed = mpi_output(max(3, presence.count()), PROGRAM, "cuda", timeout=120)
    assert re.search(r"\d+ exchanges over .*peer.*: right", printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=TWO_GPUS)])
def test_a_process_opens_each_transport_once_and_again_after_a_failed_point(mpi_output, tmp_path, device):
    printed = mpi_output(2, PROGRAM.with_name("connections.py"), tmp_path, device, timeout=200)
    carriers = {"cpu": "mpi, mpi_rma", "cuda": "peer, nccl"}[device]
    assert f"\n{carriers}, {carriers} opened for 23 points" in printed


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", "swapped"])
def test_a_broken_exchange_is_found(mpi_output, fault):
    assert "broken, and found" in mpi_output(2, PROGRAM, "cpu", fault, timeout=300)


@given(st.sampled_from(list(links.PATTERNS)), st.integers(0, 300), st.integers(1, 9))
def test_each_element_arrives_once(pattern, n, ranks):
    blocks = block_rows(n, ranks)
    pieces = [links.PATTERNS[pattern][0](blocks, rank) for rank in range(ranks)]
    pieces = [piece for of_rank in pieces for piece in of_rank]
    arrived = sorted(blocks[source][0] + start + i for source, start, count in pieces for i in range(count))
    assert arrived == list(range(n))
    longest = max((count for _, _, count in pieces), default=0)
    assert links.message_elements(pattern, n, ranks) == longest


def test_each_transport_has_its_device():
    ladder = {each.name: each for each in OPERATIONS["links"].ladder}
    for algorithm in algorithms_of(OPERATIONS["links"])[1:]:
        takes = [each.device for each in ladder.values() if algorithm.takes(each)]
        assert takes == (["cpu"] if algorithm.name.endswith(("_mpi", "_rma")) else ["cuda"])


def test_the_table_has_the_bandwidths_of_nccl_tests(tmp_path):
    rows, collectives = [], ("all_reduce", "broadcast", "gather", "all_gather", "reduce_scatter")
    of_four = ("neighbours_mpi", "all_to_all_mpi_rma", *(f"{each}_mpi" for each in collectives), "scatter")
    for algorithm in (*of_four, "upload", "pairs_mpi"):  # pairs of one rank exchange nothing
        variant, ranks = "device_copy" if algorithm in DIRECTIONS else "memcpy", 4 if algorithm in of_four else 1
        point = Point("links", variant, (2**20,), "float32", ranks, algorithm=algorithm)
        rows.append(measurement(point, samples=kernel_samples([1e-3] * 7)))
    path = timings.write(tmp_path / "timings.h5", {"links": rows})
    found = derived.exchanges(analysis.row_dicts(analysis.measurements(store.read(path))))
    # nccl-tests: sendrecv moves size bytes a rank; the size of a collective is that of the longest buffer of a rank
    assert [(each["pattern"], each["message_bytes"]) for each in found] == [
        ("neighbours", 2**20), ("all_to_all", 2**18), ("all_reduce", 2**22), ("broadcast", 2**22), ("gather", 2**22),
        ("all_gather", 2**22), ("reduce_scatter", 2**22), ("upload", 2**22),
    ]  # fmt: skip
    algorithm, bus = ([each[f"{of}_bytes_per_second"] * 1e-3 for each in found] for of in ("algorithm", "bus"))
    assert algorithm == pytest.approx([2**20] * 2 + [2**22] * 6)
    assert bus == pytest.approx([2**20, 0.75 * 2**20, 1.5 * 2**22, 2**22, *[0.75 * 2**22] * 3, 2**22])
    report.build(path, tmp_path / "results")
    page = timings.page_of(tmp_path / "results" / "report.html")
    assert all(f">{name}" in page for name in ("Pattern", "Message", "Bus bandwidth, GB/s"))
    text = (tmp_path / "results" / "tables" / "links.exchanges.csv").read_text()
    assert text.splitlines()[0] == ",".join(csv_files.COLUMNS["exchanges"]) and len(text.splitlines()) == 9
