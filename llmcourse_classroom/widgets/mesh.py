"""A widget about the mesh of ranks: replicas, stages, slices, and what a layout demands."""

from typing import Any

import traitlets

from llmcourse.model import PRESETS as MODELS
from llmcourse_classroom.state import Choice, Named, Whole, one_of
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cost

MOST_GPUS = 16_384

_LLAMA3 = {
    "model": "llama3_405b",
    "gpus": 16_384,
    "gpus_per_server": 8,
    "dp": 128,
    "pp": 16,
    "cp": 1,
    "tp": 8,
    "batch_tokens": 2**24,
    "sequence_length": 8_192,
    "micro_batch": 1,
}
_POPULAR = {"model": "llama3_70b", "dp": 512, "pp": 4, "batch_tokens": 2**22}
_SMALL = {"model": "llama3_8b", "gpus": 16, "dp": 2, "pp": 2, "cp": 2, "tp": 2}

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3_16384": ("Llama 3 405B on 16,384 GPUs", _LLAMA3),
    "llama3_8192": ("Llama 3 405B on 8,192 GPUs", _LLAMA3 | {"gpus": 8_192, "dp": 64}),
    "llama3_long": (
        "Llama 3 405B, sequences of 131,072",
        _LLAMA3 | {"dp": 8, "cp": 16, "sequence_length": 131_072},
    ),
    "popular": ("often told: 512 replicas share 4 M tokens", _LLAMA3 | _POPULAR),
    "racks": (
        "16,384 GPUs in racks of 72",
        _LLAMA3 | {"gpus_per_server": 72, "dp": 227, "pp": 1, "tp": 72},
    ),
    "small": ("16 GPUs, few enough to count", _LLAMA3 | _SMALL | {"batch_tokens": 2**16}),
}
"""What a layout is called, and the state that it sets.

Those of Llama 3 405B are the rows of table 4 of https://arxiv.org/abs/2407.21783 (the third has
DP 8, as 16,384 / (8 x 16 x 16) demands); the micro-batch is taken to be one sequence.
"""


class MeshGrid(Widget):
    """A replica drawn large beside all others, whom a rank talks to, and the batch that they share.

    Args:
        preset: one of `LAYOUTS`; the state starts from it.
        state: dp, pp, cp, tp (the sizes of the mesh), gpus, gpus_per_server, model (llama3_8b,
            llama3_70b or llama3_405b), batch_tokens, sequence_length, micro_batch (sequences),
            rank (the chosen one), axis (along which it sends: "tp", "cp", "pp", "dp" or "none").

    Raises:
        ValueError: if there is no such preset.
    """

    script = "mesh_grid.js"
    alt = (
        "One replica of a model drawn large, a cell for each GPU: 16 pipeline stages of 8 slices; "
        "beside it small tiles for all 128 replicas.  What a chosen rank sends along an axis flies "
        "to its group: to the row of its own server, to the stages above and below, or to the same "
        "place of all other replicas.  A batch of "
        "16 M tokens has 16 sequences for each replica; with 512 replicas and 4 M tokens there is "
        "one, and a pipeline of 4 stages waits three times as long as it works."
    )

    preset = Named().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    models = traitlets.Dict().tag(sync=True)
    model = Choice(("llama3_8b", "llama3_70b", "llama3_405b"), default="llama3_405b")
    dp = Whole(128, low=1, high=MOST_GPUS, step=1, label="DP: replicas")
    pp = Whole(16, low=1, high=128, step=1, label="PP: stages")
    cp = Whole(1, low=1, high=64, step=1, label="CP: parts of a sequence")
    tp = Whole(8, low=1, high=128, step=1, label="TP: slices of a layer")
    gpus = Whole(MOST_GPUS, low=1, high=MOST_GPUS, step=1, label="GPUs")
    gpus_per_server = Whole(8, low=1, high=128, step=1, label="GPUs in a server")
    batch_tokens = Whole(2**24, low=2**10, high=2**28, step=1, label="tokens in a global batch")
    sequence_length = Whole(8_192, low=2**7, high=2**20, step=1, label="tokens in a sequence")
    micro_batch = Whole(1, low=1, high=64, step=1, label="sequences in a micro-batch")
    rank = Whole(0, low=0, high=MOST_GPUS - 1, step=1, label="rank")
    axis = Choice(("none", "tp", "cp", "pp", "dp"))

    def __init__(self, preset: str = "llama3_16384", **state: Any) -> None:
        one_of("preset", preset, LAYOUTS)
        presets = {name: {"label": label, "state": to} for name, (label, to) in LAYOUTS.items()}
        models = {name: _described(name) for name in self.traits()["model"].options}
        fixed = {"preset": preset, "presets": presets, "models": models}
        super().__init__(bounds={"preset": LAYOUTS}, **fixed, **(LAYOUTS[preset][1] | state))


def _described(name: str) -> dict[str, Any]:
    config = MODELS[name]()
    label = {"llama3_8b": "Llama 3 8B", "llama3_70b": "Llama 3 70B", "llama3_405b": "Llama 3 405B"}
    return {
        "label": label[name],
        "layers": config.num_layers,
        "kv_heads": config.num_kv_heads,
        "parameters": cost.num_parameters(config),
    }
