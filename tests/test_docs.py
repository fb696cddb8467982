"""The documentation: the site builds strictly, its links and examples work, and a browser shows it without faults."""

import argparse
import functools
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pandas
import pytest
import rungs
import timings
import yaml
from timings import ROOT, product, took

from hpcmm import kernels
from hpcmm.cli.main import parser
from hpcmm.experiment import extensions
from hpcmm.experiment.config import SCHEMA, validated
from hpcmm.operations import OPERATIONS, drawings

DOCS = ROOT / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
LAB = sorted(path for path in (DOCS / "lab").glob("*.md") if path.stem != "index")
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), DOCS / "lab" / "index.md", *LAB]
# Both widths and both schemes, of one page of each kind; every third of the others is judged where code and tables
# scroll, and without its contrasts, which follow from the same style sheet and take axe most of its time.
JUDGED = ((1280, "light"), (400, "dark"))
AXE = {"resultTypes": ["violations"], "preload": False}  # a page in a file may not fetch its own style sheets
# Messages of other programs in the page on troubleshooting
FOREIGN = (
    "Config file is not valid JSON or YAML`, or a traceback of Snakemake about it",
    "APPLICATION TIMED OUT",
    "Alarm clock (signal 14)",
    "mpi/pmi2: invalid client request",
    "Directory cannot be locked",
    "Not profiled: ... ERR_NVGPUCTRPERM",
    "FAIL in a table",
)


on_site = pytest.mark.slow  # to build it takes half a minute; make docs does it without tests


def build(source: Path, target: Path) -> subprocess.CompletedProcess:
    """Build a site, with every warning an error."""
    if missing := [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -e '.[docs]'")
    # Sphinx keeps all that it makes, so that a usual collection of garbage passes over it again and again
    program = "import gc, sys; gc.set_threshold(100_000); from sphinx.cmd.build import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--fail-on-warning", "--keep-going", "--quiet", source, target]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder


@on_site
def test_it_builds_without_a_warning(site):
    assert sorted(path.stem for path in site.glob("*.html") if path.stem not in ("genindex", "search")) == PAGES


