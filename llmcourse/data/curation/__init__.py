"""From a crawl to a corpus: extract, filter, deduplicate, decontaminate, and count what it did.

Taught in: chapters/06_crawl_to_corpus.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.curation.dedup import (
        LineCounts,
        NearDuplicates,
        RepeatedLines,
        UnionFind,
        exact_key,
        line_hashes,
    )
    from llmcourse.data.curation.minhash import (
        MinHash,
        band_keys,
        bands_for,
        candidate_probability,
        estimate,
        jaccard,
        shingles,
    )
    from llmcourse.data.curation.step import Document, Dropped, Example, Judge, Tally, judged

lazy(__name__)
