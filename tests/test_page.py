"""The page of the report in a real browser: it opens offline, draws, sorts, filters, prints, and all can read it."""

import re
from pathlib import Path

import pytest
import test_check
import test_history
import timings
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from test_compare import controls
from timings import FAIL, measurement, product, took, total

from hpcmm import report, store
from hpcmm.analysis import check, compare, history
from hpcmm.grading.exercise import Grade
from hpcmm.grading.submissions import values
from hpcmm.report import check as report_check
from hpcmm.report import comparison, grades
from hpcmm.report import history as report_history

pytestmark = pytest.mark.timeout(1500)

CHARTS = "[...document.querySelectorAll('.chart')]"
SHOWN = f"{CHARTS}.filter(each => !each.closest('details:not([open]), [hidden]'))"
DRAWN = f"{SHOWN}.every(each => each.dataset.state === 'drawn')"
DONE = f"{SHOWN}.every(each => ['drawn', 'failed'].includes(each.dataset.state))"
MARKS = ".mark-symbol path, .mark-rect path, .mark-line path, .mark-text text"
CLOSED = "details:not([open]) > :not(summary)"
OPEN_ALL = "document.querySelectorAll('details').forEach(each => { each.open = true; })"
FILL = "getComputedStyle(document.querySelector('.chart .role-axis-label text')).fill"
READY = "!document.querySelector('script#config') || document.body.dataset.ready"
# every third view, including hidden ones
REVEAL = """Promise.all([...document.querySelectorAll('.view')].filter((_, i) => i % 3 === 0).map(unpack)).then(() =>
  document.querySelectorAll('[hidden]').forEach(each => { each.hidden = false; }))"""
REFERENCE = timings.ROOT / "results" / "reference"


class Visit:
    """A page that was opened, with all that went wrong and all that it asked for."""

    def __init__(self, browser: Browser, path: Path, width: int = 1280, **context):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **context)
        self.page: Page = self.context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)
        self.page.wait_for_function(READY)

    def draw_all(self) -> None:
        """As for printing, at once: where figures are drawn one by one, each moves the whole page below it."""
        self.page.wait_for_function("Boolean(window.vegaEmbed)")
        self.page.evaluate(f"{OPEN_ALL}; dispatchEvent(new Event('beforeprint'))")
        self.page.wait_for_function(DONE, timeout=600_000)
        assert self.page.evaluate(DRAWN)


@pytest.fixture
def visit(browser):
    visits = []

    def open_page(path: Path, **how) -> Visit:
        visits.append(Visit(browser, path, **how))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()


@pytest.fixture(scope="module")
def opened(browser):
    seen = Visit(browser, REFERENCE / "report.html")
    yield seen
    seen.context.close()


@pytest.fixture
def published(opened):
    """The published page, opened once for tests that leave it as it is: it takes seconds to open."""
    opened.page.set_viewport_size({"width": 1280, "height": 900})
    opened.page.emulate_media(media="screen")
    opened.page.evaluate("scrollTo(0, 0)")
    return opened


