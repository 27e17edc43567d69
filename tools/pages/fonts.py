"""The book's two fonts, cut out of installed packages: for the pages and for matplotlib.

Text is IBM Plex Sans, code IBM Plex Mono.  Their licence reserves the name Plex for what nobody
changed, so these are called Course Text and Course Code.  What is made lies in _build/fonts.
"""

import base64
import hashlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "_build" / "fonts"
TEXT, CODE = "Course Text", "Course Code"
SANS, MONO = "fontpkg-ibm-plex-sans", "fontpkg-ibm-plex-mono"
PAGE_FACES = {
    "text": (SANS, "IBMPlexSans[wdth,wght].ttf", TEXT, {"wght": (400, 700), "wdth": 100}),
    "italic": (SANS, "IBMPlexSans-Italic[wdth,wght].ttf", TEXT, {"wght": 400, "wdth": 100}),
    "code": (MONO, "IBMPlexMono-Regular.ttf", CODE, {}),
}
"""Of the pages: the package, its file, the new name, and what is kept of each axis."""
FIGURE_FACES = {
    "Regular": (SANS, "IBMPlexSans[wdth,wght].ttf", TEXT, {"wght": 400, "wdth": 100}),
    "Bold": (SANS, "IBMPlexSans[wdth,wght].ttf", TEXT, {"wght": 700, "wdth": 100}),
}
"""Of the figures; matplotlib says so in the page when what it calls bold is not 700."""
LETTERS = [*range(0x20, 0x7F), *range(0xA0, 0x100), *map(ord, "ČčĆćĞğİıŁłŐőŘřŠšŞşŽž")]
GREEK = range(0x386, 0x3CF)
SIGNS = [*map(ord, "–—‘’‚“”„†•…′″€℃™ℓ←↑→↓∂∆∏∑−√∞∫≈≠≤≥◊✓�"), *range(0x2070, 0x208F)]
BOXES = [*range(0x2150, 0x215F), *range(0x2500, 0x25A0)]
FEATURES = ["kern", "mark", "mkmk", "ccmp", "locl", "zero", "sups", "subs"]
BEFORE = """@font-face {{ font-family: "Course Text Before"; font-weight: {weight};
  src: local("{0}"), local("{1}"); size-adjust: {wide}%; ascent-override: {up}%;
  descent-override: {down}%; }}
"""
ARIAL = (
    {"weight": 400, "wide": 101.5, "up": 101, "down": 27.1},
    {"weight": "600 700", "wide": 98.2, "up": 104.4, "down": 28},
)
"""What makes Arial, in both weights, as wide and high as the text font: widths as in the prose of
a chapter, heights as 1.025 and 0.275 of the size."""


def original(package: str, name: str) -> TTFont:
    """Return a font as its package has it.

    Raises:
        FileNotFoundError: if the package has no such font.
    """
    for entry in importlib.metadata.files(package) or []:
        if entry.name == name:
            return TTFont(str(entry.locate()))
    raise FileNotFoundError(f"{package} has no {name}")


def named(font: TTFont, family: str, style: str) -> TTFont:
    """Return a font with another name; what it says of its authors and licence stays."""
    full = f"{family} {style}"
    for record in list(font["name"].names):
        if record.nameID not in (0, 8, 9, 11, 13, 14):
            font["name"].removeNames(nameID=record.nameID)
    for number, text in ((1, family), (2, style), (3, full), (4, full), (6, full.replace(" ", ""))):
        font["name"].setName(text, number, 3, 1, 0x409)
    return font


def kept(font: TTFont, axes: dict[str, object]) -> TTFont:
    """Return a font with nothing of its axes but what is asked for."""
    return instancer.instantiateVariableFont(font, axes) if axes else font


def small(font: TTFont) -> TTFont:
    """Return a font with the letters, signs and features of the pages."""
    options = subset.Options(layout_features=FEATURES, hinting=False, name_IDs=["*"])
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[*LETTERS, *GREEK, *SIGNS, *BOXES])
    cutter.subset(font)
    return font


def folder() -> Path:
    """Return where the fonts lie, made by this file from these versions."""
    versions = "".join(importlib.metadata.version(package) for package in (SANS, MONO, "fonttools"))
    key = hashlib.sha256(Path(__file__).read_bytes() + versions.encode()).hexdigest()[:12]
    return BUILD / key


def page_font(face: str) -> Path:
    """Return a font of the pages as WOFF2; make it when it is missing."""
    path = folder() / f"{face}.woff2"
    if not path.exists():
        package, name, family, axes = PAGE_FACES[face]
        style = "Italic" if face == "italic" else "Regular"
        font = named(kept(small(original(package, name)), axes), family, style)
        font.flavor = "woff2"
        save(font, path)
    return path


def figure_font(style: str) -> Path:
    """Return a font of the figures as TrueType; make it when it is missing."""
    path = folder() / f"{style}.ttf"
    if not path.exists():
        package, name, family, axes = FIGURE_FACES[style]
        save(named(kept(small(original(package, name)), axes), family, style), path)
    return path


def save(font: TTFont, path: Path) -> None:
    """Write a font, whole or not at all, without the time of day."""
    path.parent.mkdir(parents=True, exist_ok=True)
    font.recalcTimestamp = False
    scratch = path.with_suffix(".part")
    font.save(scratch)
    scratch.replace(path)


def css() -> str:
    """Return the rules that give the pages their fonts, with the fonts inside.

    Firefox lets no page that is opened from a file load a font from the folder above, and a font
    that comes with the styles moves nothing when it arrives.
    """
    weights = {"text": "400 700", "italic": "400", "code": "400"}
    names = ("Arial", "Liberation Sans"), ("Arial Bold", "Liberation Sans Bold")
    rules = [BEFORE.format(*pair, **sizes) for pair, sizes in zip(names, ARIAL, strict=True)]
    for face, (_, _, family, _) in PAGE_FACES.items():
        data = base64.b64encode(page_font(face).read_bytes()).decode()
        rules.append(
            f'@font-face {{ font-family: "{family}"; font-weight: {weights[face]}; '
            f"font-style: {'italic' if face == 'italic' else 'normal'}; font-display: block; "
            f'src: url("data:font/woff2;base64,{data}") format("woff2"); }}'
        )
    return "\n".join(rules) + "\n"


LIST = """
import json, sys
from pathlib import Path
import matplotlib
from matplotlib import font_manager as fonts
for path in sys.argv[1:]:
    if path not in {entry.fname for entry in fonts.fontManager.ttflist}:
        fonts.fontManager.addfont(path)
name = f"fontlist-v{fonts.FontManager.__version__}.json"
fonts.json_dump(fonts.fontManager, Path(matplotlib.get_cachedir(), name))
"""


def tell_matplotlib(env: dict[str, str]) -> None:
    """Put the fonts of the figures into matplotlib's list, which later processes read."""
    paths = [str(figure_font(style)) for style in FIGURE_FACES]
    command = [sys.executable, "-c", LIST, *paths]
    subprocess.run(command, env=env, check=True, stderr=subprocess.DEVNULL)
