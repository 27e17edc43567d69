"""What the extensions give a reader: listings with links, numbered equations, light assets."""

import json
import re

import assets
import portable
import pytest
import reading
from docutils import nodes
from docutils.utils import new_document
from PIL import Image

from tools.build import build_book
from tools.pages import setup_cells

HTML, CHAPTERS = build_book.BUILD / "html", build_book.chapters()


@pytest.fixture(scope="module", autouse=True)
def _current_book():
    if not build_book.is_built():
        pytest.fail("the pages in _build are missing or older than their sources: run make book")


def page(name):
    return (HTML / f"{name}.html").read_text(encoding="utf8")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_listing_leads_to_the_package_and_back(chapter):
    cells = json.loads(chapter.read_text(encoding="utf8"))["cells"]
    shown = [portable.source_of(path) for _, path, _ in portable.shown(cells)]
    html = page(f"chapters/{chapter.stem}")
    assert html.count('class="listing-source"') == len(shown)
    for thing in shown:
        public = f"{thing.__module__}.{thing.__qualname__}"
        if "._" in public:
            continue
        link = re.search(rf'href="\.\./book/api/([\w/]+)\.html#{re.escape(public)}"', html)
        assert link, public
        assert f"chapters/{chapter.stem}.html" in page(f"book/api/{link[1]}")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_equations_and_figures_are_numbered_within_the_chapter(chapter):
    html = page(f"chapters/{chapter.stem}")
    assert "findfont" not in html, "a font was missing"
    body = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    displayed = len(re.findall(r'<div class="math"', body))
    numbers = re.findall(r'class="eqno">\(([\d.]+)\)', body)
    own = int(chapter.stem[:2])
    assert numbers == [f"{own}.{n}" for n in range(1, displayed + 1)]
    figures = re.findall(r'class="caption-number">Figure ([\d.]+) ', body)
    assert figures == [f"{own}.{n}" for n in range(1, len(figures) + 1)]


def kept_together(body):
    context = {"body": body}
    reading.keep_together(None, "page", "", context, None)
    return context["body"]


def test_formulas_flags_and_numbers_keep_what_belongs_to_them():
    formula = '<span class="math"><mjx-container><b>x</b>\n</mjx-container></span>'
    flag = '<code><span class="pre">--seed</span> <span class="pre">3</span></code>'
    marked = flag.replace('"pre">--', '"pre unbroken">--')
    kept = f'<p><span class="unbroken">{formula},</span> and {formula} or{marked}</p>'
    assert kept_together(f"<p>{formula}, and {formula} or{flag}</p>") == kept
    tree = new_document("page")
    tree += nodes.paragraph("", "", nodes.Text("10 % of 5 pages, "), nodes.literal("", "7 % 2"))
    reading.keep_percent(None, tree)
    assert tree.astext() == "10\u00a0% of 5 pages, 7 % 2"


def test_a_long_name_in_a_table_may_break_and_one_in_prose_not():
    name = '<code><span class="pre">gradient_accumulation.steps</span></code>'
    short = '<code><span class="pre">model.Block</span></code>'
    broken = name.replace("_", "_<wbr>").replace(".", ".<wbr>")
    table = f"<p>{name}</p><table><tr><td>%s</td><td>{short}</td></tr></table>"
    assert kept_together(table % name) == table % broken


def test_the_page_carries_previews_of_the_terms_and_chapters_that_it_links():
    html = page("chapters/16_cross_entropy")
    kept = json.loads(re.search(r'id="course-previews">(.*?)</script>', html)[1])
    title, explained, note = kept["../book/glossary.html#term-perplexity"]
    assert (title, note) == ("", "")
    assert len(explained) > 10
    title, question, note = kept["02_step_by_hand.html"]
    assert title == "02 One training step by hand"
    assert question.startswith("Which of fifteen weights have to change")
    assert re.fullmatch(r"First lap, \d+ minutes", note)
    body = html.partition('id="course-previews"')[0]
    article = body[body.index("<article") :]
    internal = 'class="reference internal" href="'
    linked = re.findall(rf'{internal}([^"]*glossary\.html#term-[^"]+)', body)
    assert {*linked, *re.findall(rf'{internal}(\d\d_\w+\.html)"', article)} == set(kept)


def test_a_stylesheet_keeps_its_addresses_and_loses_the_icon_font(tmp_path):
    (tmp_path / "styles").mkdir()
    icons = "@font-face{font-family:Font Awesome\\ 6 Free;src:url(../x.woff2)}"
    icons += ".fa-bars:before{content:'x'}"
    own, rest = ".a{background:url(%s)}", ".c{background:url('data:image/png;base64,x')}"
    (tmp_path / "styles" / "a.css").write_text(icons + own % "../b.png" + rest)
    assert assets.stylesheet(tmp_path, "styles/a.css") == own % "styles/../b.png" + rest


def test_figures_shrink_and_keep_their_size_and_colours(tmp_path):
    path, image = tmp_path / "a.png", Image.effect_noise((200, 100), 40).convert("RGB")
    image.paste((31, 119, 180), (0, 0, 100, 100))
    image.save(path, dpi=(144, 144))
    before = path.stat().st_size
    assets.shrink_figures(tmp_path)
    assert path.stat().st_size < before
    with Image.open(path) as small:
        assert (small.size, round(small.info["dpi"][0])) == ((200, 100), 144)
        seen = small.convert("RGB").getpixel((20, 20))
    assert max(abs(a - b) for a, b in zip(seen, (31, 119, 180), strict=True)) <= 3
    assets.shrink_figures(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_pages_load_one_stylesheet_and_the_icon_font_is_gone():
    for name in ("book/glossary", "chapters/01_whole_run"):
        (sheet,) = re.findall(r'<link rel="stylesheet"[^>]*href="([^"]+)"', page(name))
        assert sheet == "../_static/book.css"
    assert not list(HTML.rglob("fontawesome*"))
    assert "tex-chtml" not in page("book/glossary")


def test_every_chapter_can_be_launched_from_the_one_address():
    owner = setup_cells.repository().removeprefix("https://github.com/")
    for chapter in CHAPTERS:
        html, path = page(f"chapters/{chapter.stem}"), f"chapters/{chapter.name}"
        assert f"colab.research.google.com/github/{owner}/blob/main/{path}" in html
        assert f"mybinder.org/v2/gh/{owner}/main?urlpath=lab/tree/{path}" in html


def test_every_icon_in_the_pages_is_drawn():
    sheet = (HTML / "_static/icons.css").read_text()
    drawn, used = set(re.findall(r"\.(fa-[a-z-]+)\b[^{}]*\{ --icon", sheet)), set()
    icons = re.compile(r'<(?:i|span) class="([^"]*\bfa[sb]? [^"]*|[^"]*fa-[^"]*)"')
    for path in HTML.rglob("*.html"):
        for names in icons.findall(path.read_text()):
            used |= {name for name in names.split() if name.startswith("fa-")}
    assert used - drawn <= {"fa-solid", "fa-brands", "fa-lg"}


def test_the_licences_page_names_what_is_carried():
    html = page("book/licences")
    for name in ("sphinx-mathjax-offline", "sphinx-book-theme", "pydata-sphinx-theme", "myst-nb"):
        assert name in html
        licence = HTML / "_static" / "licences" / f"{name}.txt"
        assert name == "sphinx-mathjax-offline" or licence.stat().st_size > 500
    assert "see its licence file" not in html
