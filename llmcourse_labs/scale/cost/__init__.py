"""What a model costs: parameters, FLOPs, bytes and GPU hours, as pure functions of its shape.

Taught in: chapters/10_blueprint.ipynb, chapters/14_mixture_of_experts.ipynb, chapters/15_splitting_the_model.ipynb, chapters/20_activation_memory.ipynb, chapters/35_cost.ipynb, chapters/37_hardware.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.cost.bill import (
        Bill,
        bill,
        break_even_tokens,
        days,
        dollars,
        energy_kwh,
        gpu_hours,
    )
    from llmcourse_labs.scale.cost.counts import (
        Counts,
        DeepSeekShape,
        deepseek_parameters,
        latent_attention_parameters,
        mixture_parameters,
        total_of,
    )
    from llmcourse_labs.scale.cost.hardware import (
        FP32_TRAINING,
        HARDWARE,
        MIXED_TRAINING,
        MIXED_WIDE_GRADIENTS,
        MOMENTS_IN_BF16,
        Hardware,
        TrainingBytes,
        training_seconds,
    )
    from llmcourse_labs.scale.cost.layout import (
        FP32,
        LLAMA_3,
        Precision,
        RankParameters,
        Step,
        layout_bytes,
        llama_405b_steps,
        rank_parameters,
    )
    from llmcourse_labs.scale.cost.model import (
        FORGOTTEN,
        Forgotten,
        forward_flop_by_part,
        gpt2_parameters_by_part,
        kept_bytes,
        kv_cache_bytes_per_token,
        num_active_parameters,
        num_parameters,
        parameters_by_part,
        training_flop_per_token,
    )
    from llmcourse_labs.scale.cost.published import PUBLISHED, PublishedRun
    from llmcourse_labs.scale.cost.traffic import (
        Bytes,
        context_parallel_bytes,
        expert_parallel_bytes,
        pipeline_bytes,
        tensor_parallel_bytes,
    )
    from llmcourse_labs.scale.cost.utilisation import (
        model_flop_per_token,
        training_flop_by_phase,
        utilisation,
        utilisation_from_hours,
        utilisation_from_rate,
    )

lazy(__name__)
