"""What makes pages light: formulas set at build time, rules and programs that are needed."""

import json
import re

import formulas
import needed
import pytest
import widget_programs

from llmcourse_classroom.widget import styles
from llmcourse_classroom.widgets import Bowl
from tests.book.test_pages import CHAPTERS, HTML, own_pages, parsed


def test_a_rule_stays_if_all_that_one_of_its_selectors_names_is_there(tmp_path):
    (tmp_path / "page.html").write_text('<p class="a b" id="c">x</p>', encoding="utf8")
    words = needed.words_of(tmp_path.glob("*.html"), ["one.classList.add('later')"])
    assert {"a", "b", "c", "later"} <= words
    css = """@charset "utf-8"; p { color: red } /* no matter */ .a.b, .gone { top:
      0 } .a .gone { top: 1px } #c:not(.gone), :is(.x, .y) > i { top: 2px } .later\\:b { top: 3px }
    @media print { .gone { top: 4px } .b { top: 5px } } @media print { .gone { top: 6px } }
    @font-face { font-family: X; src: url("data:a;b,c") }"""
    assert needed.needed(css, words).split("\n") == [
        '@charset "utf-8";',
        "p{color: red}",
        ".a.b{top: 0}",
        "#c:not(.gone),:is(.x, .y) > i{top: 2px}",
        "@media print{.b{top: 5px}}",
        '@font-face{font-family: X; src: url("data:a;b,c")}',
    ]
    css = 'a{--x: url("data:a;b}");--y: 1; top: var(--x)} b{--z: 2; --w: 3}'
    kept = 'a{--x: url("data:a;b}"); top: var(--x)} b{ --w: 3}'
    assert needed.without_unused_properties(css, ["style.setProperty('--w', 1)"]) == kept
    with pytest.raises(ValueError, match="a stylesheet has a mistake"):
        needed.needed("p { } }", words)


def test_a_formula_is_letters_and_mathml_and_a_mistake_is_told():
    typesetter = formulas.Typesetter()
    made = typesetter.html(r"\sqrt{\frac{x_1}{2}} \le \mathcal{O}(1)", display=True)
    assert "<msqrt>" in made
    assert 'display="true"' in made
    assert typesetter.html("x", display=False) is typesetter.html("x", display=False)
    for wrong, told in ((r"\frac{a", "Missing close brace"), (r"\notacommand", "Undefined")):
        with pytest.raises(ValueError, match=f"{told}.* in the formula"):
            typesetter.html(wrong, display=False)
    css = typesetter.css()
    wanted = formulas.letters(css)
    assert {chr(each) for each in wanted["MJXTEX-C"]} == {"O"}
    assert {"x"} == {chr(each) for each in wanted["MJXTEX-I"]}
    whole = formulas.with_fonts(css)
    faces = re.findall(r"@font-face \{ font-family: ([\w-]+);", whole)
    assert {"MJXTEX", "MJXTEX-I", "MJXTEX-C"} <= set(faces) < {*wanted, "MJXTEX-A"}
    assert len(whole) < 60_000
    assert "url(" not in re.sub(r'url\("data:font/woff2;base64,', "", whole)


def test_every_formula_of_the_book_is_set_and_read():
    total = 0
    for path in own_pages():
        text = path.read_text(encoding="utf8")
        marks = ('class="(?:[^"]* )?math"', "<mjx-container", "<math ")
        counts = [len(re.findall(mark, text)) for mark in marks]
        assert len(set(counts)) == 1, path.name
        total += counts[0]
    assert total > 1_500
    style = (HTML / "_static" / "book.css").read_text(encoding="utf8")
    used = set(
        re.findall(r'class="(mjx-c[0-9A-F]+)', "".join(p.read_text("utf8") for p in own_pages()))
    )
    assert len(used) > 100
    assert [name for name in sorted(used) if f".{name}" not in style] == []


def test_a_program_is_written_once_and_a_page_keeps_the_state(tmp_path):
    kept, context = widget_programs.Programs(), {"body": Bowl(steps=7).page() + Bowl().page()}
    kept.take(None, "chapters/03_downhill", "", context, None)
    ((name, text),) = kept.texts.items()
    states = re.findall(r'id="(lc-bowl[^"]*)-state" data-program="([^"]*)">(.*?)<', context["body"])
    assert [address for _, address, _ in states] == [f"../_static/widgets/{name}.js"] * 2
    assert [json.loads(state)["steps"] for _, _, state in states] == [7, Bowl().steps]
    assert all(f'class="lc-host" id="{host}"' in context["body"] for host, _, _ in states)
    assert "function" not in context["body"]
    assert "export default" in text


def test_every_widget_of_the_book_has_its_program_and_style():
    style = (HTML / "_static" / "book.css").read_text(encoding="utf8")
    addresses = set()
    for path in own_pages():
        text = path.read_text(encoding="utf8")
        found = re.findall(r'data-program="([^"]*)"', text)
        assert len(found) == text.count('class="lc-host"'), path.name
        addresses |= {(path.parent / address).resolve() for address in found}
    assert len(addresses) > 50
    named = set(re.findall(r"\.(lc-[\w-]+) \{", styles()))
    for address in addresses:
        program = address.read_text(encoding="utf8")
        assert f'coursePrograms ??= {{}})["{address.stem}"] = "' in program, address.name
        used = named & set(re.findall(r"lc-[\w-]+", program))
        assert [each for each in used if f".{each}" not in style] == [], address.name


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_weighs_less_than_a_megabyte_before_any_click(chapter):
    """Unpacked: itself, and what it loads; of figures, the first."""
    path = HTML / "chapters" / f"{chapter.stem}.html"
    page = parsed(path)
    figures = [one["src"] for one in page.images if one.get("loading") == "lazy"]
    loaded = {(path.parent / each).resolve() for each in page.loads if each not in figures[1:]}
    sizes = {each.name: each.stat().st_size for each in [path, *loaded] if each.is_file()}
    assert len(sizes) > 4
    assert sum(sizes.values()) < 1_000_000, sizes