class Html:
    """The tags and the text of a page; Python's parser would take seconds for all pages."""

    def __init__(self, path: Path):
        page = timings.page_of(path)
        self.text = html.unescape(re.sub(r"<[^>]*>", "", page))
        without_code = re.sub(r"<!--.*?-->|(<script\b[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
        self.tags = [
            (tag, {name: html.unescape(value) for name, value in re.findall(r'([\w:-]+)="([^"]*)"', attributes)})
            for tag, attributes in re.findall(r"<([a-z]\w*)([^>]*)>", without_code)
        ]

    @functools.cached_property
    def anchors(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Html]:
    return {str(path.relative_to(site)): Html(path) for path in site.rglob("*.html") if "_static" not in path.parts}


@on_site
def test_the_published_report_links_to_the_pages_of_its_rungs(pages):
    (report,) = (page for name, page in pages.items() if name.endswith("/report.html"))
    links = {attributes.get("href") for tag, attributes in report.tags if tag == "a"}
    assert {"../../rungs/matmul-naive.html", "../../rungs/reduction-strided.html"} <= links


@on_site
def test_every_link_leads_somewhere(site, pages):
    wrong = []
    for name, page in pages.items():
        for tag, attributes in page.tags:
            for target in filter(None, (attributes.get("href"), attributes.get("src"))):
                url = urlsplit(target)
                if url.scheme in ("https", "data"):
                    continue
                path, anchor = unquote(url.path), unquote(url.fragment)
                path = os.path.normpath(Path(name).parent / path) if path else name
                if not (site / path).exists() or (anchor and path in pages and anchor not in pages[path].anchors):
                    wrong.append((name, tag, target))
    assert wrong == []


@on_site
def test_it_loads_nothing_from_the_network(site, pages):
    for name, page in pages.items():
        for tag, attributes in page.tags:
            loaded = attributes.get("src") if tag != "link" else attributes.get("href")
            assert not re.match("(https?:)?//", loaded or ""), f"{name}: {tag} {loaded}"
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(.?(https?:)?//|@import", path.read_text("utf-8")), path


@on_site
def test_it_names_no_package_registry_and_no_path_of_this_machine(site, pages):
    texts = {name: page.text for name, page in pages.items()} | {"index": (site / "searchindex.js").read_text("utf-8")}
    for name, text in texts.items():
        assert not re.search(r"pypi\.org|pythonhosted|npmjs|debian\.org|docker\.io|ghcr\.io|conda-forge", text), name
        assert str(ROOT) not in text and str(Path.home()) + "/" not in text, name


@on_site
def test_every_rung_has_a_page(site, pages):
    for rung in rungs.rungs():
        page = pages[f"rungs/{rung.page}.html"]
        assert re.search(r"What limits it.*(The next rung is|It is the last rung)", page.text, re.DOTALL)
        shown = [line.strip() for line in rungs.divided(rung.source)[1] if line.strip()]
        text = " ".join(page.text.split())
        assert all(" ".join(line.split()) in text for line in shown[:5] + shown[-5:])
    names = {f"rungs/{rung.page}.html" for rung in rungs.rungs()}
    assert {name for name in pages if name.startswith("rungs/")} == names
    ladders = ("matmul", "sum", "vector_add", "latency", "bandwidth", "copy")
    assert len(names) == sum(variant.compiled for name in ladders for variant in OPERATIONS[name].ladder)


def test_highlighted_lines_differ_from_the_previous_rung():
    (rung,) = [each for each in rungs.rungs() if each.page == "matmul-conflict_free"]
    text = "\n".join(rungs.source(rung))
    numbers = re.search(r":emphasize-lines: (\S+)", text)[1]
    body = text.partition("\n\nextern")[2].splitlines()
    assert numbers.isdigit() and "[TILE + 1]" in body[int(numbers) - 1]
    assert "tile_a[TILE][TILE], tile_b" in text.partition("<details>")[2]


def test_drawings_have_a_label_and_belong_to_a_rung():
    pages = {rung.page for rung in rungs.rungs()}
    assert set(drawings.OF) <= pages
    files = {path.stem: path.read_text("utf-8") for path in drawings.PICTURES.glob("*.svg")}
    assert {name for named in drawings.OF.values() for name in named} <= set(files)
    for text in files.values():
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img" and len(root.get("aria-label")) > 50
        assert "currentColor" in text and " id=" not in text
        height = float(root.get("viewBox").split()[3])
        assert all(float(each.get("y")) < height for each in root.iter() if each.get("y"))


FEW = ("index", "definitions", "rungs/matmul-bank_conflict")  # one of each kind
SHOWN = [*PAGES, "lab/index", "lab/comparisons", "rungs/matmul-bank_conflict", "rungs/reduction-first_add"]
ALSO_JUDGED = SHOWN if os.environ.get("HPCMM_TEST_ALL") == "1" else SHOWN[::3]


@on_site
@pytest.mark.parametrize("name", SHOWN)
def test_a_browser_shows_it_without_faults(site, browser, name):
    from axe_playwright_python.sync_playwright import Axe
    from test_page import Visit

    seen = Visit(browser, site / f"{name}.html", offline=True)
    judged, schemes = (JUDGED, ("light", "dark")) if name in FEW else (JUDGED[1:], ("dark",))
    judged = judged if name in (*FEW, *ALSO_JUDGED) else ()
    options = AXE | {"rules": {"color-contrast": {"enabled": name in FEW}}}
    for width in (1280, 400):
        seen.page.set_viewport_size({"width": width, "height": 900})
        for scheme in schemes:
            seen.page.emulate_media(color_scheme=scheme)
            if (width, scheme) in judged:
                found = Axe().run(seen.page, options=options).response["violations"]
                assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], (width, scheme)
            assert seen.page.evaluate("document.documentElement.scrollWidth") == width, scheme
            lightness = seen.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            assert (sum(lightness[:3]) > 600) == (scheme == "light")
    seen.context.close()
    assert seen.troubles == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []


@on_site
def test_the_search_finds_a_word(site, browser):
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=occupancy")
    page.locator("#search-results a", has_text="Definitions").first.wait_for()
    page.close()


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    return found.choices


@on_site
def test_every_command_and_option_is_described(pages):
    assert set(commands()) <= pages["commands.html"].anchors
    for name, command in commands().items():
        for each in (each for each in command._actions if not isinstance(each, argparse._HelpAction)):
            assert each.help, f"hpcmm {name}: {each.dest} has no help"
            assert (each.option_strings or [each.metavar])[0] in pages["commands.html"].text


@on_site
def test_every_key_of_the_config_is_described(pages):
    sweep, measuring = SCHEMA["$defs"]["sweep"]["properties"], SCHEMA["properties"]["measuring"]["properties"]
    for name, each in {**SCHEMA["properties"], **sweep, **measuring}.items():
        assert name in pages["configuration.html"].text
        assert each.get("description") or name in ("measuring", "sweeps"), f"{name} has no description"


def blocks(language: str) -> list:
    found = ((path, re.findall(rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)) for path in TEXTS)
    return [pytest.param(block, id=f"{path.stem}-{i}") for path, texts in found for i, block in enumerate(texts)]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_configs_in_the_text_are_right(text, forgotten, monkeypatch):
    given = yaml.safe_load(text)
    given = given if "sweeps" in given else {"sweeps": given}
    monkeypatch.chdir(ROOT / "examples" / "kernels")  # kernels in a config are relative to it
    extensions.load(extensions.named(given))
    for scale in ("quick", "full"):
        _, sweeps = validated(given | {"scale": scale})
        assert len(sweeps) == len(given["sweeps"])


@pytest.mark.slow
@pytest.mark.parametrize("program", blocks("python"))
def test_programs_in_the_text_run(program, tmp_path, monkeypatch, capsys):
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    seconds = [[i * 1e-3, 2 * i * 1e-3] for i in (1, 2, 3)]  # of two ranks
    rows = [took(product(name, ranks=2, tile=8), seconds) for name in ("naive", "tiled_padded")]
    timings.write(tmp_path / "results" / "timings.h5", {"size": rows}, {"hpcmm": "0"})
    names: dict = {}
    program = program.replace("sizes=[256, 512]", "sizes=[16]")  # a slow function
    (tmp_path / "program.py").write_text(program)  # hpcmm.bench reads the source of a function
    exec(compile(program, tmp_path / "program.py", "exec"), names)
    assert capsys.readouterr().out
    if "found" in names:
        assert names["found"].passed and "<table" in names["found"]._repr_html_()
        assert (names["found"].table["seconds"] > 0).all()
        with pandas.option_context("display.width", 80, "display.max_columns", 0):  # as on a terminal
            assert re.match(r" +kernel +size .* ratio_high\n", repr(names["found"].table))
    if "points" in names:  # the slowest rank of each repetition, then the median
        assert list(names["points"]["seconds"]) == pytest.approx([4e-3, 4e-3])
    if "seconds" in names:  # the median over all ranks and repetitions
        assert list(names["seconds"].values) == pytest.approx([2.5e-3, 2.5e-3])


def test_links_between_the_files_of_the_repository_lead_somewhere():
    for path in TEXTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
            file, _, _ = target.partition("#")
            if file and not file.startswith("https:"):
                assert (path.parent / file).exists(), f"{path.name}: {target}"


def test_commands_in_the_text_exist():
    text = "\n".join(path.read_text("utf-8") for path in TEXTS)
    code = "\n".join(map("".join, re.findall(r"`([^`\n]+)`|^```sh\n(.*?)^```", text, re.M | re.S)))
    assert set(re.findall(r"(?:^|\s)hpcmm (?!COMMAND)([a-z]\w*)", code, re.M)) <= set(commands())
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= set(targets)


def test_messages_in_the_page_on_troubleshooting_are_in_the_code():
    paths = [ROOT / "Makefile", ROOT / "Snakefile"]
    paths += (path for folder in ("hpcmm", "jobs") for path in ROOT.glob(f"{folder}/**/*.py"))
    sources = "".join(path.read_text("utf-8") for path in paths)
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)  # a text over several lines
    for message in re.findall(r"^\| `?([^|]+?)`? \|", (DOCS / "troubleshooting.md").read_text("utf-8"), re.M)[2:]:
        if message not in FOREIGN:
            fixed = max(re.findall(r"[A-Za-z][a-zA-Z ,.()-]+", message.replace("...", "\n")), key=len).strip(" ,.(")
            assert fixed in sources, f"{message}: nothing says {fixed!r}"


