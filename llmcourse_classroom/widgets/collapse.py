"""A widget about models that learn from models: what ten generations do to a distribution."""

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget


class CollapseLab(Widget):
    """Ten generations, each counted from what the one before wrote.

    The source writes 50 words with probabilities in proportion to 1, 1/2, 1/3 and so on (Zipf's
    law).  A generation is the share of each word among samples, which the one before drew at a
    temperature; a part of them may be fresh from the source.

    Args:
        state: temperature (0.6 to 1.4), fresh (the share of fresh samples), samples (of a
            generation, 50 to 2,000), seed.
    """

    script = "collapse_lab.js"
    alt = (
        "Two curves over ten generations, each counted from samples of the one before: the "
        "entropy, which falls away from that of the source, and the number of words that are "
        "still written.  Below, the last generation's probabilities beside the true ones: rare "
        "words are gone."
    )

    temperature = Limited(1, low=0.6, high=1.4, step=0.05, label="temperature")
    fresh = Limited(0, low=0, high=1, step=0.05, label="share of fresh samples")
    samples = Whole(200, low=50, high=2_000, step=50, label="samples per generation")
    seed = Whole(1, low=0, high=9_999, step=1, label="seed")
