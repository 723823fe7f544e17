"""The book: notebooks as they were executed, what holds them to their sources, and their pages in a browser."""

from __future__ import annotations

import base64
import datetime
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from PIL import Image, ImageDraw

from kernelpath import cli
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev import books
from kernelpath.show import book, colab, execute, graded, results, site
from kernelpath.show import notebook as notebook_functions
from kernelpath.show.results import Collection, Published, PublishedFault
from kernelpath.show.weeks import Week
from kernelpath.verdict import Report, Verdict, encode
from tests.browser import LOW_CONTRAST, Browser

FOLDED = "<details><summary>After your prediction</summary>\n\nIt is 4.\n\n</details>"
SOURCE = (
    "%%cuda add.cu\n__global__ void add(const float* x, float* out) {\n    out[threadIdx.x] = x[threadIdx.x] + 1.0f;\n}"
)
LONG = "x" * 300
TABLE = (
    '<div class="kp"><table><tr><td><pre><i>    </i>indented</pre></td><td>'
    + "</td><td>".join(["wide"] * 60)
    + "</td></tr></table></div>"
)


PUBLISHED = Published(
    compilers={"Triton": "3.9.0", "the CuTe DSL": "4.8.1"},
    collections=(Collection("owner/name", 40 * "c", "2026-01-01", 9, "Triton"),),
    findings=tuple(
        PublishedFault(
            kind, "owner/name", "src/add.cu", 7, ("add", "copy"), "grid 1, block 32", f"<{kind}>", "Not `x < n`."
        )
        for kind in ("race", "wrong values")
    ),
)


