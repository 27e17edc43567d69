"""What a trained model can do, and how sure one may be: benchmarks and their intervals.

Taught in: chapters/43_benchmarks.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.evaluate.battles import (
        Battle,
        bradley_terry,
        bradley_terry_intervals,
        chance_to_win,
        elo,
        elo_points,
    )
    from llmcourse.evaluate.benchmarks import (
        HOW,
        ChoiceItem,
        ChoiceScores,
        TextLoss,
        are_right,
        choice_scores,
        chosen,
        text_loss,
    )
    from llmcourse.evaluate.command import evaluate, load_model
    from llmcourse.evaluate.intervals import (
        Interval,
        Pair,
        bootstrap,
        items_to_tell,
        mcnemar,
        paired,
        paired_bootstrap,
        wilson,
    )
    from llmcourse.evaluate.suites import SKILLS, listed, story_items
    from llmcourse.evaluate.trust import (
        PERTURBATIONS,
        Bin,
        Refusals,
        confidences,
        expected_calibration_error,
        perturbed,
        refusals,
        reliability,
    )

lazy(__name__)
