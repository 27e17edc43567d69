"""The pages of the mini-crawl: how text, menus, banners and footers are put into HTML."""

import random
from collections.abc import Callable, Sequence
from html import escape

from llmcourse_labs.curation.crawl_texts import NAMES, number, pick

_TOPICS = (
    "News",
    "Sport",
    "Weather",
    "Travel",
    "Garden",
    "Kitchen",
    "Books",
    "Music",
    "Games",
    "Science",
    "Health",
    "Jobs",
    "Contact",
    "About us",
    "Archive",
    "Login",
    "Register",
    "Newsletter",
    "Shop",
    "Help",
)
_TEASERS = (
    "Ten things to do on a rainy day",
    "What nobody tells you about kettles",
    "The best walks around the lake",
    "Why your garden needs a fence",
    "This simple trick keeps bread fresh",
    "How to teach a dog to wait",
)
_BANNERS = (
    "We use cookies to give you the best experience. By using this site you accept our policy.",
    "This site needs cookies. Accept all Reject all Settings",
    "Subscribe to our newsletter and never miss a story. Enter your address below.",
)
_FOOTERS = (
    "Copyright 2024 All rights reserved. Terms of use, privacy policy, imprint.",
    "Powered by a very good system. Back to top. Print this page. Share this page.",
)
_SCRIPTS = (
    "<script>var page = {id: 7, ads: true}; if (1 < 2) { track(page); }</script>",
    '<script type="text/javascript"><!-- window.dataLayer = []; //--></script>',
    "<style>.nav > li { float: left; } p { margin: 0 }</style>",
    "<!-- begin of the column <div> that was here -->",
)


def _menu(rng: random.Random, count: int) -> str:
    links = "".join(f'<li><a href="/{i}">{pick(rng, _TOPICS)}</a></li>\n' for i in range(count))
    return f'<ul class="{pick(rng, ("nav", "menu", "top-links", "m1"))}">\n{links}</ul>\n'


def _related(rng: random.Random) -> str:
    links = "".join(
        f'<div class=r><a href="/a{i}"><img src="{i}.jpg" alt="">{pick(rng, _TEASERS)}</a></div>\n'
        for i in range(number(rng, 3, 8))
    )
    return f"<div><h3>Read more</h3>\n{links}</div>\n"


def _comments(rng: random.Random) -> str:
    said = ("Nice!", "First", "I do not agree at all.", "Thanks for sharing", "lol", "So true")
    return "".join(
        f"<div class=c><b>{pick(rng, NAMES)}</b> 3 days ago<br>{pick(rng, said)} "
        "<a href=#>Reply</a> <a href=#>Report</a></div>\n"
        for _ in range(number(rng, 1, 6))
    )


def _head(rng: random.Random, title: str) -> str:
    return (
        f"<!DOCTYPE html>\n<html><head><title>{escape(title)}</title>\n"
        f'<meta charset="utf-8">\n{pick(rng, _SCRIPTS)}\n</head>\n'
    )


def _foot(rng: random.Random) -> str:
    return (
        f'<div class="{pick(rng, ("footer", "bottom", "f2"))}"><p>{pick(rng, _FOOTERS)}</p>'
        f"{_menu(rng, number(rng, 3, 6))}</div>\n{pick(rng, _SCRIPTS)}</body></html>\n"
    )


def _paragraphs(texts: Sequence[str], tag: str = "p") -> str:
    return "".join(f"<{tag}>{escape(text, quote=False)}</{tag}>\n" for text in texts)


# Layouts: what stands between head and foot.


def _article(rng: random.Random, texts: Sequence[str]) -> str:
    return f"<nav>{_menu(rng, 7)}</nav><article>{_paragraphs(texts)}</article>{_related(rng)}"


def _divs(rng: random.Random, texts: Sequence[str]) -> str:
    inner = _paragraphs(texts, "div")
    return f"{_menu(rng, 9)}<div><div class=x><div id=k4>{inner}</div></div></div>{_comments(rng)}"


