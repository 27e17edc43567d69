"""Figures in both themes: what matplotlib drew in the hues of its phase, and again for the dark.

Figures are drawn in the colours of the light theme (tools/pages/matplotlibrc), not on a background.
Of each, the pages get two files: in the light one, C0 is the hue of the chapter's phase and the
others follow it round, and a concept keeps its own; in the dark one every colour of the look has
its dark counterpart, and any other keeps its hue and turns its lightness round.  A browser loads
the one that it shows.
"""

import base64
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from course import phase_of
from PIL import Image
from sphinx.application import Sphinx

from llmcourse_classroom.look import concept, hues, read_look

ENLARGED = re.compile(
    r'<a class="reference internal image-reference" href="[^"]*">\s*((?:<img [^>]*>\s*)+)</a>'
)
"""A figure that docutils has made a link to its own file, which no theme has."""
IMAGE = re.compile(
    r'<img (?P<rest>[^>]*?)src="(?P<folder>[^"]*_images/)(?P<name>[0-9a-f]{64}\.(?:svg|png))"[^>]*>'
)
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
RASTER = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")
PLACES = re.compile(r'(?<=\s)d="[^"]*"')
FINE = re.compile(r"-?\d+\.\d{2,}")
BLANKS = re.compile(r"\s*\n\s*|([A-Za-z]) ")
SIDE = r'<svg\b[^>]*\b{}="([\d.]+)pt"'
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""Oklab (Ottosson, 2020): linear RGB to cones, and their cube roots to lightness, a and b."""
TINTS = (
    "dbe9f6 dce9f5 eef3fb cfe1f2 9ec9ee 9ec5e8 f5f9fd e8f0ff cfe2f3 8fbbe0",
    "fff2d9 fde3c8 f9d9b5 fde6cf fdd9b5 f5b87f ffdcbd fde7d3 fdc98f fce3cc fbe3c8",
    "cfe8cf e5f2dd dcefd9 c9e7c4 a9dba9 9fd39f",
)
"""The pale colours that chapters fill boxes with: of C0, C1 and C2, which surround the boxes."""
Colours = np.ndarray
"""Rows of red, green and blue from 0 to 255."""


def rows(*colours: str) -> Colours:
    """Return colours as rows."""
    return np.array([[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in colours])


def hex_of(colour: Colours) -> str:
    """Return one colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*colour.tolist())


def oklab(colours: Colours) -> np.ndarray:
    """Return lightness, a and b of colours."""
    x = colours / 255
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ TO_CONES.T) @ TO_LAB.T


def from_oklab(lab: np.ndarray) -> np.ndarray:
    """Return linear RGB, which may lie outside of what a screen can show."""
    return (lab @ np.linalg.inv(TO_LAB).T) ** 3 @ np.linalg.inv(TO_CONES).T


def turned(colours: Colours) -> Colours:
    """Return colours with their lightness turned round, white as the dark background.

    The hue stays.  Where a screen cannot show the new colour, it gets as pale as it must.
    """
    low, high = oklab(rows(read_look()["dark"]["back"], read_look()["dark"]["text"]))[:, 0]
    lab = oklab(colours)
    lab[:, 0] = low + (high - low) * (1 - lab[:, 0])
    for _ in range(12):
        rgb = from_oklab(lab)
        outside = ((rgb < -1e-4) | (rgb > 1.0001)).any(axis=1)
        lab[outside, 1:] *= 0.85
    rgb = np.clip(from_oklab(lab), 0, 1)
    coded = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    return np.rint(255 * coded).astype(int)


