"""The style of the book's figures, from the look of the course.

python -m tools.pages.look          writes tools/pages/matplotlibrc
python -m tools.pages.look --check  says whether it is what look.json gives
"""

import argparse
import sys
from pathlib import Path

from llmcourse_classroom.look import hues, read_look
from tools.pages.fonts import TEXT

FILE = Path(__file__).with_name("matplotlibrc")
# A comment of the format begins with #, so colours go without.  A picture has no background; 11
# points on a picture of 7.2 inches are the size of the page's small text.
FORM = """# Written by tools/pages/look.py from llmcourse_classroom/look.json.
# Read when notebooks are executed for the book: the same figure is the same SVG, byte for byte.
svg.hashsalt: llmcourse
font.family: {font}, DejaVu Sans
font.size: 11
axes.titlesize: medium
xtick.labelsize: small
ytick.labelsize: small
legend.fontsize: small
legend.frameon: False
figure.facecolor: none
axes.facecolor: none
savefig.facecolor: none
axes.spines.top: False
axes.spines.right: False
axes.edgecolor: {line}
xtick.color: {muted}
ytick.color: {muted}
axes.labelcolor: {text}
axes.titlecolor: {text}
text.color: {text}
lines.linewidth: 1.8
axes.prop_cycle: cycler('color', {cycle})
"""


def wanted() -> str:
    """Return what tools/pages/matplotlibrc has to be."""
    colours = {name: read_look()["light"][name][1:] for name in ("line", "muted", "text")}
    return FORM.format(font=TEXT, cycle=[hue[1:] for hue in hues("light")], **colours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    if not parser.parse_args().check:
        FILE.write_text(wanted(), encoding="utf8")
    elif FILE.read_text(encoding="utf8") != wanted():
        print(f"{FILE.name} is stale: run make format", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
