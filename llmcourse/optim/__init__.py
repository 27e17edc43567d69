"""Optimizers, gradient clipping and learning-rate schedules, written to be read.

An optimizer here is a `torch.optim.Optimizer`, so that it can stand wherever torch's own does.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/25_optimizers.ipynb, chapters/26_learning_rate.ipynb, chapters/28_stability.ipynb, chapters/29_weights.ipynb, chapters/32_batch_size.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.optim.adamw import (
        Adam,
        AdamW,
        LightOptimizer,
        PerTensor,
        clip_by_global_norm,
        decay_groups,
    )
    from llmcourse.optim.descent import SGD, RMSProp
    from llmcourse.optim.factored import Adafactor
    from llmcourse.optim.lion import Lion
    from llmcourse.optim.muon import Muon, MuonAndAdamW, newton_schulz
    from llmcourse.optim.schedules import (
        LLAMA3_405B_BATCHES,
        BatchStage,
        Cosine,
        Schedule,
        WarmupStableDecay,
        batch_at,
        llama3_405b_rate,
        num_steps_for,
        rate_for_batch,
        warmup_cosine,
        warmup_cosine_anneal,
        warmup_stable_decay,
    )
    from llmcourse.optim.settings import (
        AdafactorSettings,
        AdamWSettings,
        LionSettings,
        MuonSettings,
        OptimizerBase,
        OptimizerSettings,
        WithBetas,
    )
    from llmcourse.optim.stability import qk_clip, soft_cap

lazy(__name__)
