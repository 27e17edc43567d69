"""A plain notebook becomes a page: what `book/_ext/portable.py` makes of each part of one."""

import json
from pathlib import Path

import portable
import pytest
from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.utils import new_document

from llmcourse.model import ops
from llmcourse_classroom.listing import listing

ROOT = Path(__file__).parents[2]
KEYS = {"https://a.org/1": "one2020", "https://b.org/2": "two2021"}
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


def markdown(source):
    return {"cell_type": "markdown", "id": "m", "metadata": {}, "source": source}


def code(source, **metadata):
    return {"cell_type": "code", "id": "c", "metadata": metadata, "source": source}


def page_of(*cells):
    notebook = {"cells": [markdown("# 19 Title\n\nText."), *cells]}
    return portable.made_page(notebook, KEYS, "4", ROOT / "chapters")["cells"]


def text_of(source):
    return page_of(markdown(source))[1]["source"]


def test_the_strip_stands_under_the_title_and_the_notebook_stays_as_it_is():
    assert page_of()[0]["source"] == "# 19 Title\n\n```{phases} 4\n```\n\nText."
    notebook = {"cells": [markdown("# 19 T"), markdown("([One, 2020](https://a.org/1))")]}
    before = json.dumps(notebook)
    portable.made_page(notebook, KEYS, "4", ROOT)
    assert json.dumps(notebook) == before
    found = portable.addresses("@a{one,\n  url = {https://a.org/1},\n}\n@b{two,\n  x = {y},\n}\n")
    assert found == {"https://a.org/1": "one", "../book/bibliography.md#two": "two"}


ONE = "[One, 2020](https://a.org/1)"
CITATIONS = {f"a ({ONE}).": "a {cite:p}`one2020`."}
CITATIONS |= {f"({ONE}; [Two and B, 2021](https://b.org/2))": "{cite:p}`one2020,two2021`"}
CITATIONS |= {"[One et al. (2020)](https://a.org/1) say": "{cite:t}`one2020` say"}
CITATIONS |= {"[the paper](https://a.org/1)": None, "([other](https://c.org))": None}
CITATIONS |= {f"({ONE}; [other](https://c.org))": None, f"`({ONE})`": None}
CITATIONS |= {f"```\n({ONE})\n```": None, "[chapter 18](18_backpropagation.ipynb)": None}
CITATIONS |= {"Figure 19.2, which nobody drew, and (19.3)": None}


@pytest.mark.parametrize(("plain", "made"), CITATIONS.items())
def test_citations(plain, made):
    assert text_of(plain) == (made or plain)


def test_equations_boxes_and_captions_are_labelled_and_linked():
    made = text_of("$$ a = b \\tag{19.1} $$\n\nBy (19.1), not (19.2), in `(19.1)`.")
    assert made == "$$ a = b $$ (eq-19-1)\n\nBy {eq}`eq-19-1`, not (19.2), in `(19.1)`."
    cells = page_of(markdown("By (19.1)."), markdown("$$\na\n\\tag{19.1}\n$$"))
    assert cells[1]["source"] == "By {eq}`eq-19-1`."
    assert cells[2]["source"] == "$$\na $$ (eq-19-1)"
    made = text_of(f'> **Popular account: "so".** No.\n>\n> More ({ONE}).\n\nX')
    head = '```{admonition} Popular account: "so"\n:class: errata\n'
    assert made == f"{head}No.\n\nMore {{cite:p}}`one2020`.\n```\n\nX"
    assert text_of("> Said somebody.") == "> Said somebody."
    assert text_of("> **A?** b\n\n> **C.** d").count("```{admonition}") == 2
    assert "{admonition} A?\n" in text_of("> **A?** b")
    shown, alt = "plt.show()", {"image": {"alt": "Falls."}}
    caption = markdown(f"**Figure 19.1.** What\nto see ({ONE}).\n\nIn Figure 19.1.")
    cells = page_of(code(shown, mystnb=alt), caption)
    figure = {"name": "fig-19-1", "caption": "What to see {cite:p}`one2020`."}
    assert cells[1]["metadata"]["mystnb"] == alt | {"figure": figure}
    assert cells[2]["source"] == "In {numref}`fig-19-1`."
    # a cell that held only a caption is gone
    cells = page_of(code(shown), markdown("**Figure 19.1.** See."), markdown("Next."))
    assert [cell["source"] for cell in cells[1:]] == [shown, "Next."]


