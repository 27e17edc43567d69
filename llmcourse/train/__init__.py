"""A training run: its settings, the step in seven phases, the loop, and the command line.

    llmcourse train --preset stories --out runs/a

Taught in: chapters/01_whole_run.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb, chapters/30_checkpoints.ipynb, chapters/32_batch_size.ipynb, chapters/38_orchestration.ipynb, chapters/40_sft.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.train.config import PRESETS, TrainConfig, Watching
    from llmcourse.train.layout_settings import MeshRanks, OneProcess, SeveralRanks, TorchRanks
    from llmcourse.train.layouts import Batch, Layout, layout_on
    from llmcourse.train.loop import (
        FitResult,
        fit,
        resume,
        start,
    )
    from llmcourse.train.phases import (
        StepReport,
        TrainingDivergedError,
        learning_rate,
        step,
        sync,
    )
    from llmcourse.train.prepare import Prepared, prepare, texts
    from llmcourse.train.ranks import RanksResult, fit_on_ranks, resume_on_ranks
    from llmcourse.train.run import Run, new_run, save
    from llmcourse.train.signals import GoneError
    from llmcourse.train.validation import Validation, sample, validate

lazy(__name__)
