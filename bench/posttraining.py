"""Sampling in a batch against Hugging Face's `generate`, and a step of fine-tuning against trl's.

trl is no part of the environment: `make peers` installs it, and without it its row is left out.
"""

import importlib.util
import tempfile
import time
from pathlib import Path

import torch

from bench.model import shape
from bench.peers import hugging_face
from bench.timing import medians, row
from llmcourse import train
from llmcourse.model import Transformer, generate
from llmcourse_labs.export.folder import export
from llmcourse_labs.tuning import sft_config

SAMPLED = {
    "4 x 128, 16 prompts of 16 tokens, 48 more": (4, 128, 4, 64, 16),
    "6 x 384, 8 prompts of 64 tokens, 64 more": (6, 384, 6, 128, 8),
}


def rows(*, quick: bool) -> list[dict]:
    """Measure."""
    return sampling_rows(quick) + fine_tuning_rows(quick)


def sampling_rows(quick: bool) -> list[dict]:
    found = []
    for name, (layers, width, heads, context, batch) in SAMPLED.items():
        config = shape(layers, width, heads, context)
        given = 16 if context == 64 else 64
        ours = Transformer(config, generator=torch.Generator().manual_seed(0)).eval()
        theirs = hugging_face(config, attention="sdpa").eval()
        theirs.generation_config.eos_token_id = None  # no answer ends: both sides draw as many
        prompts = torch.randint(
            0, config.vocab_size, (batch, given), generator=torch.Generator().manual_seed(1)
        )
        more = context - given
        g = torch.Generator().manual_seed(2)
        # Bound now: the loop goes on with another shape.
        sides = {
            "ours": lambda m=ours, p=prompts, n=more, g=g: generate(
                m, p, max_new_tokens=n, generator=g
            ),
            "Hugging Face generate": lambda m=theirs, p=prompts, n=more: m.generate(
                p,
                attention_mask=torch.ones_like(p),
                max_new_tokens=n,
                do_sample=True,
                use_cache=True,  # the model's own setting, for training, is without
                top_k=0,
                pad_token_id=0,
            ),
        }
        seconds = medians(sides, repeats=3 if quick else 15, warm_up=1)
        rate = {side: batch * more / s for side, s in seconds.items()}
        peer = "Hugging Face generate"
        found.append(
            row(f"sampling, {name}", rate["ours"], rate[peer], peer, "tokens/s", aim=">= 1.5")
        )
    return found


def fine_tuning_rows(quick: bool) -> list[dict]:
    """Compare whole runs of as many steps on as many tokens, data and all; see the module."""
    if importlib.util.find_spec("trl") is None:
        return []
    steps = 10 if quick else 60
    quiet = {"sample_tokens": 1, "validate_every": 0, "checkpoint_every": 0, "sample_every": 0}
    with tempfile.TemporaryDirectory() as folder:
        base = train.PRESETS["stories"]().replace(steps=2, warmup_steps=1, **quiet)
        train.fit(train.start(base, Path(folder) / "base"))
        config = sft_config(
            Path(folder) / "base", steps=2 * steps, batch_size=12, examples=4_000, **quiet
        )
        run = train.start(config, Path(folder) / "chat")
        ours = Steps(steps)
        train.fit(run, on_step=lambda _run, _report: ours.done())
        batch = train.phases.load(run)
        theirs = Steps(steps)
        _trl(config, batch, export(Path(folder) / "chat", Path(folder) / "exported"), theirs)
    places = batch.inputs_BT.numel()
    name = f"fine-tuning, stories model, {len(batch.inputs_BT)} rows of {batch.inputs_BT.shape[1]}"
    rates = (places / ours.seconds, places / theirs.seconds)
    return [row(name, *rates, "trl SFTTrainer", "tokens/s")]


class Steps:
    """The mean seconds of the second half of a run's steps."""

    def __init__(self, half: int) -> None:
        self.half, self.number = half, 0

    def done(self) -> None:
        """Note that a step is over."""
        self.number += 1
        if self.number == self.half:
            self.started = time.perf_counter()
        if self.number == 2 * self.half:
            self.seconds = (time.perf_counter() - self.started) / self.half


def _trl(config: train.TrainConfig, batch, exported: Path, steps: Steps) -> None:
    """Train an exported model with trl, on rows like those of the batch."""
    import pyarrow  # noqa: PLC0415 - an extra, as are the others
    from datasets import Dataset  # noqa: PLC0415
    from datasets.table import InMemoryTable  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: PLC0415
    from trl import SFTConfig, SFTTrainer  # noqa: PLC0415

    class Count(TrainerCallback):
        def on_step_end(self, *_args, **_given) -> None:
            steps.done()

    rows = [
        {"input_ids": ids, "labels": [t if t >= 0 else -100 for t in targets]}
        for ids, targets in zip(batch.inputs_BT.tolist(), batch.targets_BT.tolist(), strict=True)
    ]
    settings = SFTConfig(
        output_dir=str(exported / "trl"),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.schedule.learning_rate,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        optim="adamw_torch_fused",
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
    )
    SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(exported),
        args=settings,
        # With a name of its own the table is not hashed, which fails with the pinned pyarrow.
        train_dataset=Dataset(
            InMemoryTable(pyarrow.Table.from_pylist(rows * config.steps)), fingerprint="rows"
        ),
        processing_class=AutoTokenizer.from_pretrained(exported),
        callbacks=[Count()],
    ).train()
