"""Files that others put in place: pipes, sockets, folders and devices are refused at once, wherever one is opened."""

import contextlib
import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from batches import BATCH, HOST
from tasks import UMASK

from hpcmm import store
from hpcmm.bench import done, pace
from hpcmm.bench.journal import Journal, glance, so_far
from hpcmm.cluster import records, site, watch
from hpcmm.experiment import plan
from hpcmm.experiment.config import read_config
from hpcmm.model import HpcmmError
from hpcmm.operations import heads
from hpcmm.store import StoreError
from hpcmm.system import files
from hpcmm.system.reader import ConfigError, text_of

SPECIAL = "a pipe, socket or device, not a file"


def a_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)  # a path of a socket has at most 107 bytes


PLACED = {
    **{"pipe": (os.mkfifo, SPECIAL), "socket": (a_socket, SPECIAL), "folder": (Path.mkdir, "Is a directory")},
    "device": (lambda path: path.symlink_to("/dev/zero"), SPECIAL),
}


@pytest.fixture(params=PLACED.values(), ids=PLACED)
def placed(request, tmp_path):
    """Something that is no file, by its name and what an error says about it."""

    def place(name: str) -> tuple[Path, str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put, said = request.param
        put(path)
        return path, rf"{name}: .*{said}"

    return place


@pytest.mark.parametrize("mode", ["r", "rb", "a", "w", "ab+"])
def test_only_regular_files_are_opened(placed, mode):
    path, why = placed("a.txt")
    with pytest.raises(OSError) as error:
        files.opened(path, mode)
    assert error.value.filename == str(path) and error.value.strerror in why


def test_regular_files_are_opened_as_by_open(tmp_path):
    path = tmp_path / "a.txt"
    with files.opened(path, "w", encoding="utf-8") as file:
        file.write("größe\n")
    assert path.stat().st_mode & 0o777 == 0o666 & ~UMASK
    assert files.text_of(path) == "größe\n" and files.bytes_of(path) == "größe\n".encode()
    with pytest.raises(FileNotFoundError):
        files.opened(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "read", "error"),
    [
        ("plan.json", plan.read, ConfigError),
        ("config.yaml", read_config, HpcmmError),
        ("site.yaml", site.read, HpcmmError),
        ("a.txt", text_of, ConfigError),
        ("my.cu", heads.text_of, HpcmmError),
        ("a.h5", store.read, StoreError),
        ("a.journal", lambda path: so_far(path.with_suffix(".h5"), BATCH), StoreError),
        ("a.journal", lambda path: Journal(path, BATCH, HOST), StoreError),
    ],
)
def test_a_reader_refuses_them_by_name(placed, name, read, error):
    path, why = placed(name)
    with pytest.raises(error, match=why):
        read(path)


def test_readers_that_can_do_without_a_file_go_on(placed, tmp_path, monkeypatch, capfd):
    for name in ("paces.jsonl", "log", "report.html", "c.journal", ".snakemake/hpcmm/jobs/ab"):
        placed(name)
    assert pace.learned(tmp_path) == []
    assert watch.first_errors([str(tmp_path / "log")]) == []
    assert glance(tmp_path / "c.h5", BATCH) is None
    assert not any(
        done.products(plan.make({"sweeps": {"one": {"operation": "sum", "sizes": [8]}}}), tmp_path, False).values()
    )
    monkeypatch.chdir(tmp_path)
    assert [record.token for record in records.read()] == ["ab"]
    assert ".snakemake/hpcmm/jobs/ab is not a record of a job" in capfd.readouterr().err


def test_a_lock_that_fails_names_its_file(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as error, records.locked():
        pass
    assert error.value.filename == str(records.FOLDER / ".lock")


@pytest.mark.parametrize("command", [["bench", "my.cu"], ["bench", "my.py"], ["report", "my.h5"]])
def test_a_command_ends_at_once(tmp_path, command):
    os.mkfifo(tmp_path / command[1])
    run = [sys.executable, "-m", "hpcmm", *command]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert ended.returncode != 0 and command[1] in ended.stderr and "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    "text", ["/*" + "\n" * 3_000_000 + "hpcmm:\n  rows: 8 */", "/* hpcmm:\n  rows: " + " " * 3_000_000 + "8 */"]
)
def test_a_head_of_megabytes_is_refused_before_yaml_reads_it(tmp_path, monkeypatch, text):
    monkeypatch.setattr(heads, "parse", None)
    with pytest.raises(HpcmmError, match=r"my\.cu:\d+: hpcmm: a head of \d+ characters, after \d+ lines; allowed: "):
        heads.head_of(text, tmp_path / "my.cu")
