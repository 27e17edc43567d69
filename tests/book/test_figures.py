"""Figures in both themes, and the fonts: what the book makes of colours and letters."""

import base64
import io
import json
import re
from pathlib import Path

import figures
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import Image

from llmcourse_classroom.look import concept, hues, read_look
from tools.build import build_book
from tools.pages import fonts
from tools.pages import look as style

ROOT = Path(__file__).parents[2]
SVG = (
    '<svg width="72pt" height="36pt" viewBox="0 0 72 36"><path d="M0,0"/>'
    '<path style="fill: {0}; clip-path: url(#p12345abcde)"/>'
    '<use xlink:href="#m0a1b2c3d4e"/>{1}</svg>'
)


def svg(theme, phase, colour, more=""):
    def change(colours):
        return figures.recolour(colours, theme, phase)

    return figures.recoloured_svg(SVG.format(colour, more), change)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("phase", [1, 3, 7])
def test_the_first_colour_becomes_the_hue_of_the_phase_and_the_second_follows(theme, phase):
    first, second = hues("light")[:2]
    made = svg(theme, phase, first.upper()) + svg(theme, phase, second)
    found = re.findall(r"fill: (#\w+);", made)
    assert found == [hues(theme)[phase - 1], hues(theme)[phase % 7]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_concept_has_one_colour_in_every_chapter(theme):
    for name in ("query", "ring", "adam", "checkpoint"):
        made = svg(theme, 1, concept(name)) + svg(theme, 4, concept(name))
        assert re.findall(r"fill: (#\w+);", made) == [concept(name, theme)] * 2


def test_a_path_is_written_in_fewer_letters_and_names_and_places_stay():
    text = '<path id="a1.2345" d="M 233.600351 -7.04 \nL 1.5 20 \nz\n"/><use x="0.98765"/>'
    made = svg("light", 1, "#ffffff", f'{text}<g transform="scale(0.015625)"/>')
    assert '<path id="a1.2345" d="M233.6 -7L1.5 20z"/><use x="0.98765"/>' in made
    assert "scale(0.015625)" in made


def test_a_figure_is_as_large_as_its_place(tmp_path):
    source, target = tmp_path / "a.svg", tmp_path / "b.svg"
    source.write_text(SVG.format("#000000", "").replace("36pt", "36.4pt"))
    figures.write_figure(source, target, "dark", 1)
    width, height = re.findall(r'<svg\b[^>]*?width="(\d+)" height="(\d+)"', target.read_text())[0]
    assert figures.size_of(source) == f' width="{width}" height="{height}"'


def test_colours_keep_their_hue_references_stay_and_what_is_black_unsaid_can_be_seen():
    for theme in ("light", "dark"):
        tint = figures.rows(re.search(r"fill: (#\w+);", svg(theme, 2, "#dbe9f6"))[1])[0]
        hue, back = figures.rows(hues(theme, 2)[0], read_look()[theme]["back"])
        shares = (tint - back) / (hue - back)
        assert np.ptp(shares) < 0.05
        assert 0.05 < shares.mean() < 0.5
    made = svg("dark", 2, "#ffffff")
    assert "url(#p12345abcde)" in made
    assert 'href="#m0a1b2c3d4e"' in made
    assert f"fill: {read_look()['dark']['back']};" in svg("dark", 2, "#ffffff")
    unsaid = re.search(r'<svg fill="(#\w+)"', svg("dark", 2, "#ffffff"))[1]
    assert figures.oklab(figures.rows(unsaid))[0, 0] > 0.8
    assert '<svg fill="#000000"' in svg("light", 2, "#ffffff")
    colours = figures.rows("#e8f0e8", "#b00020", "#102040", "#ffee00")
    before, after = figures.oklab(colours), figures.oklab(figures.turned(colours))
    assert (np.argsort(before[:, 0]) == np.argsort(-after[:, 0])).all()
    turn = np.arctan2(before[:, 2], before[:, 1]) - np.arctan2(after[:, 2], after[:, 1])
    assert abs(np.angle(np.exp(1j * turn))).max() < 0.15


def test_an_image_inside_a_drawing_is_recoloured_and_stays_as_transparent():
    inside = Image.new("RGBA", (2, 1), "#ffffff00")
    inside.putpixel((1, 0), (*figures.rows(hues("light")[0])[0].tolist(), 255))
    file = io.BytesIO()
    inside.save(file, format="PNG")
    data = base64.b64encode(file.getvalue()).decode()
    made = svg("dark", 5, "#ffffff", f'<image xlink:href="data:image/png;base64,{data}"/>')
    inside = base64.b64decode(re.search(r"base64,([\w+/=]+)", made)[1])
    with Image.open(io.BytesIO(inside)) as image:
        assert image.getpixel((0, 0))[3] == 0
        assert image.getpixel((1, 0)) == (*figures.rows(hues("dark")[4])[0].tolist(), 255)


def test_a_figure_keeps_its_size_while_it_is_loaded_and_lies_on_the_page_of_its_theme(tmp_path):
    Image.new("RGBA", (20, 10), "#ffffff00").save(tmp_path / "a.png")
    for theme in ("light", "dark"):
        figures.write_figure(tmp_path / "a.png", tmp_path / "b.png", theme, 1)
        with Image.open(tmp_path / "b.png") as image:
            assert image.getpixel((3, 3)) == tuple(figures.rows(read_look()[theme]["back"])[0])
    assert figures.size_of(tmp_path / "a.png") == ' width="10" height="5"'
    (tmp_path / "a.svg").write_text(SVG.format("#000000", ""))
    assert figures.size_of(tmp_path / "a.svg") == ' width="96" height="48"'


def test_the_fonts_are_small_have_two_weights_and_the_letters_of_the_chapters():
    made = [fonts.page_font(face) for face in fonts.PAGE_FACES]
    assert sum(path.stat().st_size for path in made) <= 120_000
    for path in made:
        names = {record.nameID: str(record) for record in TTFont(path)["name"].names}
        assert names[1] in (fonts.TEXT, fonts.CODE)
        assert not any("Plex" in names[number] for number in (1, 2, 3, 4, 6))
        assert "Open Font License" in names[13]
    weights = {s: TTFont(fonts.figure_font(s))["OS/2"].usWeightClass for s in fonts.FIGURE_FACES}
    assert weights == {"Regular": 400, "Bold": 700}, "else matplotlib complains on the page"
    letters = TTFont(fonts.page_font("text")).getBestCmap()
    prose = set()
    for path in (ROOT / "chapters").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
            if cell["cell_type"] == "markdown":
                prose |= set("".join(cell["source"]))
    original = fonts.original(fonts.SANS, "IBMPlexSans[wdth,wght].ttf").getBestCmap()
    assert {c for c in prose - {"\n"} if ord(c) in original and ord(c) not in letters} <= {"�"}
    assert style.FILE.read_text(encoding="utf8") == style.wanted()


def test_no_letter_of_a_figure_is_below_eleven_pixels_in_its_own_size():
    """Letters are drawn a hundred units high, and a point is 4/3 of a pixel."""
    folder = build_book.BUILD / "html" / "_images"
    found = {path.name: path.read_text(encoding="utf8") for path in folder.glob("*-light.svg")}
    assert len(found) > 150
    sizes = {
        name: min(map(float, scales), default=1.0) * 100 * 4 / 3
        for name, text in found.items()
        if (scales := re.findall(r"scale\(([\d.]+) -[\d.]+\)", text))
    }
    assert len(sizes) > 150
    assert [(name, size) for name, size in sizes.items() if size < 11] == []
