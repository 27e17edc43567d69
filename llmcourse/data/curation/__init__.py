"""From a crawl to a corpus: extract, filter, deduplicate, decontaminate, and count what it did."""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.curation.step import Document, Dropped, Example, Judge, Tally, judged

lazy(__name__)