def test_listings_follow_the_cells_that_show_them_the_plain_ones_too():
    setup = code("from llmcourse.model import attention as forms, ops\n%config x = 1")
    made = page_of(setup, code("show(ops.linear_backward)"), code("show(forms.attention)"))
    assert made[2]["metadata"]["tags"] == made[4]["metadata"]["tags"] == ["remove-cell"]
    told = "{literalinclude} ../llmcourse/model/ops.py\n:pyobject: linear_backward\n"
    assert made[3]["source"] == f"```{told}```"
    assert "attention/dense.py\n:pyobject: attention\n" in made[5]["source"]
    names = "from llmcourse import model\nfrom llmcourse.model.attention import flash_backward"
    setup = code(names)
    part = code('show(flash_backward, start="for queries", end="dq_BHTK[")')
    made = page_of(setup, part, code("show(model.KVCache.append)"))
    assert ":start-at: for queries\n:end-at: dq_BHTK[\n:dedent:\n" in made[3]["source"]
    assert ":pyobject: KVCache.append\n:dedent:\n" in made[5]["source"]
    setup = code("from llmcourse.model import ops")
    made = page_of(setup, code("show(ops.linear_backward, plain=True)"))
    source, name = listing(ops.linear_backward, plain=True)
    assert made[3]["source"] == f"````{{plain-listing}} {name}\n{source}\n````"
    assert made[2]["metadata"]["tags"] == ["remove-cell"]


def test_assertions_are_counted_in_folds_and_properties_and_functions_found():
    source = "# @title Checks\nfor n in (1, 2):\n    assert n\nassert n == 2"
    several = code(source, tags=["checks"])
    one = code("%config x = 1\nassert 1 < 2", tags=["checks"])
    made = page_of(code("assert 2 < 3\nprint('assert')"), several, one)
    assert made[0]["source"].endswith("Text.\n\n```{checked} 4\n```")
    assert made[1]["metadata"] == {}
    prompts = [cell["metadata"]["mystnb"]["code_prompt_show"] for cell in made[2:]]
    assert prompts == ["Show 2 checks", "Show 1 check"]
    assert "checked" not in page_of(code("print(1)"))[0]["source"]
    thing = portable.source_of("llmcourse.data.Batches.num_windows")
    assert thing.__qualname__ == "Batches.num_windows"
    assert portable.file_of("llmcourse.data.Batches.num_windows").name == "order.py"
    thing = portable.source_of("llmcourse_labs.scale.cost.utilisation")
    assert thing.__module__ == "llmcourse_labs.scale.cost.utilisation"
    assert portable.source_of(f"{thing.__module__}.{thing.__qualname__}") is thing
    with pytest.raises(ModuleNotFoundError):
        page_of(code("from llmcourse.model import ops"), code("show(ops.nothing)"))


TERMS = ("backward pass", "entropy", "gradient", "head", "softmax")
ENTRIES = "\n\n".join(f"{term}\n  What." for term in TERMS)
GLOSSARY = f"# Glossary\n\n```{{glossary}}\n{ENTRIES}\n```\n"


def linked(rst):
    document = new_document("page", get_default_settings(Parser))
    Parser().parse(rst, document)
    portable.link_in_sections(document, portable.terms_of(GLOSSARY), "page")
    return [
        [node.astext() for node in section.findall(portable.addnodes.pending_xref)]
        for section in document.findall(nodes.section)
        if not list(section.findall(nodes.section, include_self=False))
    ]


def test_the_first_plain_use_in_each_section_is_linked_and_nothing_inside_of_other_things():
    assert linked(
        "Page\n====\n\nA\n-\n\nA gradient, gradients and ``softmax``. Entropies of a backward pass."
        "\n\nB\n-\n\nGradients; the backward passes, a pass backward.\n"
    ) == [["gradient", "Entropies", "backward pass"], ["Gradients", "backward passes"]]
    assert linked("Page\n====\n\nA\n-\n\nUse your head.  A *head* is this.\n") == [["head"]]
    words = "`an entropy <x.html>`_ cross-entropy reentropy"
    assert linked(f"Page\n====\n\nEntropy\n-------\n\n{words}\n") == [[]]
    page = "Page\n====\n\nA\n-\n\n.. container:: phase-strip\n\n   gradient\n\nA gradient.\n"
    assert linked(page) == [["gradient"]]
    assert linked(page.replace("A gradient.", "Nothing.")) == [[]]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_link_to_a_paper_is_in_the_bibliography(chapter):
    """A citation whose address the bibliography lacks would stay a bare link on the page."""
    keys = portable.addresses((ROOT / "book" / "references.bib").read_text(encoding="utf8"))
    for cell in json.loads(chapter.read_text(encoding="utf8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for found in portable.GROUP.finditer("".join(cell["source"])):
                links = portable.ONE_LINK.finditer(found[1])
                urls = [link["text_url"] for link in links if link["text"][-4:].isdigit()]
                assert set(urls) <= keys.keys()
