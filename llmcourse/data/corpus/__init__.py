"""Texts to train on: simple stories of our own, presidential addresses, Python's own sources.

Nothing is fetched: the stories come from a grammar, the rest from installed packages.

Taught in: chapters/01_whole_run.ipynb, chapters/05_tokens.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.corpus.packages import (
        FIRST_VALIDATION_YEAR,
        Address,
        SourceFile,
        python_source,
        sotu,
        sotu_split,
    )
    from llmcourse.data.corpus.stories import END_OF_TEXT, stories, stories_entropy, story_words
    from llmcourse.data.corpus.story_lexicon import BOYS, GIRLS

lazy(__name__)
