"""What commands write to terminals of any width, to pipes, and without UTF-8."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading

import pytest
from test_display import drained

from hpcmm.cli.arguments import COMMANDS
from hpcmm.cli.main import main
from hpcmm.system.text import folded

ANSWERS = """occupancy --tile 16
predict --rate 50 --inside 10us,350GB/s --between 10us,350GB/s --ranks 8,16 --simulate 0
plan --config-file examples/atlas.yaml
show nowhere/at-all/timings.h5
occupancy --tile 4096
export --format jsno timings.h5"""


def on_terminal(arguments: list[str], columns: int, **environ: str) -> list[str]:
    """Return the lines that a command writes to a terminal, without the colours of Python 3.14's argparse."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    found = []
    reader = threading.Thread(target=lambda: found.append(drained(ours)))
    reader.start()
    command, streams = [sys.executable, "-m", "hpcmm", *arguments], dict.fromkeys(("stdin", "stdout", "stderr"), its)
    subprocess.run(command, env=os.environ | {"TERM": "xterm"} | environ, timeout=300, **streams)
    os.close(its)
    reader.join(60)
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", found[0].decode()).splitlines()


@pytest.mark.parametrize("arguments", ["run --help", *ANSWERS.splitlines()])
def test_no_line_is_wider_than_a_terminal_and_no_word_is_broken(arguments):
    shown, wide = on_terminal(arguments.split(), 60), on_terminal(arguments.split(), 1000)
    text = "\n".join(shown)
    assert max(map(len, shown)) <= 60, text
    assert not re.search(r"[\x1b\\]", text)
    words, known = ({word for word in " ".join(lines).split() if word.strip("-")} for lines in (shown, wide))
    assert words <= known


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_any_terminal(name, monkeypatch, capsys):
    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            main([name, "--help"])
        return [part for line in capsys.readouterr().out.splitlines() for part in folded(line, columns).splitlines()]

    assert max(map(len, shown(60))) <= 60
    assert set(" ".join(shown(60)).split()) == set(" ".join(shown(1000)).split())


def test_text_without_a_terminal_is_not_folded():
    command = [sys.executable, "-m", "hpcmm", "occupancy", "--tile", "16"]
    done = subprocess.run(command, env=os.environ | {"COLUMNS": "60"}, capture_output=True, text=True, timeout=300)
    assert max(map(len, done.stdout.splitlines())) > 60 and "\x1b" not in done.stdout


def test_a_number_keeps_its_unit():
    for width in range(10, 40):
        lines = folded("about 5 s (at most 69 s), limit 5 %, at 51.2 TFLOP/s, then 4.0 GiB.", width).splitlines()
        last = [line.rstrip("(").split()[-1].strip("(").replace(".", "") for line in lines]
        assert not any(map(str.isdecimal, last)), lines
