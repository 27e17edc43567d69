"""Addresses of persons are replaced by marks, as a model can repeat what it has read.

Four kinds: e-mail, telephone, street and number, and addresses of machines (IPv4).  Names stay.
Every pattern has a longest match, so that text of n characters takes O(n).
"""

from collections import Counter

import regex

_KINDS = {
    "EMAIL": r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,6}\p{L}{2,24}\b",
    "IP": (
        r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
        r"(?![\d.]*\d)"
    ),
    "PHONE": (
        r"(?<![\w.,-])(?:\+\d{1,3}[ .-]?)(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}(?![\d-])"
        r"|(?<![\w.,-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\d-])"
    ),
    "ADDRESS": (
        r"\b\d{1,5} (?:[A-Z][a-z]{1,20} ){1,3}(?:Street|St\.|Road|Rd\.|Avenue|Ave\.|Lane|Drive)\b"
    ),
}
_PERSONAL = regex.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _KINDS.items()))


def replaced(text: str) -> tuple[str, Counter[str]]:
    """Return the text with marks such as <EMAIL>, and how many there are of each kind."""
    counts: Counter[str] = Counter()

    def mark(found: regex.Match[str]) -> str:
        counts[found.lastgroup] += 1
        return f"<{found.lastgroup}>"

    return _PERSONAL.sub(mark, text), counts


def replace_personal(text: str) -> str:
    """Return the text with marks in place of addresses (a step of a funnel that drops nothing)."""
    return replaced(text)[0]
