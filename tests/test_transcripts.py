"""The transcripts on the pages: their commands exist, and with and without a GPU they print what the pages show."""

import os
import re
import shlex
from pathlib import Path

import pytest
import transcripts

from hpcmm import backends
from hpcmm.cli.main import parser

DOCS = Path(transcripts.__file__).parent
ALL = os.environ.get("HPCMM_TEST_ALL") == "1"
RECORDED = sorted(transcripts.FOLDER.glob("*.txt"))


def form(text: str) -> list[str]:
    """Return the commands, verdicts and heads of tables of a transcript, with their numbers masked."""
    begin = re.compile(r"\$|kernel |counter |instructions |  \w+: |\S+( [A-Z_]+=\d+)*: ")
    lines = filter(begin.match, text.splitlines())
    lines = [line.removesuffix("of the limit") for line in lines]  # a column for processors whose limit is known
    lines = [re.sub(r"[\s\u2013-]+", " ", re.sub(r"\d[\d.,]*", "0", line)).strip() for line in lines]
    return [re.match(r".*?(PASS|FAIL)|.*", line)[0] for line in lines]


@pytest.mark.parametrize("name", transcripts.COMMANDS)
def test_the_commands_exist_and_a_page_shows_them(name):
    assert sum(f"\n<!-- transcript: {name} -->\n" in page.read_text() for page in DOCS.glob("*.md")) == 1
    for command in transcripts.COMMANDS[name]:
        program, *arguments = shlex.split(command)
        found, rest = parser().parse_known_args(arguments)
        assert program == "hpcmm" and found.run and (not rest or found.takes_rest)


def test_the_examples_with_a_mistake_can_be_made(tmp_path):
    folder = transcripts.prepared(tmp_path)
    for name in transcripts.MISTAKES:
        assert (folder / name).read_text() != (folder / "tiled.cu").read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_transcript_says_where_it_was_recorded_and_has_its_commands(path):
    machine, *lines = path.read_text().splitlines()
    assert re.fullmatch(r"# (no GPU, \d+ cores|NVIDIA .+, driver [\d.]+)", machine)
    assert machine.startswith("# no GPU") is (path.stem in transcripts.WITHOUT_GPU)
    assert [line[2:] for line in lines if line.startswith("$ ")] == transcripts.COMMANDS[path.stem]


def recorded(names):
    """Return the names of the transcripts that are recorded; one is no slow test.

    A whole check takes a minute, test_new.py grades the same solutions, and test_bench.py tunes and runs Python.
    """
    covered = re.compile("check|.*_(check|grade|tune|python)")
    for name in sorted({path.stem for path in RECORDED} & {*names}):
        long = pytest.mark.skipif(bool(covered.fullmatch(name)) and not ALL, reason="HPCMM_TEST_ALL=1 runs it")
        yield pytest.param(name, marks=long if name.endswith("bench") else [long, pytest.mark.slow])


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*recorded(transcripts.WITH_GPU)])
def test_a_gpu_prints_what_the_transcript_shows(gpu, name, tmp_path):
    for package in ("triton", "numba.cuda", "cuda.core") if name == "python" else ():
        pytest.importorskip(package)
    found, shown = transcripts.transcript(name, transcripts.prepared(tmp_path)), transcripts.FOLDER / f"{name}.txt"
    found, shown = form(found), form(shown.read_text())
    if name == "sanitize":  # whether a race gives a wrong result is chance
        found, shown = ([line for line in each if re.search("memcheck|racecheck", line)] for each in (found, shown))
    assert found == shown


@pytest.mark.slow
@pytest.mark.skipif(not backends.missing("cuda"), reason="this machine has a GPU")
@pytest.mark.parametrize("name", [*recorded(transcripts.WITHOUT_GPU)])
def test_a_machine_without_a_gpu_prints_what_the_transcript_shows(name, tmp_path):
    found = transcripts.transcript(name, transcripts.prepared(tmp_path))
    assert sorted(form(found)) == sorted(form((transcripts.FOLDER / f"{name}.txt").read_text()))
