"""From a crawl to a corpus: extract, filter, deduplicate, decontaminate, and count what it did.

Taught in: chapters/06_crawl_to_corpus.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.curation.crawl import Crawl
    from llmcourse_labs.curation.decontaminate import Decontaminate
    from llmcourse_labs.curation.dedup import (
        LineCounts,
        NearDuplicates,
        RepeatedLines,
        UnionFind,
        exact_key,
        line_hashes,
    )
    from llmcourse_labs.curation.extract import are_prose, blocks, extract, main_text
    from llmcourse_labs.curation.funnel import TEST_ITEMS, Funnel, grades
    from llmcourse_labs.curation.language import LanguageModel, default_model
    from llmcourse_labs.curation.minhash import (
        MinHash,
        band_keys,
        bands_for,
        candidate_probability,
        estimate,
        jaccard,
        shingles,
    )
    from llmcourse_labs.curation.pii import replace_personal
    from llmcourse_labs.curation.prepare import prepare_text
    from llmcourse_labs.curation.quality import KeepQuality, Quality
    from llmcourse_labs.curation.rules import C4, Gopher, Repetition
    from llmcourse_labs.curation.step import Document, Dropped, Example, Filter, StepStats, filtered

lazy(__name__)
