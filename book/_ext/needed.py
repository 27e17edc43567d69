"""Which rules of a stylesheet the pages need.

The theme brings half a megabyte of rules, of Bootstrap most of them, and a chapter uses a tenth.
A rule stays if each class and id that one of its selectors names stands in some page, or as a word
in some script, which may give it to an element later.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import tinycss2
from tinycss2.ast import AtRule, Node, ParseError, QualifiedRule

NESTED = {"media", "supports", "layer", "container"}
"""Rules that hold rules."""
GIVEN = re.compile(r'\b(?:class|id)="([^"]*)"')
PROPERTY = re.compile(r"""(?<=[{;])\s*(--[\w-]+)\s*:(?:[^;{}"']|"[^"]*"|'[^']*')*(?:;|(?=\}))""")
WORD = re.compile(r"[A-Za-z_][\w-]*")
NAME = re.compile(r"[.#]((?:[\w-]|\\.)+)")
NEGATED = re.compile(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)|\[[^\]]*\]")
USED = re.compile(r"(?:var\(\s*|[\"'`])(--[\w-]+)")


def words_of(pages: Iterable[Path], scripts: Iterable[str]) -> set[str]:
    """Return the classes and ids of pages, and the words of scripts."""
    given: set[str] = set()
    for page in pages:
        given.update(GIVEN.findall(page.read_text(encoding="utf8")))
    found = {word for names in given for word in names.split()}
    return found.union(*(WORD.findall(script) for script in scripts))


def is_needed(selector: str, words: set[str]) -> bool:
    """Whether all classes and ids of a selector are among words; what it denies is no matter."""
    return all(name.replace("\\", "") in words for name in NAME.findall(NEGATED.sub("", selector)))


def selectors(prelude: Iterable[Node]) -> list[str]:
    """Return the selectors of a rule, which commas part outside of brackets."""
    parts: list[list[Node]] = [[]]
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return [tinycss2.serialize(part).strip() for part in parts]


def needed(css: str, words: set[str]) -> str:
    """Return a stylesheet without the rules that no page needs, comments and blanks."""
    rules = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
    return "\n".join(text for rule in rules if (text := _kept(rule, words)))


def without_unused_properties(css: str, others: Iterable[str]) -> str:
    """Return a stylesheet without the custom properties that neither it nor another text names."""
    used = set(USED.findall(css)).union(*map(USED.findall, others))

    def kept(found: re.Match[str]) -> str:
        return found[0] if found[1] in used else ""

    return PROPERTY.sub(kept, css)


def _kept(rule: QualifiedRule | AtRule | ParseError, words: set[str]) -> str:
    if rule.type == "error":
        raise ValueError(f"a stylesheet has a mistake: {rule.message}")
    if rule.type == "qualified-rule":
        kept = [each for each in selectors(rule.prelude) if is_needed(each, words)]
        return f"{','.join(kept)}{{{_squeezed(rule.content)}}}" if kept else ""
    start = f"@{rule.at_keyword} {tinycss2.serialize(rule.prelude).strip()}".strip()
    if rule.content is None:
        return f"{start};"
    body = _squeezed(rule.content)
    if rule.lower_at_keyword in NESTED:
        body = needed(tinycss2.serialize(rule.content), words)
    return f"{start}{{{body}}}" if body else ""


def _squeezed(content: list[Node]) -> str:
    kept = [token for token in content if token.type != "comment"]
    return re.sub(r"\s*\n\s*", " ", tinycss2.serialize(kept)).strip()