def picture(width: int = 1000) -> str:
    """A drawing of few colours on a clear ground, as base64."""
    image = Image.new("RGBA", (width, 300), (0, 0, 0, 0))
    ImageDraw.Draw(image).ellipse((20, 20, 280, 280), fill=(193, 39, 45, 255), outline=(51, 51, 51, 255), width=7)
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def notebook(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    notebook_node: nbformat.NotebookNode = nbformat.v4.new_notebook(cells=list(cells))
    notebook_node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    for place, cell in enumerate(notebook_node.cells):
        cell["id"] = f"cell-{place}"
    return notebook_node


def markdown(source: str) -> nbformat.NotebookNode:
    cell: nbformat.NotebookNode = nbformat.v4.new_markdown_cell(source)
    return cell


def code(source: str, *outputs: nbformat.NotebookNode) -> nbformat.NotebookNode:
    cell: nbformat.NotebookNode = nbformat.v4.new_code_cell(source, outputs=list(outputs))
    return cell


def stream(text: str) -> nbformat.NotebookNode:
    output: nbformat.NotebookNode = nbformat.v4.new_output("stream", name="stdout", text=text)
    return output


def display_output(**data: str) -> nbformat.NotebookNode:
    data_by_type = {kind.replace("_", "/"): text for kind, text in data.items()}
    output: nbformat.NotebookNode = nbformat.v4.new_output("display_data", data=data_by_type)
    return output


def executed(notebook_node: nbformat.NotebookNode) -> nbformat.NotebookNode:
    for place, cell in enumerate((cell for cell in notebook_node.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = place
    return notebook_node


@pytest.fixture
def course(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two weeks and a glossary, and their book."""
    monkeypatch.chdir(doubling.root)
    first = notebook(
        markdown("# Week 1 · Threads\n\n**The question of this week:** who am I, and is $n < 2^{10}$?"),
        markdown(
            "## 1 · Who\n\nSee [next week](week02_memory.ipynb). `$HOME` is code.\n\n$$y_i = \\frac{x_i}{n}$$\n\n"
            "**Predict.**"
        ),
        code(SOURCE),
        code("notebook.hold(guess, 4, 'sectors')"),
        markdown(FOLDED),
    )
    second = notebook(markdown("# Week 2 · Memory"), code("1"), markdown("## 1 · Banks"), code("plots.banks(lanes)"))
    for name, notebook_node in (("week01_threads", first), ("week02_memory", second)):
        write(doubling.root / f"notebooks/1_architecture/{name}.ipynb", notebook_node)
    style, table = (
        display_output(text_html="<style>.kp { color: red }</style>", text_plain=""),
        display_output(text_html=TABLE, text_plain=""),
    )
    second.cells[3].outputs = [display_output(image_png=picture(1463), text_plain="")]
    first.cells[2].outputs = [style]
    first.cells[3].outputs = [
        stream("found "),
        stream(f"4 sectors {LONG}\n"),
        table,
        display_output(image_png=picture(), text_plain=""),
        display_output(
            text_html='<pre style="x"><span style="color: #008000">yes</span></pre>', text_plain="\x1b[32myes\x1b[0m"
        ),
    ]
    for name, notebook_node in (("week01_threads", first), ("week02_memory", second)):
        write(doubling.root / f"book/1_architecture/{name}.ipynb", book.clean_executed(executed(notebook_node)))
    (doubling.root / "results").mkdir(exist_ok=True)
    (doubling.root / "results/published.json").write_text(encode(PUBLISHED))
    (doubling.root / book.GLOSSARY).write_text(
        "# Glossary\n\n## sector\n\n32 bytes, `of` memory.\n\n## warp\n\n32 threads.\n"
    )
    return doubling.root


def write(path: Path, notebook_node: nbformat.NotebookNode) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook_node, path)


def test_the_book_is_open_joined_and_small(course: Path) -> None:
    page = nbformat.read(course / "book/1_architecture/week01_threads.ipynb", as_version=4)
    assert page.cells[4].source == FOLDED.replace("<details>", "<details open>")
    joined, _, figure, _ = page.cells[3].outputs
    assert joined.text.startswith("found 4 sectors xxx")
    reduced, original = (
        Image.open(io.BytesIO(base64.b64decode(encoded))) for encoded in (figure.data["image/png"], picture())
    )
    assert reduced.mode == "P"
    assert reduced.size == original.size
    colours = [reduced.convert("RGB").getpixel(place) for place in ((150, 150), (1, 1), (150, 22))]
    assert colours == [(193, 39, 45), (255, 255, 255), (51, 51, 51)]
    assert len(figure.data["image/png"]) < len(picture())


INVARIANTS = (
    books.notebooks_have_no_outputs,
    books.answers_are_withheld,
    books.the_book_is_current,
    books.the_glossary_is_in_order,
)


def findings(root: Path) -> list[str]:
    return [finding for invariant in INVARIANTS for finding in invariant(root)]


def test_a_course_in_order_has_no_findings(course: Path) -> None:
    assert findings(course) == []


def edit(change: Callable[[nbformat.NotebookNode], None]) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        notebook_node = nbformat.read(path, as_version=4)
        change(notebook_node)
        nbformat.write(notebook_node, path)

    return changed


def with_text(source: str) -> Callable[[Path], None]:
    return edit(lambda notebook_node: notebook_node.cells[4].update(source=source))


NOTEBOOK, BOOK = "notebooks/1_architecture/week01_threads.ipynb", "book/1_architecture/week01_threads.ipynb"


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        (
            NOTEBOOK,
            edit(lambda notebook_node: notebook_node.cells[2].update(execution_count=1)),
            [f"{NOTEBOOK} has outputs"],
        ),
        (
            NOTEBOOK,
            edit(lambda notebook_node: notebook_node.cells[3].outputs.append(stream("4"))),
            [f"{NOTEBOOK} has outputs"],
        ),
        (
            NOTEBOOK,
            with_text("It is 4."),
            [f'{NOTEBOOK}: "It is 4.…" follows a prediction', f"{BOOK} was made from an older version"],
        ),
        (NOTEBOOK, with_text("## 2 · More"), [f"{BOOK} was made from an older version of the notebook"]),
        (NOTEBOOK, with_text("**Predict.** And now?"), [f"{BOOK} was made from an older version of the notebook"]),
        (
            BOOK,
            edit(lambda notebook_node: notebook_node.cells[3].update(execution_count=1)),
            [f"{BOOK} was not executed"],
        ),
        (BOOK, Path.unlink, [f"{BOOK} is missing; python -m kernelpath.show.execute {NOTEBOOK}"]),
        (
            "book/1_architecture/week09_old.ipynb",
            Path.touch,
            ["book/1_architecture/week09_old.ipynb belongs to no notebook"],
        ),
        (
            book.GLOSSARY,
            lambda path: path.write_text("## b\n\nB.\n\n## a\n\nA.\n"),
            [f"{book.GLOSSARY}: a comes after b; list each term once, in order"],
        ),
        (book.GLOSSARY, lambda path: path.write_text("## b\n\n"), [f"{book.GLOSSARY}: b is not explained"]),
    ],
)
def test_disorder_is_reported(course: Path, file: str, change: Callable[[Path], None], expected: list[str]) -> None:
    change(course / file)
    messages = findings(course)
    assert [message[: len(start)] for message, start in zip(messages, expected, strict=True)] == expected


def test_no_cell_of_the_book_shows_a_report_twice() -> None:
    copies = book.executed_notebooks(Path(__file__).parents[1])
    assert [path.name for path in copies if '"Report(exercise=' in path.read_text(encoding="utf-8")] == []


def test_an_error_in_the_book_is_found(course: Path) -> None:
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[])
    edit(lambda notebook_node: notebook_node.cells[3].outputs.append(error))(course / BOOK)
    assert [message.partition(";")[0] for message in findings(course)] == [f"{BOOK} ends in an error"]


def test_without_a_book_nothing_is_held_against_it(course: Path) -> None:
    for path in book.executed_notebooks(course):
        path.unlink()
    for folder in (course / "book/1_architecture", course / "book"):
        folder.rmdir()
    assert findings(course) == []


@pytest.fixture
def pages(course: Path, tmp_path: Path) -> Path:
    return site.write(course, tmp_path / "pages").parent


def test_pages_lead_from_week_to_week_and_to_the_index(pages: Path) -> None:
    weeks = ["week01_threads.html", "week02_memory.html"]
    assert sorted(path.name for path in pages.iterdir()) == sorted(
        [*site.PAGES, "search.js", "pictures", *weeks, "week01_threads.ipynb", "week02_memory.ipynb"]
    )
    first, second, index, glossary = ((pages / name).read_text() for name in (*weeks, "index.html", "glossary.html"))
    assert '<a rel="next" href="week02_memory.html">Week 2 · Memory →</a>' in first
    assert 'rel="prev"' not in first
    assert '<a rel="prev" href="week01_threads.html">← Week 1 · Threads</a>' in second
    assert 'rel="next"' not in second
    assert 'See <a href="week02_memory.html">next week</a>' in first
    assert '<span class="ansi-green-fg">yes</span>' in first  # not rich's green, which is for light pages
    assert "Phase 1 · Architecture" in index
    assert "<code>double</code>" in index
    assert re.findall(r'<dt id="([^"]+)">', glossary) == ["sector", "warp"]
    assert 'Shown as a picture in <a href="week01_threads.html#section-1">Week 1 · Threads: 1 · Who</a>' in glossary
    (thumbnail,) = re.findall('<img src="([^"]+)"', glossary)
    with Image.open(pages / thumbnail) as small:
        assert small.size == (480, 144)


def test_each_week_leads_to_its_notebook_in_colab(course: Path, pages: Path, tmp_path: Path) -> None:
    assert '<a href="week01_threads.ipynb" download>' in (pages / "week01_threads.html").read_text()
    site.write(course, tmp_path / "public", colab.Address.of("owner/name@public"))
    page = (tmp_path / "public/week01_threads.html").read_text()
    target = "https://colab.research.google.com/github/owner/name/blob/public/week01_threads.ipynb"
    assert f'<a href="{target}">open in Colab</a>' in page
    published = nbformat.read(tmp_path / "public/week01_threads.ipynb", as_version=4)
    nbformat.validate(published)
    original = nbformat.read(course / NOTEBOOK, as_version=4)
    assert [cell.source for cell in published.cells[1:]] == [cell.source for cell in original.cells]
    assert "git+https://github.com/owner/name'\n" in published.cells[0].source


@pytest.mark.parametrize("on_colab", [True, False])
def test_the_first_cell_installs_the_course_on_colab_and_nowhere_else(
    on_colab: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    class Shell:
        def run_line_magic(self, name: str, line: str) -> None:
            done.append(f"{name} {line}")

        def system(self, line: str) -> None:
            done.append(line)

    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    if on_colab:
        monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    cell = TransformerManager().transform_cell(  # type: ignore[no-untyped-call]
        colab.install_cell(colab.Address("owner/name"))
    )
    exec(cell, {"get_ipython": Shell})
    repository = "git+https://github.com/owner/name"
    packages = f"'warpcheck @ {repository}#subdirectory=warpcheck' 'kernelpath[all] @ {repository}'"
    expected = [f"pip install -q {packages}", f"kp new {colab.FOLDER}", f"cd -q {colab.FOLDER}"]
    assert done == (expected if on_colab else [])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("owner/name", colab.Address("owner/name", "gh-pages")),
        ("https://github.com/owner/name.git@docs/v1", colab.Address("owner/name", "docs/v1")),
        ("name", None),
        ("owner/name @x", None),
        ("https://elsewhere.org/owner/name", None),
    ],
)
def test_an_address_is_a_repository_on_github(text: str, address: colab.Address | None) -> None:
    if address is None:
        with pytest.raises(ValueError, match="write OWNER/REPO"):
            colab.Address.of(text)
    else:
        assert colab.Address.of(text) == address


def test_formulas_are_mathml_and_code_is_left_alone(pages: Path) -> None:
    first, index = ((pages / name).read_text() for name in ("week01_threads.html", "index.html"))
    assert "<mfrac>" in first
    assert "<code>$HOME</code>" in first
    assert re.search("<msup><mn>2</mn>.*Who am I|Who am I.*<msup><mn>2</mn>", index, re.DOTALL)
    assert "xformula" not in first + index


def test_cuda_cells_are_highlighted_and_styles_of_cells_left_out(pages: Path) -> None:
    first = (pages / "week01_threads.html").read_text()
    assert re.search(r'<span class="kr?">__global__</span>', first)
    assert "color: red" not in first
    assert "<i>    </i>indented" in first, "of what an output shows, no space is lost"


def test_faults_are_told_by_kind_with_their_source(pages: Path) -> None:
    faults = (pages / "faults.html").read_text()
    assert re.findall('<h2 id="([^"]+)">', faults) == ["race", "wrong-values"]
    assert f"https://github.com/owner/name/blob/{40 * 'c'}/src/add.cu#L7" in faults
    assert "compiled by Triton 3.9.0, and the CuTe DSL 4.8.1." in faults
    assert '<td class="nowrap">Triton</td><td class="nowrap"><code>cccccccccc</code>' in faults
    assert '<td class="number">9</td><td class="number">2</td>' in faults, "kernels run, and those with a finding"
    assert '<pre class="message">&lt;race&gt;</pre>\n<p class="text">Not <code>x &lt; n</code>.</p>' in faults
    assert '"faults.html#wrong-values","add","Faults"' in (pages / "search.js").read_text()


def test_the_findings_name_kernels_and_lines_of_their_collections() -> None:
    published = results.published(Path(__file__).parents[1])
    for finding in published.findings:
        assert len(published.collection(finding).commit) == 40
        assert finding.kernels
        assert finding.line > 0
    assert {
        collection.repository: published.faulty(collection) < collection.kernels for collection in published.collections
    } == {
        "NVIDIA/cuda-samples": True,
        "karpathy/llm.c": True,
        "siboehm/SGEMM_CUDA": True,
        "triton-lang/triton": True,
        "linkedin/Liger-Kernel": True,
        "unslothai/unsloth": True,
        "fla-org/flash-linear-attention": True,
        "NVIDIA/cutlass": True,
        "pytorch/ao": True,
        "NX-AI/mlstm_kernels": True,
    }
    assert {collection.compiler for collection in published.collections} == {"NVRTC", "Triton", "CuTe DSL"}


def test_the_command_writes_the_pages(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["book"])
    assert exit_.value.code == 0
    assert "next: open .kernelpath/book/index.html in a browser" in capsys.readouterr().out
    assert (course / ".kernelpath/book/week02_memory.html").is_file()


def test_without_a_book_the_command_says_what_writes_one(
    doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(doubling.root)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["book"])
    assert exit_.value.code == 2
    assert "python -m kernelpath.show.execute" in capsys.readouterr().err


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(pages: Path, browser: Browser, width: int, scheme: str) -> None:
    browser.events.clear()
    path = pages / "week01_threads.html"
    browser.open(path, width, scheme)
    assert browser.run("document.title") == "Week 1 · Threads · kernelpath"
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    wider = "[...document.querySelectorAll('.output_subarea, .kp, pre')].filter(e => e.scrollWidth > e.clientWidth)"
    scrolled = ["pre", "kp"]  # the code of the cell and the table; the long line that it printed is wrapped
    named = browser.run(f"{wider}.map(e => e.className.split(' ')[0] || 'pre')")
    assert named == {390: scrolled, 1280: scrolled[1:]}[width]
    assert browser.run("document.querySelector('.text_cell details').open")
    image_query = "(() => { const i = document.querySelector('img'); return [i.naturalWidth, i.alt] })()"
    assert browser.run(image_query) == [1000, "Figure: 1 · Who"]
    ink = "getComputedStyle(document.querySelector('.highlight .kr, .highlight .kt')).color"
    assert browser.run(ink) != browser.run("getComputedStyle(document.body).color")
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    requested = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requested if not url.startswith("data:")] == [path.as_uri(), (pages / "search.js").as_uri()]
    assert [e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    assert browser.run(LOW_CONTRAST) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["results.html", "verdicts.html", "faults.html", "glossary.html"])
def test_pages_about_the_course_fit_a_phone_and_can_be_read(
    pages: Path, browser: Browser, name: str, scheme: str
) -> None:
    browser.open(pages / name, 390, scheme)
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    assert browser.run(LOW_CONTRAST) == []
    browser.run("document.querySelector('main p').style.color = '#888'")
    assert bool(browser.run(LOW_CONTRAST)) == (scheme == "light"), "gray on white is too faint"


def test_a_wide_picture_is_scrolled_on_a_phone_and_leads_to_its_section(pages: Path, browser: Browser) -> None:
    browser.open(pages / "gallery.html", 390, "light")
    assert browser.run("document.querySelector('img').clientWidth") == 1463 // 2
    assert browser.run("document.documentElement.scrollWidth") == 390
    browser.click("figcaption a")
    browser.wait_for("document.readyState == 'complete' && location.hash != ''")
    assert browser.run("location.pathname.split('/').pop() + location.hash") == "week02_memory.html#section-1"
    assert browser.run("document.querySelector(location.hash).innerText") == "1 · Banks"


def test_the_search_finds_terms_sections_and_exercises(pages: Path, browser: Browser) -> None:
    browser.open(pages / "week01_threads.html", 390, "light")
    browser.press("/", 191, "/")
    assert browser.run("document.activeElement.type + document.activeElement.value") == "search"
    results_query = "[...document.querySelectorAll('#found li')].map(e => e.innerText)"
    searches = {
        "SECT": ["sector Glossary"],
        "memory": ["Week 2 · Memory Phase 1 · Architecture", "sector Glossary"],
        "next week": ["1 · Who Week 1 · Threads"],
        "doub": ["double Week 1 · Threads, Python"],
        "emory": ["nothing found"],
    }
    for text, expected in searches.items():
        browser.run("document.querySelector('search input').value = ''")
        browser.send("Input.insertText", text=text)
        assert browser.run(results_query)[: len(expected)] == expected
    browser.press("Escape", 27)
    assert browser.run(results_query) == []
    browser.send("Input.insertText", text="warp")
    browser.press("ArrowDown", 40)
    assert browser.run("document.activeElement.getAttribute('href')") == "glossary.html#warp"


def test_by_keyboard(pages: Path, browser: Browser) -> None:
    browser.open(pages / "week01_threads.html", 390, "light")
    reached = [pressed_tab(browser) for _ in range(15)]
    search = ""
    first = ["Skip to the text", *site.PAGES.values(), search, "Week 2 · Memory →"]
    assert reached[: len(first)] == first
    assert "On this page" in reached
    assert "next week" in reached


def pressed_tab(browser: Browser) -> str:
    """The text of what has the focus after a press of the key."""
    browser.press("Tab", 9)
    text: str = browser.run("document.activeElement.innerText.trim()")
    return text


def test_the_text_around_unchanged_code_is_renewed_without_a_run() -> None:
    before = notebook(markdown("Old."), code("1 + 1", display_output(text_plain="2")), code("x = 3"))
    after = notebook(markdown("New."), code("1 + 1"), markdown(FOLDED), code("x = 3"))
    for cell, name in zip(after.cells, ("cell-0", "cell-1", "cell-9", "cell-2"), strict=True):
        cell["id"] = name
    updated = book.update_text(after, executed(before))
    assert updated is not None
    assert book.find_fault(after, updated) == ""
    assert [output.data["text/plain"] for output in updated.cells[1].outputs] == ["2"]
    after.cells[1].source = "1 + 2"
    assert book.update_text(after, executed(before)) is None


H200 = "NVIDIA H200"


@pytest.fixture
def recorded(course: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The course with pages that an H200 made, and a run without a GPU that shows something else in every cell."""
    for path in book.executed_notebooks(course):
        page = nbformat.read(path, as_version=4)
        write(path, book.clean_executed(page, H200))
    entry = results.NotebookRecording(H200, "2026-01-01", {"sectors": 4})
    (course / "results/notebooks.json").write_text(encode({"week01/sectors": entry}))

    def execute_without_a_gpu(path: Path, **_: object) -> nbformat.NotebookNode:
        page = nbformat.read(path, as_version=4)
        for cell in page.cells:
            if cell.cell_type == "code":
                cell.outputs = [stream("a laptop shows this\n")]
        return executed(page)

    monkeypatch.setattr(execute, "execute", execute_without_a_gpu)
    monkeypatch.setattr(execute, "gpu_name", lambda: "")
    return course


def run_execute(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        execute.main(arguments)
    return int(exit_.value.code or 0)


def test_without_a_gpu_unchanged_cells_keep_what_a_gpu_showed(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = nbformat.read(recorded / BOOK, as_version=4)
    edit(lambda notebook_node: notebook_node.cells[3].update(source="notebook.hold(guess, 5, 'sectors')"))(
        recorded / NOTEBOOK
    )
    edit(lambda notebook_node: notebook_node.cells.append(code("2")))(recorded / NOTEBOOK)
    assert run_execute(str(recorded / NOTEBOOK)) == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    assert after.cells[2].outputs == before.cells[2].outputs
    assert [after.cells[place].outputs[0].text for place in (3, 5)] == ["a laptop shows this\n"] * 2
    assert book.machine(after) == H200
    assert [book.machine(after.cells[place]) for place in (2, 3, 5)] == ["", book.NO_GPU, book.NO_GPU]
    message = (
        "there is no GPU here, so 1 unchanged cells keep what NVIDIA H200 showed, and 2 show what this machine does"
    )
    assert message in capsys.readouterr().out
    assert findings(recorded) == []
    assert run_execute(str(recorded / NOTEBOOK)) == 0, "once more changes nothing"
    assert nbformat.read(recorded / BOOK, as_version=4).cells[2].outputs == before.cells[2].outputs


@pytest.mark.parametrize(
    ("source", "depends"),
    [
        ("notebook.ask('coalescing', 0, ...)", False),
        ("notebook.ask('coalescing', 0, ...)\nnotebook.ask('coalescing', 1, None)", False),
        ("my_answer = ...\n\nnotebook.ask('coalescing', 0, my_answer)", False),
        ("notebook.steps('transpose')", False),
        (
            "my_prediction = ...\nnotebook.hold(my_prediction, answers.padded_work(33, 32), 'times the arithmetic')",
            False,
        ),
        ("my_work = {8: ..., 16: ...}\nnotebook.hold(my_work[8], answers.padded_work(33, 8) - 1, 'times')", False),
        ("notebook.show({'tile of 32': {'work': answers.padded_work(33, 32)}}, 'tile')", False),
        # A number from another cell may have been measured.
        ("notebook.hold(my_prediction, measured / 2, 'ms')", True),
        ("notebook.hold(..., notebook.count(naive, x, y).totals.divergent_branches, 'divergent branches')", True),
        ("notebook.ask('coalescing', 0, ...)\nnotebook.check('coalescing')", True),
        ("notebook.ask('coalescing', 0, ...)\nnotebook.times('week01/copy', race)", True),
        ("notebook.ask('coalescing', 0, notebook.on_gpu('week01/copy', lambda: 4))", True),
        ("notebook.setup()", True),
        ("if True:\n    notebook.ask('coalescing', 0, ...)", True),
        ("times[0] = 1\nnotebook.show(times, 'ms')", True),
        ("notebook = torch\nnotebook.ask('coalescing', 0, ...)", True),
        ("ask('coalescing', 0, ...)", True),
        ("%%cuda add.cu\n__global__ void add() {}", True),
        ("", False),
    ],
)
def test_only_cells_of_literals_and_arithmetic_are_the_same_on_every_machine(source: str, depends: bool) -> None:
    assert book.depends_on_machine(source) is depends


def test_every_cell_with_questions_is_the_same_on_every_machine() -> None:
    assert set(notebook_functions.__all__) >= book.SAME_ON_EVERY_MACHINE
    for path in execute.all_notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and "notebook.ask(" in cell.source:
                assert not book.depends_on_machine(cell.source), f"{path.name}: {cell.source}"


def test_without_a_gpu_questions_are_new_and_measurements_are_kept(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wording of a question changes without a change of its cell."""
    question = code("notebook.ask('double', 0, ...)")
    question["id"] = "question"
    edit(lambda notebook_node: notebook_node.cells.append(question))(recorded / NOTEBOOK)
    before = nbformat.read(recorded / BOOK, as_version=4)
    before.cells.append(question.copy())
    before.cells[-1].outputs = [stream("the old wording\n")]
    write(recorded / BOOK, executed(before))
    assert run_execute(str(recorded / NOTEBOOK)) == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    assert [after.cells[place].outputs for place in (2, 3)] == [before.cells[place].outputs for place in (2, 3)]
    assert after.cells[5].outputs[0].text == "a laptop shows this\n"
    assert (book.machine(after), book.machine(after.cells[5])) == (H200, "")
    message = "so 2 unchanged cells keep what NVIDIA H200 showed, and 1 show what this machine does"
    assert message in capsys.readouterr().out
    assert findings(recorded) == []


def run_and_show_sources(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Path | None]]:
    """Replace the run of cells by one in which each shows its source; return what runs, and the folder of reports."""
    runs: list[tuple[list[str], Path | None]] = []

    def run(
        notebook_node: nbformat.NotebookNode, folder: Path, *, tree: str = "expert", reports: Path | None = None
    ) -> nbformat.NotebookNode:
        runs.append(([cell.source for cell in notebook_node.cells], reports))
        for cell in notebook_node.cells:
            cell.outputs = [stream(f"shows {cell.source}\n")]
        return notebook_node

    monkeypatch.setattr(execute, "run", run)
    return runs


def test_questions_are_renewed_without_a_run_of_other_cells(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = code("notebook.ask('double', 0, ...)")
    question["id"] = "question"
    edit(lambda notebook_node: notebook_node.cells.append(question))(recorded / NOTEBOOK)
    before = nbformat.read(recorded / BOOK, as_version=4)
    before.cells.append(question.copy())
    before.cells[-1].outputs = [stream("the old wording\n")]
    write(recorded / BOOK, executed(before))
    runs = run_and_show_sources(monkeypatch)
    edit(lambda notebook_node: notebook_node.cells[0].update(source="# Week 1 · Lanes"))(recorded / NOTEBOOK)
    assert run_execute("--questions", str(recorded / NOTEBOOK)) == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    assert runs == [(["from kernelpath.show import notebook\n\nnotebook.setup()", question.source], None)]
    assert after.cells[0].source == "# Week 1 · Lanes"
    assert after.cells[5].outputs[0].text == f"shows {question.source}\n"
    assert after.cells[5].metadata == before.cells[5].metadata
    assert [after.cells[place].outputs for place in (2, 3)] == [before.cells[place].outputs for place in (2, 3)]
    assert (after.metadata, findings(recorded)) == (before.metadata, [])
    edit(lambda notebook_node: notebook_node.cells[3].update(source="notebook.hold(guess, 5, 'sectors')"))(
        recorded / NOTEBOOK
    )
    assert run_execute("--questions", str(recorded / NOTEBOOK)) == 1, "changed code has to be executed"


def test_chosen_cells_are_added_to_a_page_without_a_run_of_the_others(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = run_and_show_sources(monkeypatch)
    before = nbformat.read(recorded / BOOK, as_version=4)
    added = code("x + 1")
    added["id"] = "tiles-00"
    edit(lambda notebook_node: notebook_node.cells.insert(3, added))(recorded / NOTEBOOK)
    setup = before.cells[2]["id"]
    assert run_execute(str(recorded / NOTEBOOK), "--cells", setup, "tiles-*") == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    assert runs == [([before.cells[2].source, "x + 1"], None)]
    # The first of the two cells is unchanged, and keeps what the GPU showed.
    assert [after.cells[place].outputs for place in (2, 4)] == [before.cells[place].outputs for place in (2, 3)]
    assert after.cells[3].outputs[0].text == "shows x + 1\n"
    assert [book.machine(after.cells[place]) for place in (2, 3, 4)] == ["", book.NO_GPU, ""]
    assert (after.metadata, findings(recorded)) == (before.metadata, [])

    # What a run without a GPU showed is not kept.
    after.cells[3].outputs = []
    write(recorded / BOOK, after)
    assert run_execute(str(recorded / NOTEBOOK), "--cells", "tiles-*") == 0
    assert nbformat.read(recorded / BOOK, as_version=4).cells[3].outputs[0].text == "shows x + 1\n"

    edit(lambda notebook_node: notebook_node.cells[4].update(source="notebook.hold(guess, 5, 'sectors')"))(
        recorded / NOTEBOOK
    )
    assert run_execute(str(recorded / NOTEBOOK), "--cells", "tiles-*") == 1, "another cell has changed"


def test_chosen_cells_run_on_no_other_gpu_than_the_page(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = run_and_show_sources(monkeypatch)
    monkeypatch.setattr(execute, "gpu_name", lambda: "NVIDIA B200")
    assert run_execute(str(recorded / NOTEBOOK), "--cells", "*") == 2
    assert runs == []


def test_reports_are_shown_again_without_a_grading(
    recorded: Path, doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = run_and_show_sources(monkeypatch)
    saved: list[tuple[str, Report]] = []
    monkeypatch.setattr(graded, "save_report", lambda item, report, folder: saved.append((item.name, report)))
    check, check_and_plot = (
        code('report = notebook.check("double")'),
        code('notebook.check("double")\nplots.banks(lanes)'),
    )
    check["id"], check_and_plot["id"] = "check", "both"
    edit(lambda notebook_node: notebook_node.cells.extend([check, check_and_plot]))(recorded / NOTEBOOK)
    page = nbformat.read(recorded / BOOK, as_version=4)
    page.cells += [check.copy(), check_and_plot.copy()]
    for cell in page.cells[-2:]:
        cell.outputs = [stream("the old explanation\n")]
    page.metadata["kernelpath"]["date"] = "2026-11-28"
    write(recorded / BOOK, executed(page))

    # There is a report on another GPU.
    report = Report(doubling.path_id, "", "", H200, 1, Verdict.PASSED, stars=3)
    monkeypatch.setattr(results, "machines", lambda root: [results.Machine("NVIDIA B200", reports=(report,))])
    assert run_execute(str(recorded / NOTEBOOK), "--reports") == 0
    assert (runs, saved) == ([], [])
    nothing = "double: results/ has no report on NVIDIA H200 as new as the page, so its cell stays as it is"
    assert nothing in capsys.readouterr().out

    def machine(date: str) -> results.Machine:
        return results.Machine(H200, reports=(report,), report_dates={report.exercise: date})

    monkeypatch.setattr(results, "machines", lambda root: [machine("2026-11-27")])
    assert run_execute(str(recorded / NOTEBOOK), "--reports") == 0
    assert (runs, saved) == ([], [])
    assert nothing in capsys.readouterr().out

    monkeypatch.setattr(results, "machines", lambda root: [machine("2026-11-28")])
    assert run_execute(str(recorded / NOTEBOOK), "--reports") == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    ((sources, folder),) = runs
    assert (sources[1:], folder is not None, saved) == ([check.source], True, [("double", report)])
    assert [after.cells[place].outputs[0].text for place in (5, 6)] == [
        f"shows {check.source}\n",
        "the old explanation\n",
    ]
    assert [after.cells[place].outputs for place in (2, 3)] == [page.cells[place].outputs for place in (2, 3)]
    assert (after.metadata, findings(recorded)) == (page.metadata, [])


def test_on_a_gpu_everything_is_new(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "gpu_name", lambda: "NVIDIA B200")
    monkeypatch.setattr("kernelpath.packages.versions", lambda: {"python": "3.12.3", "torch": "2.11.0"})
    assert run_execute(str(recorded / NOTEBOOK)) == 0
    after = nbformat.read(recorded / BOOK, as_version=4)
    assert {cell.outputs[0].text for cell in after.cells if cell.cell_type == "code"} == {"a laptop shows this\n"}
    assert (book.machine(after), book.machine(after.cells[2])) == ("NVIDIA B200", "")
    today = datetime.date.today().isoformat()
    assert book.provenance(after) == f"Executed on one NVIDIA B200 on {today} with torch 2.11.0."
    monkeypatch.setattr(execute, "gpu_name", lambda: "")
    assert run_execute(str(recorded / NOTEBOOK)) == 0
    provenance = book.provenance(nbformat.read(recorded / BOOK, as_version=4))
    assert provenance == book.provenance(after), "a run without a GPU keeps the outputs, and says what made them"


@pytest.mark.parametrize(("gpu", "shows"), [("", "no GPU"), ("NVIDIA T4", "NVIDIA T4")])
def test_a_page_that_lost_what_a_gpu_showed_is_found(recorded: Path, gpu: str, shows: str) -> None:
    assert findings(recorded) == []
    page = nbformat.read(recorded / BOOK, as_version=4)
    write(recorded / BOOK, book.clean_executed(page, gpu))
    (finding,) = findings(recorded)
    assert finding.startswith(
        f"{BOOK} was executed with {shows}, and notebooks.json has its week's numbers of {H200}; "
    )
    assert f"git checkout -- {BOOK}" in finding


# Pages whose measurements are all in tests.notebooks.OUTSTANDING, or that measure nothing on a GPU.
NOT_YET_ON_A_GPU = {"week31_blackwell.ipynb"}


def test_the_pages_of_the_course_say_what_made_them() -> None:
    root = Path(__file__).parents[1]
    machines = {path.name: book.machine(nbformat.read(path, as_version=4)) for path in book.executed_notebooks(root)}
    assert {name for name, gpu in machines.items() if gpu != H200} == NOT_YET_ON_A_GPU


def test_code_that_measures_and_draws_is_folded_and_kernels_are_open() -> None:
    sources = {
        "harness": "notebook.hold(guess, 5, 'sectors')",
        "kernel": "%%cuda copy.cu\n__global__ void copy(const float* x, float* out) {}",
        "triton": "@triton.jit\ndef copy(x, out): ...\n\n\nplots.bars(times)",
        "plain": "total = sum(range(32))",
    }
    cells = [nbformat.v4.new_code_cell(source, id=name, execution_count=1) for name, source in sources.items()]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Week 1"), *cells])
    page = str(Week(Path("1_architecture/week01.ipynb"), notebook, ()).body)
    assert page.count("<details>") == page.count("</details>") == 1
    folded = page.partition("<details>")[2].partition("</details>")[0]
    assert "hold" in folded
    assert "copy" not in folded
    assert "range" not in folded


def test_each_week_lists_all_weeks_and_its_own_sections(pages: Path) -> None:
    (sidebar,) = re.findall('<nav class="sidebar".*?</nav>', (pages / "week01_threads.html").read_text(), re.DOTALL)
    assert '<a href="week01_threads.html" aria-current="page">Week 1 · Threads</a>' in sidebar
    assert '<a href="week02_memory.html">Week 2 · Memory</a>' in sidebar
    assert '<a href="#section-1">1 · Who</a>' in sidebar


def test_a_page_names_no_folder_of_the_machine_that_executed_it() -> None:
    warning = "/env/lib/python3.12/site-packages/torch/cuda/__init__.py:180: UserWarning: text\n"
    html = nbformat.v4.new_output("display_data", {"text/html": f"<pre>{warning}</pre>", "text/plain": warning})
    notebook = nbformat.v4.new_notebook(
        cells=[code("1", stream(warning), html)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    (cell,) = book.clean_executed(notebook).cells
    display_output = "torch/cuda/__init__.py:180: UserWarning: text\n"
    assert cell.outputs[0].text == display_output
    assert cell.outputs[1].data == {"text/html": f"<pre>{display_output}</pre>", "text/plain": display_output}
