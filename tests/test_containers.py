"""Containerfile and hpcmm.def name files, extras and packages that exist. Nothing is built."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = {name: (ROOT / name).read_text() for name in ("Containerfile", "hpcmm.def")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", TEXTS)
def test_every_extra_is_one_of_the_package(name):
    named = re.findall(r"EXTRAS=([\w,]+)|\(or (\w+)\)", TEXTS[name])
    extras = {extra for pair in named for text in pair for extra in text.split(",") if extra}
    assert {"workflow", "mpich", "cuda12", "cuda13"} == extras <= set(PROJECT["optional-dependencies"])


def test_every_path_exists():
    copied = re.findall(r"^COPY (\S+) ", TEXTS["Containerfile"], re.MULTILINE)
    section = re.search(r"^%files\n(.*?)^%", TEXTS["hpcmm.def"], re.MULTILINE | re.DOTALL)[1]
    sources = [line.split()[0] for line in section.splitlines() if line.strip()]
    assert copied == ["."] and sources == [".git"]
    assert all("cluster.md" not in text and "docs/" in text for text in TEXTS.values())
    assert "## In a container" in (ROOT / "docs" / "cluster.md").read_text()


def test_both_have_the_same_base_packages_and_command():
    def found(pattern: str) -> set[str]:
        (one,), (other,) = (re.findall(pattern, text, re.MULTILINE) for text in TEXTS.values())
        assert one == other
        return set(one.split())

    (python,) = found(r"^F(?:ROM|rom:) python:([\d.]+)-slim-bookworm$")
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert found(r"apt-get install --yes --no-install-recommends (.*?)(?: \\)?$") == {"gcc", "git", "libc6-dev"}
    assert "hpcmm" in PROJECT["scripts"]


def test_the_image_has_every_tracked_file():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--ignored", "--cached", "--exclude-from=.dockerignore"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "", "docker and podman leave these out"
