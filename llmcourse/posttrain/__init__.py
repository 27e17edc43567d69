"""What comes after pretraining: learning to answer, and training on what a model wrote.

Taught in: chapters/08_synthetic_data.ipynb, chapters/40_sft.ipynb, chapters/41_preferences.ipynb, chapters/42_reward_hacking.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.posttrain.conversation import Conversation, load_for_chat
    from llmcourse.posttrain.fitting import (
        FitSettings,
        PairRows,
        answer_ids,
        fit_answers,
        fit_preferences,
        fit_reward_model,
        pair_log_probs,
        pair_rows,
    )
    from llmcourse.posttrain.likelihood import (
        AnswerRows,
        answer_log_probs,
        answer_rows,
        token_log_probs,
    )
    from llmcourse.posttrain.policy_gradient import (
        GroupAdvantages,
        ValueHead,
        clipped_objective,
        gae,
        group_advantages,
        k1,
        k2,
        k3,
        mean_over_answers,
        num_equal_groups,
    )
    from llmcourse.posttrain.preferences import (
        PreferenceLoss,
        RewardModel,
        bradley_terry_loss,
        dpo_loss,
        ipo_loss,
        optimal_policy,
        simpo_loss,
    )
    from llmcourse.posttrain.rewards import (
        Point,
        World,
        best_of_n,
        best_of_n_bound,
        best_stop,
        combined,
        kl,
        over_optimised,
        tilted,
        trick_world,
        within_kl,
    )
    from llmcourse.posttrain.rl import RLRun
    from llmcourse.posttrain.rl_config import RLConfig
    from llmcourse.posttrain.rollout import Drawn, Reward, Rollout, draw_answers, rolled_out
    from llmcourse.posttrain.self_training import (
        Generation,
        Verified,
        generations,
        is_grammatical,
        rare_tokens,
        tail_loss,
        verify_and_keep,
        write_documents,
    )
    from llmcourse.posttrain.sft import Score, answers, judge, prompt_ids, score, sft_config

lazy(__name__)
