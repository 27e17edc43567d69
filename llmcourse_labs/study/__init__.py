"""Experiments with the package: what a number does, and what is inside a model.

Taught in: chapters/01_whole_run.ipynb, chapters/10_blueprint.ipynb, chapters/11_attention.ipynb, chapters/12_feed_forward.ipynb, chapters/13_norm_rope_silu.ipynb, chapters/16_cross_entropy.ipynb, chapters/25_optimizers.ipynb, chapters/26_learning_rate.ipynb, chapters/29_weights.ipynb, chapters/30_checkpoints.ipynb, chapters/32_batch_size.ipynb, chapters/46_real_model.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.study.batch_law import BatchLaw, fit_batch_law
    from llmcourse_labs.study.inspect import (
        attention_maps,
        hidden_units,
        largest_scores,
        queries_and_keys,
        residual_rms,
    )
    from llmcourse_labs.study.latent import LatentCache, latent_attention, latent_attention_absorbed
    from llmcourse_labs.study.lens import (
        attention_to_first,
        heads_off,
        induction_scores,
        logit_lens,
    )
    from llmcourse_labs.study.master_weights import MasterWeights
    from llmcourse_labs.study.mup import mup_groups, mup_start
    from llmcourse_labs.study.noise_scale import (
        NoiseScale,
        noise_scale_from_gradients,
        noise_scale_from_squares,
    )
    from llmcourse_labs.study.range_test import RangeTest, range_test
    from llmcourse_labs.study.story_skills import StoryReport, Tally, story_report
    from llmcourse_labs.study.toy_run import outcome

lazy(__name__)
