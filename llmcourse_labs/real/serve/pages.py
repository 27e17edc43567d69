"""Who holds which page of the cache: uses are counted, and full pages are found again.

A page has slots for the keys and values of `page_size` tokens, in every layer.  What stands in a
full page depends on its tokens and on all tokens before them, so its name is made of both:

    name_0 = sha256(ids of page 0),    name_i = sha256(name_(i-1), ids of page i)

Two texts that begin with the same full pages have the same names there, and share the pages.  A
page that nobody uses any more keeps its name until its slots are needed for something else.

Source:
    Kwon et al. 2023 (PagedAttention), https://arxiv.org/abs/2309.06180
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256

from llmcourse.base.arguments import require


class PagePool:
    """Hands out pages by number, from 0 to num_pages - 1.

    A page is empty, or used by one or several rows, or kept: full, used by nobody, and found again
    by its name.  When no page is empty, the one that was kept for longest is given away.

    Args:
        num_pages: in all, 1 or more.
        page_size: tokens in a page, 1 or more.

    Raises:
        ValueError: if a number is outside its range.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        require("num_pages", num_pages, least=1)
        require("page_size", page_size, least=1)
        self.num_pages, self.page_size = num_pages, page_size
        self._empty = list(reversed(range(num_pages)))
        self._num_uses = [0] * num_pages
        self._by_name: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self._kept: dict[int, None] = {}  # a dict keeps its order: the longest kept is the first

    @property
    def num_empty(self) -> int:
        """Pages in which nothing stands."""
        return len(self._empty)

    @property
    def num_kept(self) -> int:
        """Pages that nobody uses, and that may be found again."""
        return len(self._kept)

    def pages_for(self, num_tokens: int) -> int:
        """Return how many pages so many tokens need."""
        return -(-num_tokens // self.page_size)

    def take(self) -> int | None:
        """Return a page for one row, or None if all pages are used."""
        if self._empty:
            page = self._empty.pop()
        elif self._kept:
            page = next(iter(self._kept))
            del self._kept[page], self._by_name[self._names.pop(page)]
        else:
            return None
        self._num_uses[page] = 1
        return page

    def find(self, names: Iterable[bytes]) -> list[int]:
        """Return the pages of these names, up to the first that there is not; each is used now."""
        found = []
        for name in names:
            if (page := self._by_name.get(name)) is None:
                break
            self._num_uses[page] += 1
            self._kept.pop(page, None)
            found.append(page)
        return found

    def name(self, page: int, name: bytes) -> None:
        """Let a full page be found; of two pages with the same tokens, only the first is."""
        if name not in self._by_name:
            self._by_name[name], self._names[page] = page, name

    def release(self, pages: Sequence[int]) -> None:
        """Take the pages of one row back.

        The last ones are given away first: without those before them, they are not found.
        """
        for page in reversed(pages):
            self._num_uses[page] -= 1
            if self._num_uses[page] == 0:
                if page in self._names:
                    self._kept[page] = None
                else:
                    self._empty.append(page)


def page_names(ids: Sequence[int], page_size: int, known: Sequence[bytes] = ()) -> list[bytes]:
    """Return the names of all full pages of a text.

    Args:
        ids: of the text, from its first token on.
        page_size: tokens in a page.
        known: names of its first pages, which are not made again.
    """
    names = list(known)
    for start in range(len(names) * page_size, len(ids) - page_size + 1, page_size):
        before = names[-1] if names else b""
        content = array("q", ids[start : start + page_size]).tobytes()
        names.append(sha256(before + content).digest())
    return names