@cache
def pairs(theme: str, phase: int) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return what becomes of the colours of the look: of the hues, and in the dark of all."""
    before, after = hues("light"), hues(theme, phase)
    if theme == "dark":
        for name in ("text", "muted", "line", "back", "surface"):
            before, after = (
                [*before, read_look()["light"][name]],
                [*after, read_look()["dark"][name]],
            )
    for name in read_look()["phases"]:  # every hue once
        before, after = [*before, concept(name)], [*after, concept(name, theme)]
    paper = rows(read_look()[theme]["back"])[0]
    for names, hue in zip(TINTS, rows(*hues(theme, phase)), strict=False):
        for name in names.split():
            share = min(0.6, 2 * (1 - oklab(rows(f"#{name}"))[0, 0]))
            mixed = np.rint(share * hue + (1 - share) * paper).astype(int)
            before, after = [*before, f"#{name}"], [*after, hex_of(mixed)]
    found = zip(rows(*before).tolist(), rows(*after).tolist(), strict=True)
    return {tuple(old): tuple(new) for old, new in found}


def recolour(colours: Colours, theme: str, phase: int) -> Colours:
    """Return the colours of a figure as a theme and a phase have them."""
    known = pairs(theme, phase)
    others = turned(colours) if theme == "dark" else colours
    return np.array(
        [known.get(tuple(old), new) for old, new in zip(colours.tolist(), others, strict=True)]
    )


def recoloured_image(image: Image.Image, change: Callable[[Colours], Colours]) -> Image.Image:
    """Return a raster image with other colours, as opaque as it was."""
    pixels = np.array(image.convert("RGBA"))
    # A colour as one number: sorting rows of three takes a hundred times longer.
    numbers = pixels[..., :3] @ np.array([1 << 16, 1 << 8, 1])
    found, where = np.unique(numbers, return_inverse=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    pixels[..., :3] = change(colours)[where].reshape(pixels[..., :3].shape)
    return Image.fromarray(pixels)


def recoloured_svg(text: str, change: Callable[[Colours], Colours]) -> str:
    """Return a drawing with other colours, also in the images inside it."""

    def raster(found: re.Match[str]) -> str:
        with Image.open(io.BytesIO(base64.b64decode(found[0]))) as image:
            made = io.BytesIO()
            recoloured_image(image, change).save(made, format="PNG", optimize=True)
        return base64.b64encode(made.getvalue()).decode()

    # What is black, matplotlib may draw without saying so.
    text = re.sub(r"<svg\b(?![^>]*\bfill=)", '<svg fill="#000000"', text, count=1)
    names = sorted({name.lower() for name in COLOUR.findall(text)})
    new = dict(zip(names, map(hex_of, change(rows(*names))), strict=True))
    text = COLOUR.sub(lambda found: new[found[0].lower()], text)
    return RASTER.sub(raster, PLACES.sub(shortened, text))


def in_pixels(text: str) -> str:
    """Return a drawing as wide and high as `size_of` says: nothing moves when it comes."""
    for side in ("width", "height"):
        whole = re.compile(SIDE.format(side))
        text = whole.sub(lambda m: m[0].replace(f"{m[1]}pt", f"{float(m[1]) * 4 / 3:.0f}"), text, 1)
    return text


def shortened(place: re.Match[str]) -> str:
    """Return a path or a place in fewer letters: nobody sees a twentieth of a point."""
    text = FINE.sub(lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), place[0])
    return BLANKS.sub(lambda blank: blank[1] or "", text)


class Figures:
    """Shows each figure of a page in both themes, and makes the files."""

    def __init__(self) -> None:
        self.wanted: dict[tuple[str, int], str] = {}

    def show(
        self, app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any
    ) -> None:
        """Put the two images of a figure in the place of the one."""
        phase = phase_of(app.env, page) or 1
        sources = {name: Path(app.srcdir, path) for path, name in app.builder.images.items()}

        def both(found: re.Match[str]) -> str:
            name = found["name"]
            self.wanted[name, phase] = ""
            size = size_of(sources[name])
            start = f'<img {found["rest"]}loading="lazy"{size} src="{found["folder"]}'
            files = (of_theme(name, phase, theme) for theme in ("light", "dark"))
            light, dark = files
            return f'{start}{light}" class="of-light">{start}{dark}" class="of-dark">'

        body = IMAGE.sub(both, context.get("body") or "")
        context["body"] = ENLARGED.sub(r"\1", body)

    def write(self, app: Sphinx, error: Exception | None) -> None:
        """Write the files of all figures, and remove what no page shows."""
        folder = Path(app.outdir) / "_images"
        if error is not None or app.builder.format != "html":
            return
        for name, phase in self.wanted:
            for theme in ("light", "dark"):
                write_figure(folder / name, folder / of_theme(name, phase, theme), theme, phase)
        for name in {name for name, _ in self.wanted}:
            (folder / name).unlink()


def of_theme(name: str, phase: int, theme: str) -> str:
    """Return the name of a figure's file in a theme."""
    stem, dot, kind = name.rpartition(".")
    return f"{stem}-{phase}-{theme}{dot}{kind}"


def size_of(path: Path) -> str:
    """Return the attributes that keep a figure's place: its size in pixels of the page."""
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf8")[:2000]
        found = {side: re.search(SIDE.format(side), text) for side in ("width", "height")}
        return "".join(f' {s}="{float(f[1]) * 4 / 3:.0f}"' for s, f in found.items() if f)
    with Image.open(path) as image:
        return f' width="{image.width // 2}" height="{image.height // 2}"'  # retina: two for one


def write_figure(source: Path, target: Path, theme: str, phase: int) -> None:
    """Write a figure as a theme and a phase have it; a raster image on the page's background."""

    def change(colours: Colours) -> Colours:
        return recolour(colours, theme, phase)

    if source.suffix == ".svg":
        made = recoloured_svg(source.read_text(encoding="utf8"), change)
        target.write_text(in_pixels(made), encoding="utf8")
        return
    with Image.open(source) as image:
        density = image.info.get("dpi")
        drawn = recoloured_image(image, change)
    whole = Image.new("RGBA", drawn.size, read_look()[theme]["back"])
    whole.alpha_composite(drawn)
    whole.convert("RGB").save(target, **({"dpi": density} if density else {}))


def setup(app: Sphinx) -> dict[str, object]:
    figures = Figures()
    app.connect("html-page-context", figures.show)
    app.connect("build-finished", figures.write, priority=800)  # before their palettes
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
