"""The built book: every chapter ran, nothing comes from other servers, every link arrives."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

import moved
import pytest
import yaml
from jupyter_cache import get_cache

from tools.build import build_book

HTML, CHAPTERS = build_book.BUILD / "html", build_book.chapters()
TITLE = yaml.safe_load((build_book.ROOT / "_config.yml").read_text(encoding="utf8"))["title"]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
VOID = {"img", "link", "meta", "input", "br", "hr", "source", "wbr", "col"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.loads, self.links, self.ids, self.images, self.classes = [], [], set(), [], []
        self.attributes = {}
        self.title = ""
        self._inside = None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.attributes.setdefault(tag, attrs)
        self._inside = tag if tag not in VOID else self._inside
        if attrs.get("id"):
            self.ids.add(attrs["id"])
        self.classes.append(attrs.get("class") or "")
        if tag in LOADED and attrs.get(LOADED[tag]):
            self.loads.append(attrs[LOADED[tag]])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon"):
            self.loads.append(attrs["href"])
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "img":
            self.images.append(attrs)

    def handle_data(self, data):
        if self._inside == "title":
            self.title += data
            self._inside = None


@cache
def parsed(path):
    page = Page()
    page.feed(path.read_text(encoding="utf8"))
    return page


def pages():
    return sorted(path for path in HTML.rglob("*.html") if "_static" not in path.parts)


def own_pages():
    return [HTML / f"{name}.html" for name in build_book.documents()]


@pytest.fixture(scope="module", autouse=True)
def _current_book():
    if not build_book.is_built():
        pytest.fail("the pages in _build are missing or older than their sources: run make book")


each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)


@each_chapter
def test_every_cell_of_a_chapter_passed_and_outputs_reveal_nothing_of_the_machine(chapter):
    store = get_cache(str(build_book.CACHE))
    cells = store.get_cache_bundle(store.match_cache_file(str(chapter)).pk).nb.cells
    shown = str([cell.outputs for cell in cells])
    for private in (str(build_book.ROOT), str(Path.home()), "Warning"):
        assert private not in shown
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        failed = [output for output in cell.outputs if output.output_type == "error"]
        assert not failed or "raises-exception" in cell.metadata.get("tags", [])


def test_every_document_became_a_page_and_the_map_links_all_chapters():
    assert len(own_pages()) > 15
    assert all(path.exists() for path in own_pages())
    assert build_book.INDEX.exists()
    page = parsed(HTML / "book" / "map.html")
    assert page.classes.count("course-map-chapter") == len(CHAPTERS)
    linked = {Path(urlparse(link).path).stem for link in page.links if "chapters/" in link}
    assert linked == {path.stem for path in CHAPTERS}


def test_no_page_loads_anything_from_elsewhere():
    for path in pages():
        for address in parsed(path).loads:
            assert not urlparse(address).netloc, f"{path.name} loads {address}"
            assert urlparse(address).scheme in ("", "data"), f"{path.name} loads {address}"


def test_no_style_or_script_of_ours_loads_anything_from_elsewhere():
    for path in [*HTML.glob("_static/*.css"), *HTML.glob("_static/styles/*.css")]:
        addresses = re.findall(r"(?:url\(|@import)\s*[\"']?(https?:|//)", path.read_text("utf8"))
        assert addresses == [], path.name
    for path in own_pages():
        scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", path.read_text("utf8"), re.DOTALL)
        for script in scripts:
            assert not re.search(r"import\s*\(?\s*[\"']https?:|fetch\(\s*[\"']https?:", script)


def test_everything_that_a_page_loads_is_there_and_nothing_that_sets_formulas():
    for path in pages():
        for address in parsed(path).loads:
            parts = urlparse(address)
            if parts.scheme != "data":
                assert (path.parent / unquote(parts.path)).exists(), f"{path.name}: {address}"
    with_math = [path for path in own_pages() if "<mjx-container" in path.read_text("utf8")]
    assert len(with_math) > len(CHAPTERS) / 2
    assert not list(HTML.rglob("*mathjax*"))
    assert not re.search("mathjax|katex", str([parsed(path).loads for path in pages()]).lower())


def test_links_between_pages_arrive():
    for path in own_pages():
        for address in parsed(path).links:
            parts = urlparse(urljoin(path.as_uri(), address))
            if parts.scheme != "file":
                continue
            target = Path(unquote(parts.path))
            assert target.exists(), f"{path.name} links to {address}"
            if parts.fragment and target.suffix == ".html":
                ids = parsed(target).ids
                assert unquote(parts.fragment) in ids, f"{path.name} links to {address}"


@each_chapter
def test_a_chapter_has_its_strip_and_its_errata(chapter):
    page = parsed(HTML / "chapters" / f"{chapter.stem}.html")
    names = [name.split() for name in page.classes]
    assert sum("lit" in name or "unlit" in name for name in names) == 7
    assert any("lit" in name for name in names)
    assert any("errata" in name for name in names)


def test_images_have_an_alternative_text():
    for path in own_pages():
        for image in parsed(path).images:
            alt = image.get("alt")
            assert alt is not None, f"{path.name}: {image}"
            assert not re.search(r"[0-9a-f]{16}|\.(png|svg|jpe?g)$", alt), f"{path.name}: {alt}"


def test_pages_say_their_language_and_title():
    for path in own_pages():
        page = parsed(path)
        assert page.attributes["html"].get("lang") == "en", path.name
        assert page.title.strip(), path.name
        assert f'name="description" content="{TITLE}: ' in path.read_text("utf8"), path.name
        viewports = re.findall(r"<meta[^>]+viewport[^>]+>", path.read_text("utf8"))
        assert any("width=device-width" in text for text in viewports), path.name


def test_a_letter_above_the_glossary_leads_to_its_first_term():
    text = (HTML / "book" / "glossary.html").read_text(encoding="utf8")
    line = re.search(r'<p class="glossary-letters">(.*?)</p>', text, re.DOTALL)[1]
    first = {}
    for anchor, letter in re.findall(r'<dt id="([^"]+)">(.)', text):
        first.setdefault(letter.upper(), anchor)
    assert re.findall(r'href="#([^"]+)">(.)</a>', line) == [(a, name) for name, a in first.items()]
    assert {"A", "Z"} <= set(first)


def test_the_parser_sees_what_it_should(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        '<html lang="en"><title>A title</title><script src="https://cdn.example/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.example/a.css"><img src="a.png" alt="x.png">'
        '<a id="here" href="other.html#there">x</a>'
    )
    page = parsed(path)
    assert page.loads == ["https://cdn.example/x.js", "//fonts.example/a.css", "a.png"]
    assert all(urlparse(address).netloc for address in page.loads[:2])
    assert page.links == ["other.html#there"]
    assert page.ids == {"here"}
    assert (page.title, page.images[0]["alt"]) == ("A title", "x.png")


@pytest.mark.parametrize("old", moved.MOVED)
def test_an_old_address_leads_to_a_page_of_the_book(old):
    page, to = parsed(HTML / f"{old}.html"), moved.MOVED[old]
    assert page.links == [to]
    assert f'content="0; url={to}"' in (HTML / f"{old}.html").read_text(encoding="utf8")
    assert urljoin(f"{old}.html", to).removesuffix(".html") in build_book.documents()
    assert old not in build_book.documents()
