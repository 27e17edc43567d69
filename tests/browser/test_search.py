"""The search while somebody types: which pages a query finds, and how the field behaves."""

import gzip
import re

import pytest
from playwright.sync_api import expect

from tests.browser import visits

FIRST = {
    "book/api/optim": ["clip_by_global_norm"],
    "chapters/03_downhill": ["momentum"],
    "chapters/05_tokens": ["what is a token"],
    "chapters/11_attention": ["attention", "atention", "KV cache"],
    "chapters/13_norm_rope_silu": ["RoPE"],
    "chapters/14_mixture_of_experts": ["mixture of experts"],
    "chapters/16_cross_entropy": ["perplexity", "cross-entropy", "crossentropy"],
    "chapters/21_pipelines": ["pipeline bubble"],
    "chapters/22_collectives": ["ring all-reduce"],
    "chapters/24_zero": ["ZeRO"],
    "chapters/25_optimizers": ["gradient clipping"],
    "chapters/26_learning_rate": ["learning rate", "lerning rate", "warm-up", "warmup"],
    "chapters/30_checkpoints": ["checkpoint"],
    "chapters/32_batch_size": ["batch size"],
    "chapters/33_epochs": ["overfit"],
    "chapters/34_scaling_laws": ["scaling laws", "chinchilla"],
    "chapters/39_why_16384": ["why 16384 GPUs"],
    "chapters/41_preferences": ["reward model"],
}
"""Where queries lead when Enter is pressed."""
AMONG_THREE = {"book/glossary": ["causal mask"], "chapters/16_cross_entropy": ["softmax", "sofmax"]}
AMONG_THREE |= {"chapters/18_backpropagation": ["backprop"]}
AMONG_THREE |= {"chapters/27_mixed_precision": ["bf16"], "chapters/28_stability": ["loss spike"]}
AMONG_THREE |= {"exercises/11_attention": ["exercises attention"]}
"""Where there is more than one good answer."""
MOST_BYTES = 300_000
"""Of the index, compressed: it is loaded once, when somebody begins to search."""

RANK = """async (queries) => {
  const { open, rank, askedOf } = window.courseSearch;
  await new Promise((done) => {
    const script = document.createElement("script");
    script.src = "_static/search_index.js";
    script.addEventListener("load", done);
    document.head.append(script);
  });
  const book = open(window.SEARCH_INDEX);
  return queries.map((query) => rank(book, query).slice(0, 3).map(({ page }) => page.name));
}"""
SMALL = {
    "pages": [
        ["chapters/01", "01 The loss", 0],
        ["book/glossary", "Glossary", 2],
        ["exercises/01", "01 Exercises: the loss", 4],
    ],
    "headings": [[0, "soft", "Softmax by hand"], [1, "term-loss", "loss"]],
    "words": "entropy filled rare softmax the",
    "places": "001011021 011 021 001 001011021",
}


@pytest.fixture(scope="module")
def found(book, chromium):
    queries = [query for queries in (FIRST | AMONG_THREE).values() for query in queries]
    queries += FIRST["chapters/16_cross_entropy"]
    with visits.opened(chromium, (visits.HTML / "search.html").as_uri()) as (page, _):
        return dict(zip(queries, page.evaluate(RANK, queries), strict=True))


@pytest.mark.parametrize("page", FIRST)
def test_the_first_page_found(found, page):
    assert {query: found[query][0] for query in FIRST[page]} == dict.fromkeys(FIRST[page], page)


@pytest.mark.parametrize("page", AMONG_THREE)
def test_a_page_among_the_first_three(found, page):
    assert [query for query in AMONG_THREE[page] if page not in found[query]] == []


def ranked(chromium, *queries):
    script = (visits.build_book.ROOT / "book" / "_static" / "search_rank.js").read_text("utf8")
    page = chromium.new_page()
    page.evaluate(script)
    call = """([small, queries]) => {
      const { open, rank } = window.courseSearch;
      const named = ({ page, heading }) => [page.name, heading?.anchor];
      return queries.map((query) => rank(open(small), query).map(named));
    }"""
    answers = page.evaluate(call, [SMALL, list(queries)])
    page.close()
    return answers


def test_titles_come_first_and_chapters_before_glossary_and_exercises(chromium):
    loss, heading, everywhere = ranked(chromium, "loss", "softmax hand", "entropy")
    assert [name for name, _ in loss] == ["chapters/01", "book/glossary", "exercises/01"]
    assert heading == [["chapters/01", "soft"]]
    assert [name for name, _ in everywhere] == ["chapters/01", "book/glossary", "exercises/01"]


