"""What a model can do, and whether a score may be believed.

Taught in: chapters/44_contamination.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.evaluate.contamination import (
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
    from llmcourse.evaluate.villages import (
        OPTIONS,
        Question,
        Villages,
        make_canary,
    )

lazy(__name__)