def test_the_readme_is_short_and_shows_the_ladder_and_the_report():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 100
    if "| operation" in text:  # a run is published
        assert len(re.findall(r"!\[", text)) == 2
        results = text.partition("| operation")[2].partition("\n\n")[0]
        assert results.count("\n") <= 9  # the rule and eight rows


def test_the_lengths_of_rungs_in_the_text_are_those_of_their_sources():
    folder = kernels.FOLDER
    sources = {kernels.source(of, each) for of in OPERATIONS.values() for each in of.ladder if each.compiled}
    lengths = sorted(len(path.read_text("utf-8").splitlines()) for path in sources if path.is_relative_to(folder))
    design = " ".join((DOCS / "design.md").read_text("utf-8").split())
    pattern = r"sources of (\d+) rungs have (\d+) lines in the median. (\d+) are longer than 100 lines and (\d+)"
    middle = lengths[(len(lengths) - 1) // 2]
    longer = [sum(n > most for n in lengths) for most in (100, 300)]
    assert [*map(int, re.search(pattern, design).groups())] == [len(lengths), middle, *longer]
    assert f"half of them have at most {middle} lines" in " ".join(TEXTS[0].read_text("utf-8").split())


def test_the_instructions_of_every_cuda_rung_are_counted():
    """``tests/instruction_mix.py`` counts them anew."""
    counted = json.loads((DOCS / "instructions.json").read_text("utf-8"))["rungs"]
    assert {f"{path.parents[1].name}/{path.stem}" for path in kernels.FOLDER.glob("*/*/*.cu")} == counted.keys()


def test_the_design_decisions_are_short():
    assert len((DOCS / "design.md").read_text("utf-8").split()) <= 4000


def test_an_experiment_has_all_its_parts():
    index = (DOCS / "lab" / "index.md").read_text("utf-8")
    for path in LAB:
        text = path.read_text("utf-8")
        assert re.match(r"# .+\?\n", text), f"{path.name}: the title is a question"
        parts = re.findall(r"^\*\*(Question|Prediction|Method|Result|Decision)\.\*\*", text, re.M)
        experiments = max(1, len(re.findall(r"^## ", text, re.M)))
        assert parts == ["Question", "Prediction", "Method", "Result", "Decision"] * experiments, path.name
        assert "](../design.md#" in text and f"\n{path.stem}\n" in index, path.name


def test_metadata_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert [each["name"] for each in citation["authors"]] == [each["name"] for each in project["authors"]]
    assert {"cff-version", "message", "title", "type", "abstract"} <= set(citation)
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest, date = re.search(r"^## (\S+) - (\S+)$", changes, re.MULTILINE).groups()
    assert newest == project["version"] and date == str(citation["date-released"])
