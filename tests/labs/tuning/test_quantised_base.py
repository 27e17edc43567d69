"""LoRA beside blocks of 4 bits is LoRA on the matrices that they stand for, and holds none of them.

Mutants: a matrix kept whole; made anew without B A, or with A alone; a file's blocks of another
matrix; a merge that leaves the blocks' own weights out; gains that are not the file's; the whole
model of the file opened beside the blocks.
"""

import pytest
import torch

from llmcourse import loss as losses
from llmcourse import train
from llmcourse.base import runtime
from llmcourse.model import ops
from llmcourse.train import sampling
from llmcourse_labs.export import export_model
from llmcourse_labs.export.folder import export_adapter
from llmcourse_labs.real import opening
from llmcourse_labs.real.gguf_blocks import quantise_q4_1
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_names import decoder_from_gguf
from llmcourse_labs.real.gguf_writer import write_gguf
from llmcourse_labs.real.quantise import frozen
from llmcourse_labs.tuning import fine_tuning, tune
from llmcourse_labs.tuning.lora import LowRank, add_low_rank, merged
from tests.labs.real.test_opening import TALK, decoder, file, tokenizer  # noqa: F401 - fixtures
from tests.labs.tuning.test_conversations import QUICK, talk  # noqa: F401 - fixture

IDS = torch.tensor([[5, 7, 200, 7, 9], [1, 2, 3, 4, 5]])


@pytest.fixture(scope="module")
def few_bits(tmp_path_factory, decoder, tokenizer):  # noqa: F811
    """The model that was taught to talk, in Q4_1 and Q8_0."""
    path = tmp_path_factory.mktemp("blocks") / "few.gguf"
    ids = {"eos": tokenizer.special_tokens["<|im_end|>"]}
    settings = {"template": TALK, "token_ids": ids, "kind": "Q4_1"}
    write_gguf(path, decoder.state_dict(), decoder.config, tokenizer, **settings)
    return path


def with_lora(path, *, in_blocks):
    """The model of a file with LoRA whose B is not zero."""
    opened = GgufFile(path)
    made, generator = decoder_from_gguf(opened), runtime.generator(1)
    if in_blocks:
        for weight in made.parameters():  # it had others before
            weight.detach().normal_(generator=generator)
        generator = runtime.generator(1)
        frozen.keep_in_blocks(made, opened)
    add_low_rank(made, 3, generator=generator)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith(".b"):
                weight.add_(torch.randn(weight.shape, generator=generator) / 10)
    return made


def learnt(made):
    return [w for w in made.parameters() if w.requires_grad]


def bytes_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def test_loss_and_gradients_are_those_of_the_matrices_to_the_bit(few_bits):
    whole, blocks = (with_lora(few_bits, in_blocks=packed) for packed in (False, True))
    values = [losses.cross_entropy(made(IDS)[:, :-1], IDS[:, 1:]) for made in (whole, blocks)]
    assert torch.equal(*values)
    found = torch.autograd.grad(values[1], learnt(blocks))
    right = torch.autograd.grad(values[0], learnt(whole))
    assert len(found) == 2 * 7 * whole.config.num_layers
    assert all(f.any() and torch.equal(f, r) for f, r in zip(found, right, strict=True))
    once, again = (merged(made.state_dict()) for made in (blocks, whole))
    assert once.keys() == again.keys()
    assert all(torch.equal(once[name], weight) for name, weight in again.items())