def _breaks(rng: random.Random, texts: Sequence[str]) -> str:
    inner = "<br><br>\n".join(escape(text) for text in texts)
    return f"<DIV CLASS=left>{_menu(rng, 8)}</DIV>\n<DIV CLASS=mid>{inner}</DIV>{_related(rng)}"


def _table(rng: random.Random, texts: Sequence[str]) -> str:
    return (
        f"<table width=100%><tr><td width=20%>{_menu(rng, 12)}<td>{_paragraphs(texts)}"
        f"<td>{_related(rng)}</table>\n"
    )


def _unclosed(rng: random.Random, texts: Sequence[str]) -> str:
    return f"{_menu(rng, 6)}<p>" + "\n<p>".join(escape(text) for text in texts) + _comments(rng)


def _blog(rng: random.Random, texts: Sequence[str]) -> str:
    by = f'<p class="by">By <a href="/u">{pick(rng, NAMES)}</a>, 12 May</p>'
    return (
        f"<header>{_menu(rng, 5)}</header><main><section>{by}{_paragraphs(texts)}</section>"
        f"</main><aside>{_related(rng)}</aside>{_comments(rng)}"
    )


def _with_adverts(rng: random.Random, texts: Sequence[str]) -> str:
    advert = '<div class="ad"><a href="/buy">Buy now</a> <span>Advertisement</span></div>\n'
    inner = advert.join(_paragraphs([text]) for text in texts)
    return f"<div>{pick(rng, _BANNERS)}</div>{_menu(rng, 10)}<div>{inner}</div>{_related(rng)}"


def _spans(rng: random.Random, texts: Sequence[str]) -> str:
    spans = [
        "<p>" + " ".join(f"<span>{escape(part)}</span>" for part in text.split(" ", 3)) + "</p>"
        for text in texts
    ]
    return f"<section>{''.join(spans)}</section><div>{_menu(rng, 14)}{_menu(rng, 8)}</div>"


LAYOUTS: tuple[Callable[[random.Random, Sequence[str]], str], ...] = (
    *(_article, _divs, _breaks, _table),
    *(_unclosed, _blog, _with_adverts, _spans),
)


def page(rng: random.Random, title: str, texts: Sequence[str]) -> str:
    """Return a page that holds paragraphs, in one of the layouts."""
    banner = f"<div id=cookie>{pick(rng, _BANNERS)}</div>\n" if rng.random() < 0.5 else ""
    middle = pick(rng, LAYOUTS)(rng, texts)
    heading = f"<h1>{escape(title)}</h1>\n" if rng.random() < 0.6 else ""
    return f"{_head(rng, title)}<body>\n{banner}{heading}{middle}{_foot(rng)}"


def links_page(rng: random.Random) -> str:
    """Return a page that is nothing but menus."""
    menus = "".join(_menu(rng, number(rng, 10, 30)) for _ in range(3))
    return f"{_head(rng, 'Index')}<body>{menus}{_related(rng)}{_foot(rng)}"


def not_found(rng: random.Random) -> str:
    """Return a page that says that there is none."""
    said = pick(
        rng,
        (
            "404 - Page not found. The page that you are looking for does not exist any more.",
            "Sorry, we could not find what you were looking for. Go back to the home page.",
            "Error 404: this address is not known. Please check it, or try our search.",
        ),
    )
    return f"{_head(rng, '404')}<body>{_menu(rng, 6)}<h1>Oops!</h1><p>{said}</p>{_foot(rng)}"


def listing_page(rng: random.Random, rows: Sequence[str]) -> str:
    """Return a page with a list of products."""
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.split(" - ")) + "</tr>\n"
        for row in rows
    )
    return f"{_head(rng, 'Our products')}<body>{_menu(rng, 9)}<table>{cells}</table>{_foot(rng)}"