@pytest.fixture(scope="module")
def drawn(browser):
    """The published page with every figure, narrow, where texts have the least room."""
    seen = Visit(browser, REFERENCE / "report.html", width=400, offline=True)
    seen.page.evaluate(REVEAL)
    seen.draw_all()
    yield seen
    seen.context.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A report of a few points: two sizes, three tiles, a failure."""
    folder = tmp_path_factory.mktemp("small")
    rows = [took(product("tiled_padded", 640, tile=8), [1e-3] * 9), took(product("cublas", 640), [1e-3] * 9)]
    for i, n in enumerate((1024, 4096, 640), 1):
        rows += [took(product(n=n, tile=tile), [i * tile * 1e-4] * 9) for tile in (8, 16, 32)]
    rows.append(measurement(product("naive_unguarded", 640, tile=8), verdict=FAIL))
    times = {"serial": 4e-9, "openmp": 1e-9, "divergent": 8e-10, "strided": 3e-10, "cub": 1e-11}  # per element
    sums = [took(total(name, 2**n), [t * 2.0**n] * 9) for n in (10, 20, 22) for name, t in times.items()]
    path = timings.write(folder / "timings.h5", {"tiles": rows, "sums": sums})
    return report.build(path, folder / "results")[0]


@pytest.mark.slow
def test_it_opens_from_a_file_without_a_network_and_draws_every_figure(drawn):
    assert drawn.troubles == []
    assert drawn.requests == [drawn.url]
    charts = drawn.page.locator(".chart")
    drawings = drawn.page.evaluate(f"{CHARTS}.map(each => each.querySelectorAll('{MARKS}').length)")
    assert len(drawings) == charts.count() > 50
    assert min(drawings) > 0
    widths = drawn.page.evaluate(f"{CHARTS}.map(each => each.querySelector('svg').getBoundingClientRect().width)")
    assert min(widths) > 250


# Texts of a drawing that are cut off at its sides, and labels of one axis that lie on each other
MISPLACED = """roots => roots.flatMap(root => {
  const svg = root.querySelector("svg") ?? root, all = svg.getBoundingClientRect();
  const shown = [...svg.querySelectorAll("text")].filter(each => each.textContent && +getComputedStyle(each).opacity);
  const box = each => each.getBoundingClientRect();
  const cut = shown.filter(each => box(each).left < all.left - 1 || box(each).right > all.right + 1);
  const touching = [...svg.querySelectorAll(".role-axis-label")].flatMap(axis => {
    const labels = shown.filter(each => axis.contains(each));
    return labels.filter((each, i) => labels.slice(0, i).some(other =>
      Math.min(box(each).right, box(other).right) > Math.max(box(each).left, box(other).left) + 1 &&
      Math.min(box(each).bottom, box(other).bottom) > Math.max(box(each).top, box(other).top) + 2));
  });
  return [...cut, ...touching].map(each => each.textContent);
})"""


@pytest.mark.slow
def test_no_text_of_a_figure_is_truncated_or_overlaps(drawn):
    assert drawn.page.eval_on_selector_all(".chart", MISPLACED) == []


@pytest.mark.parametrize("name", ["ladder", "tiles", "scaling"])
def test_no_text_of_a_figure_for_papers_is_truncated(visit, name):
    seen = visit(REFERENCE / f"{name}.svg")
    assert seen.page.eval_on_selector_all("svg", MISPLACED) == []


@pytest.mark.slow
def test_a_figure_is_drawn_when_it_becomes_visible(published):
    last = published.page.locator("section[aria-labelledby=clocks] .view:not([hidden]) .chart").last
    last.scroll_into_view_if_needed()
    published.page.wait_for_function("place => place.dataset.state === 'drawn'", arg=last.element_handle())


def column(table, number: int) -> list[str]:
    """The first line of each cell."""
    cells = table.locator(f"tbody tr:not([hidden]) > :nth-child({number})")
    return [text.split("\n")[0].strip() for text in cells.all_inner_texts()]


def table_of(page: Page, caption: str):
    return page.locator("table.data", has=page.locator("caption", has_text=caption))


def test_a_table_sorts_filters_leads_to_definitions_and_is_copied(visit, small):
    seen = visit(small)
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.evaluate(OPEN_ALL)
    rates_of, ladder = (table_of(seen.page, each) for each in ("FLOP/s, float32", "Ladder, int32"))
    head = rates_of.locator("thead th", has_text="naive 8")
    before = column(rates_of, 1)
    assert before == ["640", "1024", "4096"]

    def shown() -> list[float]:
        """The rates in GFLOP/s; each cell names its unit where the caption's would need leading zeros."""
        cells = [(*text.split(), "TFLOP/s")[:2] for text in column(rates_of, 3)]
        return [float(number) * {"GFLOP/s": 1, "TFLOP/s": 1000}[unit] for number, unit in cells]

    rates = shown()
    for direction, expected in (("ascending", sorted(rates)), ("descending", sorted(rates, reverse=True))):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        assert shown() == expected
    head.locator("button").click()
    assert head.get_attribute("aria-sort") is None and column(rates_of, 1) == before, "back in its order"

    field = seen.page.get_by_label("Filter rows: Ladder, int32, 1 rank")
    field.fill("CUDA 2²²")
    assert column(ladder, 3) == ["divergent", "strided", "cub"]
    assert seen.page.locator("output", has_text="3 of 15 rows").count() == 1
    field.fill("")
    seen.page.get_by_label("Copy Ladder, int32, 1 rank").click()
    seen.page.get_by_text("Copied").wait_for()
    lines = seen.page.evaluate("navigator.clipboard.readText()").split("\n")
    assert len(lines) == 16 and lines[0].split("\t")[:3] == ["n", "Device", "Rung"]

    ladder.locator("thead th", has_text="Time").locator("button").click()
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
    times = [float(value) * scale[unit] for value, unit in (text.split() for text in column(ladder, 4))]
    assert times == sorted(times) and len(times) == 15
    ladder.locator("thead th").first.locator("button").click()
    assert column(ladder, 1) == ["2¹⁰"] * 5 + ["2²⁰"] * 5 + ["2²²"] * 5  # each row says its own once they move
    for _ in range(2):
        ladder.locator("thead th", has_text="Step").locator("button").click()
        steps = column(ladder, 6)
        assert all(steps[:6]) and not any(steps[6:]), "empty cells stay last"
    seen.page.get_by_label("Definition of Step").first.click()
    assert seen.page.locator("#step").bounding_box()["y"] < 900


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", text)[:3])


