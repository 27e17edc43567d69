"""The list of pages at the side is Sphinx's own, made from titles alone."""

import io

import sidebar
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

HEADINGS = "\n\nPart\n----\n\nText.\n\nPiece\n~~~~~\n\nText.\n"
PAGES = {
    "index": "Home\n====\n\n.. toctree::\n   :caption: One\n\n   a\n   b\n"
    "\n.. toctree::\n   :hidden:\n\n   A name of its own <c>\n" + HEADINGS,
    "a": "A *word* ``code``\n=================\n\n.. toctree::\n\n   inner\n" + HEADINGS,
    "inner": "Inner\n=====\n" + HEADINGS + "\n.. toctree::\n\n   deep\n",
    "deep": "Deep\n====\n" + HEADINGS,
    "b": "B\n=\n" + HEADINGS + "\n.. py:function:: f(x)\n\n   Text.\n",
    "c": "C\n=\n\nC2\n~~\n\nText.\n\n.. toctree::\n\n   d\n\nC3\n==\n\nText.\n",
    "d": "Text without a title.\n",
}
ASKED = {"maxdepth": 4, "collapse": False, "includehidden": True, "titles_only": True}


def lists_of(folder):
    for name, text in PAGES.items():
        (folder / f"{name}.rst").write_text(text)
    (folder / "conf.py").write_text("extensions = ['sidebar']\n")
    own, ours, dressed, said = {}, {}, {}, io.StringIO()

    def before(_app, page, _template, context, _tree):
        if "toctree" in context:
            own[page] = [context["toctree"](**ASKED), context["toctree"](collapse=False)]

    def after(_app, page, _template, context, _tree):
        if "toctree" in context:
            dressed[page] = context["dressed_list"]() or context["dressed_list"](page)
            ours[page] = [context["toctree"](**ASKED), context["toctree"](collapse=False)]

    with docutils_namespace():
        app = Sphinx(folder, folder, folder / "out", folder / "trees", "html", warning=said)
        others = [(name, {}, "page.html") for name in ("x/1", "x/2", "y/1")]
        app.connect("html-collect-pages", lambda _app: others)
        app.connect("html-page-context", before, priority=100)
        app.connect("html-page-context", after, priority=900)
        app.build()
    return own, ours, dressed


def test_the_list_is_the_one_that_sphinx_makes_and_made_once_from_titles(tmp_path, monkeypatch):
    made, titles_of = [], sidebar.titles_of
    monkeypatch.setattr(sidebar, "titles_of", lambda one: made.append(one) or titles_of(one))
    own, ours, dressed = lists_of(tmp_path)
    assert {*PAGES, "x/1", "x/2", "y/1"} <= set(own)
    assert ours == own
    assert "Inner" in own["index"][0]
    assert "Piece" not in own["index"][0]
    assert "Piece" in own["index"][1]
    assert len(made) == len(PAGES)  # once for each page, not once for each pair of pages
    # pages of a folder that are not in the list share one
    assert dressed["x/1"] == dressed["x/2"] in ("x/1", "x/2")
    assert dressed["y/1"] == "y/1"
    assert {page: dressed[page] for page in PAGES} == {page: page for page in PAGES}