def test_a_step_keeps_no_matrix(few_bits, monkeypatch):
    kept = {True: [], False: []}

    def noting(packed):
        keep = frozen._note_or_tensor if packed else lambda t: t.detach()

        def note(saved):
            kept[packed].append(keep(saved))
            return kept[packed][-1]

        return lambda: torch.autograd.graph.saved_tensors_hooks(note, frozen._tensor_of)

    monkeypatch.setattr(frozen, "made_anew", noting(True))
    blocks = with_lora(few_bits, in_blocks=True)
    blocks(IDS)
    whole = with_lora(few_bits, in_blocks=False)
    with noting(False)():
        whole(IDS)
    matrices = [w for n, w in merged(whole.state_dict()).items() if ".w_" in n or n == "embedding"]
    tensors = ([t for t in kept[packed] if torch.is_tensor(t)] for packed in (False, True))
    every, others = (bytes_of(*found) for found in tensors)
    assert every - others == bytes_of(*matrices)
    few = [t for name, t in blocks.state_dict().items() if name.endswith("original0")]
    assert bytes_of(*few) < 0.22 * bytes_of(*matrices)
    assert all(t.dtype == torch.uint8 for t in few)
    assert sum(w.numel() for w in blocks.parameters() if not w.requires_grad) == (
        sum(w.numel() for name, w in whole.named_parameters() if name.endswith("gain"))
    )
    assert len(few) == len(matrices)


def test_gradients_through_blocks_are_derivatives():
    generator = runtime.generator(0)
    w = torch.randn(3, 32, generator=generator)
    beside = frozen.InBlocks(quantise_q4_1(w).view(3, 1, 20))
    sizes = ((2, 4, 32), (2, 32), (3, 2))
    given = [torch.randn(s, generator=generator).double().requires_grad_() for s in sizes]
    thin = LowRank(3, 32, 2, generator=generator)

    def product(x, a, b):
        (blocks,) = frozen.InBlocks(quantise_q4_1(w).view(3, 1, 20)).right_inverse(w)
        whole = torch.func.functional_call(thin, {"a": a, "b": b}, (beside(blocks),))
        return ops.linear(x, whole).sin()

    with frozen.made_anew():
        assert torch.autograd.gradcheck(product, given)


def run(path, data, out, *words):
    told = ["--model", str(path), "--data", str(data), "--out", str(out), "--lora_rank", "2"]
    assert tune.main([*told, *QUICK, "--sample_tokens", "1", *words]) == 0


def test_a_run_is_that_of_the_matrices(few_bits, talk, tmp_path, monkeypatch):  # noqa: F811
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    run(few_bits, talk, plain)
    with monkeypatch.context() as patch:  # no matrix of the file is whole beside those of the run
        patch.setattr(fine_tuning, "open_model", None)
        run(few_bits, talk, packed, "--quantised_base", "true")
    one, other = (sampling.load(out)[0].state_dict() for out in (plain, packed))
    assert all(torch.equal(one[name], weight) for name, weight in other.items())
    before = opening.open_model(few_bits).decoder.state_dict()
    assert not torch.equal(one["blocks.0.attention.w_q"], before["blocks.0.attention.w_q"])
    to = opening.open_model(export_adapter(packed, tmp_path / "adapter")).decoder.state_dict()
    assert all(torch.equal(one[name], weight) for name, weight in to.items())
    again = train.resume(packed, steps=5)
    held = merged(again.model.state_dict())
    assert all(torch.equal(one[name], weight) for name, weight in held.items())
    assert train.step(again).step == 5


REFUSED = {
    "no blocks": (["--model", "PLAIN", "--lora_rank", "2"], "holds no matrix in blocks"),
    "a folder": (["--model", "FOLDER", "--lora_rank", "2"], "is a folder"),
    "nothing learns": (["--model", "FEW"], "and --lora_rank"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_blocks_is_told(case, few_bits, file, talk, capsys):  # noqa: F811
    words, told = REFUSED[case]
    folder = few_bits.parent / "folder"
    places = {"PLAIN": str(file), "FEW": str(few_bits), "FOLDER": str(folder)}
    if "FOLDER" in words:
        export_model(file, folder)
    words = [places.get(word, word) for word in words]
    out = ["--data", str(talk), "--out", str(few_bits.parent / "run"), "--quantised_base", "true"]
    assert tune.main([*words, *out, *QUICK]) == 2
    assert told in capsys.readouterr().err