def test_figures_have_values_and_a_table_and_follow_the_light_or_the_dark(visit, small):
    seen = visit(small)
    seen.draw_all()
    table = seen.page.locator("#sweep-tiles details.values").first.locator("table")
    table.wait_for()
    assert table.locator("tbody tr").count() == 11  # the points with a tile
    assert table.locator("thead th").first.inner_text().startswith("Variant")
    assert {"naive 8", "tiled_padded 8"} <= set(column(table, 1))
    for scheme in ("light", "dark"):
        seen.page.emulate_media(color_scheme=scheme)
        paper = rgb(seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        label = rgb(seen.page.evaluate(FILL))
        assert (sum(paper) > 600) == (scheme == "light") and (sum(label) < 200) == (scheme == "light")
    seen.page.locator(".chart .mark-symbol path").first.hover()
    tooltip = seen.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    assert "variant" in text and "95 % interval" in text and "GB/s" in text


def serious_faults(page: Page) -> list[tuple[str, str]]:
    found = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


def faults_of_view(page: Page, width: int = 400, scheme: str = "dark") -> list[tuple[str, str]]:
    """Return the serious faults in one view: other pages have the parts and the style sheet of the report."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    return serious_faults(page)


@pytest.mark.slow
def test_axe_finds_no_serious_fault(visit, small):
    seen = visit(small)
    seen.draw_all()
    for width, scheme in ((1280, "light"), (400, "dark")):  # a narrow page has other parts
        assert faults_of_view(seen.page, width, scheme) == [], (width, scheme)


@pytest.mark.slow
def test_axe_finds_no_serious_fault_in_grades(visit, tmp_path):
    """With an error of several lines."""
    wrong = Grade("two", "two.c", "cpu", False, "does not compile:\n  error", 0.0, 5.0)
    right = Grade("one", "one.c", "cpu", True, "", 5.0, 5.0, against="serial", ratio=2.0)
    each = {"name": "anna", "points": 5.0, "passed": 1, "exercises": [values(right), values(wrong)]}
    result = {"title": "Sheet", "utc": "2026-01-01T00:00", "of": 10.0, "ungraded": 0.0, "unisolated": ""}
    grades.build(result | {"exercises": ["one", "two"], "submissions": [each]}, tmp_path / "grades.html")
    seen = visit(tmp_path / "grades.html")
    seen.page.evaluate(OPEN_ALL)
    assert seen.page.locator("pre").inner_text() == "does not compile:\n  error"
    assert faults_of_view(seen.page) == []


@pytest.mark.slow
def test_axe_finds_no_serious_fault_in_the_published_page(visit):
    seen = visit(REFERENCE / "report.html")
    outside = "[...document.querySelectorAll('[id]')].filter(each => !each.closest('svg'))"  # of a drawing
    identities = seen.page.evaluate(f"{outside}.map(each => each.id)")
    assert len(identities) == len(set(identities)) > 50
    # axe judges what is shown, but needs much longer to pass over the rest, most of the page
    seen.page.evaluate(f"document.querySelectorAll('{CLOSED}').forEach(each => each.remove())")
    assert serious_faults(seen.page) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_screen(published, width):
    published.page.set_viewport_size({"width": width, "height": 900})
    assert published.page.evaluate("document.documentElement.scrollWidth") == width


def test_printing_shows_open_sections_on_white(visit, small, tmp_path):
    seen = visit(small)
    drawn = f"{SHOWN}.length > 1 && {SHOWN}.every(each => each.querySelector('svg'))"
    assert seen.page.evaluate(drawn), "at the load event, when chromium --print-to-pdf prints"
    seen.page.emulate_media(media="print", color_scheme="dark")
    seen.page.pdf(path=tmp_path / "report.pdf")
    assert seen.page.evaluate(drawn)
    assert rgb(seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")) == (255, 255, 255)
    assert not any(rgb(seen.page.evaluate(FILL)))
    assert not seen.page.locator("nav").is_visible() and not seen.page.locator("th a").first.is_visible()


@pytest.mark.slow
def test_folded_sections_are_printed_and_fit_on_paper(published):
    published.page.set_viewport_size({"width": 720, "height": 900})  # of A4 within its margins
    published.page.emulate_media(media="print")
    folds = "[...document.querySelectorAll('details.table')].filter(each => each.checkVisibility())"
    shut = published.page.evaluate(f"{folds}.length")
    published.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert published.page.evaluate(f"{folds}.length > {shut} + 5 && {folds}.every(each => each.open)")
    assert published.page.evaluate("document.documentElement.scrollWidth") < 2 * 720  # Chromium shrinks no page more
    published.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert published.page.evaluate(f"{folds}.length") == shut


@pytest.mark.slow
def test_a_link_opens_its_target(published):
    published.page.wait_for_function(DRAWN, timeout=600_000)
    target = published.page.locator("#step")
    assert not target.is_visible()
    published.page.evaluate("location.hash = 'step'")
    target.wait_for()


# Browsers open closed details themselves, but show no alternative that is hidden.
HIDDEN = "main [hidden][data-group] .chart"


@pytest.mark.slow
def test_a_view_is_shown_by_its_button_and_by_a_link_to_its_figure(visit):
    seen = visit(REFERENCE / "report.html")
    section = seen.page.locator("section[aria-labelledby=sizes]")
    buttons, view = section.locator(".views input"), section.locator(".view:not([hidden])")
    values = [buttons.nth(i).get_attribute("value") for i in range(buttons.count())]
    place = next(i for i, value in enumerate(values) if i > 1 and "2-cores" not in value)
    first, other = values[0], values[place]
    assert view.get_attribute("id") == first and section.locator(f"[id='{other}'] figure").count() == 0, "still packed"
    buttons.nth(0).focus()
    for _ in range(place):
        seen.page.keyboard.press("ArrowRight")
    section.locator(f"[id='{other}'] figure").first.wait_for()
    assert view.get_attribute("id") == other and section.locator(f"[id='{first}']").is_hidden()
    seen.page.locator("select[name=machine]").select_option(label="2 cores")  # it measured neither
    section.locator(f"[id='{other}']").wait_for(state="hidden")
    seen.page.evaluate(f"location.hash = 'figure-{first}-ratio'")
    section.locator(f"[id='{first}'] figure").first.wait_for()
    assert view.get_attribute("id") == first and seen.page.locator("select[name=machine]").input_value() == ""
    assert seen.troubles == []


@pytest.mark.slow
def test_a_page_opened_by_a_link_shows_its_target(visit):
    seen = visit(REFERENCE / "report.html")
    seen.page.locator(".opening svg").first.wait_for()
    name = seen.page.locator(HIDDEN).first.get_attribute("id")
    seen.page.goto("about:blank")
    seen.page.goto(f"{seen.url}#{name}")
    seen.page.locator(f"[id='{name}'] svg").wait_for()
    assert seen.troubles == []


@pytest.mark.slow
def test_the_first_screen_answers_beside_two_figures(published):
    seen = published
    seen.page.wait_for_function(DRAWN, timeout=600_000)
    sections = seen.page.locator(".opening section")
    assert sections.count() == 3
    answer = sections.first.locator(".answer:visible")
    assert answer.count() == 1 and "Why: " in answer.inner_text() and "Visits" in answer.inner_text()
    for section in sections.all()[1:]:
        drawn = section.locator("figure:visible svg")
        box = drawn.bounding_box()
        assert drawn.count() == 1 and box["y"] > 0 and box["y"] + box["height"] < 900
        assert len(section.locator(".headline:visible").inner_text()) > 40
    line = seen.page.locator(".machine")
    assert line.bounding_box()["height"] < 30 and "H100" in line.inner_text()
    assert seen.page.locator("[role=alert]").count() == 0, "failures that a sweep asks for are no alarm"


@pytest.mark.slow
def test_the_switch_changes_sentences_figures_and_tables_together(visit):
    seen = visit(REFERENCE / "report.html")
    chapter = seen.page.locator("section[aria-labelledby=sizes]")
    caption = chapter.locator("figure:visible figcaption").first
    assert "float32" in caption.inner_text()
    for name, value in (("type", "float64"), ("device", "cpu")):
        seen.page.locator(f"select[name={name}]").select_option(value)
    chapter.locator(".views details").evaluate_all("folded => folded.forEach(each => (each.open = true))")
    chapter.locator(".views label:visible", has_text="size").first.click()
    caption.get_by_text("float64").wait_for()
    seen.page.wait_for_function(DRAWN, timeout=600_000)
    assert "float64" in caption.inner_text()
    sentences = chapter.locator(".findings li:visible").all_inner_texts()
    assert any(re.match(r"At \d+ in float64\sthe .*CPU is ", text) for text in sentences), sentences
    assert not [text for text in sentences if "of the GPU" in text]
    over_size = seen.page.locator(".panel-of-over-sizes figure:visible figcaption")
    assert over_size.inner_text().startswith("float64 on the CPU")
    legend = chapter.locator("figure:visible .role-legend-label text").all_text_contents()
    assert "packed" in legend and "cublaslt" not in legend
    seen.page.evaluate(OPEN_ALL)
    table = chapter.locator("table.data:visible").first
    assert "float64" in table.locator("caption").inner_text()
    assert "cublas" not in table.locator("thead th:visible").all_inner_texts()
    assert seen.page.locator(".views label", has_text="pitch").is_hidden()
    assert seen.troubles == []
    seen.page.locator("select[name=device]").select_option("")
    ranks = seen.page.locator("section[aria-labelledby=ranks]")
    ranks.locator(".views label", has_text="reduction over ranks").first.click()
    ranks.locator(".view:not([hidden]) .panel:not([hidden]) details.table").first.wait_for()
    seen.page.evaluate(OPEN_ALL)
    regions = seen.page.locator(".view:not([hidden])").get_by_role("region", name="Scaling over ranks", exact=True)
    scaling = regions.locator("table:visible").first
    assert scaling.locator("tbody tr:visible").count()
    dtype = scaling.evaluate("table => table.closest('.panel').dataset.dtype")
    assert dtype == "float64", "tables follow the type, too"
    again = visit(Path(seen.url.removeprefix("file://")))
    again.page.goto(seen.page.url)
    assert again.page.locator("select[name=type]").input_value() == "float64"


@pytest.mark.slow
def test_a_comparison_sorts_and_has_no_serious_fault(visit, tmp_path):
    evil = "</script><script>alert(1)</script>"
    points = [product("cublas", n) for n in (64, 128, 256)]
    noise = [1 + 0.001 * i for i in range(12)]
    files = []
    for i, (name, factors) in enumerate((("a", (1.0, 1.0, 1.0)), ("b", (1.0, 2.0, 0.5)))):
        (tmp_path / name).mkdir()
        rows = [took(point, [factor * each for each in noise]) for point, factor in zip(points, factors, strict=True)]
        rows += controls(i)
        files.append(timings.write(tmp_path / name / f"{name}.h5", {evil: rows}, {"hpcmm": evil + name}))
    found = compare.compare(*map(store.read, files))
    comparison.build(found, *files, "kernel", tmp_path / "compare.html")
    seen = visit(tmp_path / "compare.html", offline=True)
    seen.draw_all()
    assert seen.page.locator(".chart svg").count() == 1
    assert seen.page.locator("nav .state").all_inner_texts() == ["1 slower", "1 faster"]
    changes, table = seen.page.locator("table.data").all()
    assert column(changes, 1) == ["slower", "faster"]
    assert column(table, 1) == ["slower", "faster", "same"]
    table.locator("thead th", has_text="Speed").locator("button").click()
    assert column(table, 9) == ["0.500×", "1.00×", "2.00×"]
    assert seen.troubles == [] and seen.requests == [seen.url] and faults_of_view(seen.page) == []


def test_text_from_a_file_is_never_executed(visit, tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    rows = [took(product("cublas", n), 1e-3) for n in (64, 128, 256)]
    omitted = [{"sweep": evil, "variant": evil, "ranks": 1, "reason": evil}]
    path = timings.write(tmp_path / "timings.h5", {f"../{evil}": rows}, {"host": evil, "arguments": [evil]}, omitted)
    seen = visit(report.build(path, tmp_path / "results")[0], offline=True)
    seen.draw_all()
    assert seen.troubles == [] and seen.requests == [seen.url]
    assert seen.page.get_by_text("<script>alert(1)</script>").count() >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["history", "check"])
def test_a_sheet_draws_its_figures_and_has_no_serious_fault(visit, tmp_path, kind):
    target = tmp_path / "page.html"
    if kind == "history":
        paths = [test_history.night(tmp_path, i, 1, {70: 1.5 if i > 1 else 1.0}) for i in range(4)]
        report_history.build(history.history({path.name: store.read(path) for path in paths}), target)
    else:
        path = test_check.run(tmp_path, 1, slow={1: 1.5}, link={2: 1.5})
        columns = store.read(path)
        report_check.build(check.check(columns), columns, path.name, target)
    seen = visit(target, offline=True)
    seen.draw_all()
    assert seen.page.locator(".chart svg").count() == {"history": 1, "check": 5}[kind]
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 1280
    assert seen.troubles == [] and seen.requests == [seen.url] and faults_of_view(seen.page) == []


@pytest.mark.slow
def test_of_many_switches_most_are_folded_and_still_choose(tmp_path, visit):
    def rows(n: int) -> list:
        return [took(product(name, size), 1e-3) for name in ("naive", "cublas") for size in (n, 2 * n)]

    path = timings.write(tmp_path / "timings.h5", {f"size_{i:02}": rows(64 + i) for i in range(12)})
    report.build(path, tmp_path)
    page = visit(tmp_path / "report.html").page
    switches = page.locator("fieldset.views").first.locator("label")
    shown = [each for each in switches.all() if each.is_visible()]
    assert switches.count() == 12 and len(shown) == 8
    page.locator("fieldset.views summary").first.click()
    switches.last.locator("input").check()
    chosen = switches.last.locator("input").get_attribute("value")
    page.wait_for_function(f"!document.getElementById('{chosen}').hidden")
