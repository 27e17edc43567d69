"""What comes after pretraining: learning to answer, and training on what a model wrote.

Taught in: chapters/08_synthetic_data.ipynb, chapters/40_sft.ipynb, chapters/41_preferences.ipynb, chapters/42_reward_hacking.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.tuning.answer_tree import (
        draw_trees,
        grow_trees,
        probabilities,
        right_probabilities,
    )
    from llmcourse_labs.tuning.arithmetic import (
        CHECKERS,
        Question,
        is_held_out,
        make_products,
        make_sums,
        result,
    )
    from llmcourse_labs.tuning.chat_format import (
        CHAT_TOKENS,
        ChatTokens,
        Turn,
        answer_mask,
        chat_tokens,
        with_chat_tokens,
    )
    from llmcourse_labs.tuning.checked import (
        Asked,
        Checked,
        CheckedSettings,
        as_asked,
        checked_loss,
        learn_checked,
        side_by_side,
    )
    from llmcourse_labs.tuning.conversation import Conversation, load_for_chat
    from llmcourse_labs.tuning.distillation import (
        SoftLossesSaved,
        distillation,
        soft_losses_backward,
        soft_losses_forward,
    )
    from llmcourse_labs.tuning.fitting import (
        FitSettings,
        PairRows,
        answer_ids,
        fit_answers,
        fit_preferences,
        fit_reward_model,
        pair_log_probs,
        pair_rows,
    )
    from llmcourse_labs.tuning.likelihood import (
        AnswerRows,
        answer_log_probs,
        answer_rows,
        token_log_probs,
    )
    from llmcourse_labs.tuning.lora import low_rank_merged
    from llmcourse_labs.tuning.off_policy import answer_log_ratios, truncated_weights
    from llmcourse_labs.tuning.policy_gradient import (
        GroupAdvantages,
        ValueHead,
        clipped_objective,
        gae,
        group_advantages,
        k1,
        k2,
        k3,
        mean_over_answers,
        mean_over_tokens,
        num_equal_groups,
    )
    from llmcourse_labs.tuning.preference_data import (
        RIGHT_STYLES,
        STYLES,
        Pair,
        Style,
        mixed_answers,
        preference_pairs,
        preferred,
        styled,
        utility,
        wrong_answers,
    )
    from llmcourse_labs.tuning.preferences import (
        PreferenceLoss,
        RewardModel,
        bradley_terry_loss,
        dpo_loss,
        ipo_loss,
        optimal_policy,
        simpo_loss,
    )
    from llmcourse_labs.tuning.refusing import make_requests, refuses
    from llmcourse_labs.tuning.rewards import (
        Point,
        World,
        best_of_n,
        best_of_n_bound,
        best_stop,
        combined,
        kl,
        kl_optimal,
        over_optimised,
        trick_world,
        within_kl,
    )
    from llmcourse_labs.tuning.rl import RLRun
    from llmcourse_labs.tuning.rl_config import RLConfig
    from llmcourse_labs.tuning.rollout import Drawn, Reward, Rollout, draw_answers, rolled_out
    from llmcourse_labs.tuning.self_training import (
        Generation,
        Verified,
        generations,
        is_grammatical,
        rare_tokens,
        tail_loss,
        verify_and_keep,
        write_documents,
    )
    from llmcourse_labs.tuning.sft import Score, answers, judge, prompt_ids, score, sft_config
    from llmcourse_labs.tuning.tasks import Task, check, in_format, make_tasks, part_of
    from llmcourse_labs.tuning.tune_config import TuneConfig
    from llmcourse_labs.tuning.votes import pass_at, vote

lazy(__name__)