def test_one_letter_is_forgiven_and_two_are_not(chromium):
    wrong = ["sofmax", "softtmax", "sofdmax", "sotfmax", "softm", "sofdm"]
    for query, answer in zip(wrong, ranked(chromium, *wrong), strict=True):
        assert [name for name, _ in answer] == ["chapters/01"], query
    exercise, nothing = [["exercises/01", None]], []
    assert ranked(chromium, "rale", "rar", "raree") == [exercise] * 3
    assert ranked(chromium, "sodfmax", "oftmaxx", "", "?") == [nothing] * 4


def test_the_index_is_loaded_when_the_field_has_the_focus_and_is_small(book, chromium):
    with visits.opened(chromium, (visits.HTML / "book/map.html").as_uri()) as (page, visit):
        assert [a for a in visit.requests if "search_" in a] == []
        page.keyboard.press("/")
        page.wait_for_function("window.SEARCH_INDEX")
        page.keyboard.type("perplexity")
        page.locator(".course-hit mark").first.wait_for()
        asked = [a.rpartition("_static/")[2] for a in visit.requests if "search_" in a]
        assert asked[0] == "search_index.js"
        assert "search_texts/chapters/16_cross_entropy.js" in asked
        assert visit.errors == []
    index = (visits.HTML / "_static" / "search_index.js").read_bytes()
    assert len(gzip.compress(index, 6)) < MOST_BYTES
    assert not (visits.HTML / "searchindex.js").exists()


@pytest.mark.parametrize("width", [1440, 360])
def test_the_field_is_used_with_keys(book, chromium, width):
    with visits.opened(chromium, (visits.HTML / "book/map.html").as_uri()) as (page, visit):
        page.set_viewport_size({"width": width, "height": 740})
        page.keyboard.press("Control+k")
        field, options = page.get_by_role("combobox"), page.get_by_role("option")
        expect(field).to_be_focused()
        assert field.get_attribute("aria-expanded") == "false"
        page.keyboard.type("ring all-reduce")
        expect(page.locator("dialog [role=status]")).to_have_text(re.compile(r"^\d+ pages"))
        assert field.get_attribute("aria-expanded") == "true"
        assert 3 < options.count() <= 8
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator(".course-hit mark").first.wait_for()
        assert visit.errors == []
        if width == 1440:  # axe asks for stylesheets, which a file may not
            assert visits.axe_in_both_themes(page) == []
        chosen = page.locator("[role=option][aria-selected=true]")
        last = options.count() - 1
        for key, place in (("Down", 1), ("Up", 0), ("Up", last), ("Down", 0)):
            page.keyboard.press(f"Arrow{key}")
            assert chosen.get_attribute("id") == options.nth(place).get_attribute("id")
            assert field.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
        page.keyboard.press("Escape")
        expect(field).to_be_hidden()
        page.wait_for_timeout(200)  # the focus goes back to where it was
        page.keyboard.press("/")
        expect(field).to_be_focused()
        page.keyboard.press("Enter")  # of an empty field leads nowhere
        page.keyboard.type("ring all-reduce")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/chapters/22_collectives\.html"))


def test_the_field_says_what_it_looked_for_instead(book, chromium):
    with visits.opened(chromium, (visits.HTML / "book/map.html").as_uri()) as (page, _):
        said = page.locator("dialog [role=status]")
        page.keyboard.press("/")
        page.keyboard.type("sofmax")
        expect(said).to_contain_text("for “softmax” · all of them")
        page.get_by_role("combobox").fill("qqqq attention")
        expect(said).to_contain_text("“qqqq” stands on no page")
        page.get_by_role("combobox").fill("qqqq")
        expect(said).to_have_text("No pages")
        assert page.get_by_role("option").count() == 0


def test_the_page_of_all_results_finds_prose_and_code_from_a_file(book, chromium):
    words = {
        "perplexity": "chapters/16_cross_entropy.html",
        "clip_by_global_norm": "book/api/optim.html#llmcourse.optim.adamw.clip_by_global_norm",
        "bits per byte": "chapters/43_benchmarks.html",
    }
    address = f"{(visits.HTML / 'search.html').as_uri()}?q=perplexity"
    with visits.opened(chromium, address) as (page, visit):
        for word, leads in words.items():
            page.locator("#search-results input").fill(word)
            first = page.locator("#search-results .course-hit").first
            first.locator("mark").first.wait_for()
            assert word in " ".join(first.locator("mark").all_text_contents()).lower()
            assert first.get_attribute("href").startswith(f"./{leads}")
        assert page.get_by_role("option").count() > 8
        assert visit.errors == []


def test_without_scripts_there_are_an_index_and_a_map(book, chromium):
    address = (visits.HTML / "search.html").as_uri()
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    main = page.locator("#search-results")
    assert main.get_by_role("link", name="map of all chapters").is_visible()
    page.get_by_role("link", name="Index of all names").click()
    assert page.url.endswith("genindex.html")
    context.close()
