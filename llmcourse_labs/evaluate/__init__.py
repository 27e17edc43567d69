"""What a trained model can do, how sure one may be, and whether a score may be believed.

Taught in: chapters/43_benchmarks.ipynb, chapters/44_contamination.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.evaluate.battles import (
        Battle,
        bradley_terry,
        bradley_terry_intervals,
        chance_to_win,
        elo,
        elo_points,
    )
    from llmcourse_labs.evaluate.benchmarks import (
        HOW,
        ChoiceItem,
        ChoiceScores,
        TextLoss,
        are_right,
        choice_scores,
        chosen,
        text_loss,
    )
    from llmcourse_labs.evaluate.command import evaluate, load_model, weights_hash
    from llmcourse_labs.evaluate.contamination import (
        CanaryTest,
        SplitScore,
        canary_test,
        exchangeability_p_value,
        min_k_log_prob,
        order_log_prob,
        overlapping_items,
        pair_log_probs,
        split_score,
        threshold_at,
    )
    from llmcourse_labs.evaluate.intervals import (
        Interval,
        Pair,
        bootstrap,
        items_to_tell,
        mcnemar,
        paired,
        paired_bootstrap,
        wilson,
    )
    from llmcourse_labs.evaluate.needles import (
        FACTS,
        NEEDLE_VOCAB,
        NUM_THINGS,
        QUESTIONS,
        NeedleRows,
        needle_rows,
        needle_tests,
    )
    from llmcourse_labs.evaluate.report import report
    from llmcourse_labs.evaluate.report_ability import benchmarks_section
    from llmcourse_labs.evaluate.report_run import read_evaluation, read_run
    from llmcourse_labs.evaluate.suites import SKILLS, listed, story_items
    from llmcourse_labs.evaluate.trust import (
        PERTURBATIONS,
        Bin,
        Refusals,
        confidences,
        expected_calibration_error,
        perturbed,
        refusals,
        reliability,
    )
    from llmcourse_labs.evaluate.villages import OPTIONS, VillageQuestion, Villages, make_canary

lazy(__name__)
