"""A run, or a model of others, for transformers and for llama.cpp: a folder, or one GGUF file.

    llmcourse export --run runs/a --to exported/a
    llmcourse export --model smollm2 --to smollm2.gguf --dtype q8_0
    llmcourse export --run runs/mine --to adapters/mine --adapter

A safetensors file holds tensors and nothing that could run: its header is JSON, names, shapes and
offsets; then come the bytes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from jsonargparse import ArgumentParser

from llmcourse.base.command_line import ended
from llmcourse.checkpoint import Checkpoint
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import ModelConfig, Transformer
from llmcourse.model.huggingface import obstacle
from llmcourse.train.config import TrainConfig
from llmcourse.train.sampling import add_source, check_source
from llmcourse.train.saved import as_value_error, config_and_checkpoint, config_of
from llmcourse.train.stage import stage_of
from llmcourse_labs.export import huggingface
from llmcourse_labs.export.huggingface import DType
from llmcourse_labs.export.model_card import card_of_others, model_card
from llmcourse_labs.real import split_experts, to_huggingface
from llmcourse_labs.real.gguf_writer import write_gguf
from llmcourse_labs.real.opening import about_model, open_model
from llmcourse_labs.real.peft_adapter import adapter_files
from llmcourse_labs.real.whole_folder import WEIGHTS, refuse_taken, write_folder
from llmcourse_labs.tuning.chat_format import END_OF_TURN
from llmcourse_labs.tuning.conversations import template_of
from llmcourse_labs.tuning.lora import adapter_of

PROGRAM = "llmcourse export"
GGUF_KINDS = {"float32": "F32", "float16": "F16", "q8_0": "Q8_0"}
"""By dtype of a GGUF file: what it is called there."""


class Parts(NamedTuple):
    """What is exported, from wherever it came."""

    model: ModelConfig
    state: dict[str, torch.Tensor]
    """Under our names."""
    tokenizer: Tokenizer
    tokens: dict[str, str]
    """eos_token, and others that a template calls by name."""
    stop_ids: list[int]
    """Where the model stops: at the end of a document, first of all, and of a turn."""
    template: str | None
    """Of conversations; None of a model that was not taught to talk."""
    begin_ids: tuple[int, ...]
    """Before a text."""
    card: Callable[[bytes], str]
    """Returns README.md for model.safetensors."""


def export(
    run_folder: str | Path, to: str | Path, *, dtype: DType = "float32", force: bool = False
) -> Path:
    """Write the newest intact checkpoint of a run for others; return where.

    It appears under its name only when all of it is on disk.

    Args:
        run_folder: where the run was started.
        to: the new folder, for transformers; or the new file, for llama.cpp, if it ends in .gguf.
        dtype: of the weights: in a folder float32 or bfloat16, in a file float32, float16 or q8_0;
            all but float32 round them.
        force: replace an export that stands there.  If the process is killed between the two
            renames, the old one is left whole as .NAME.HEX.old, the new one as .NAME.HEX.tmp.

    Raises:
        ValueError: if the run has no intact checkpoint, there is no class for its model elsewhere,
            dtype is not one that can be, or something stands at `to` that may not be replaced.
        OSError: if a file cannot be read or written; what stood at `to` goes only when the new
            one has its name.
    """
    run_folder = Path(run_folder)
    return _written(
        lambda name: parts_of_run(run_folder, name, dtype), to, dtype=dtype, force=force
    )


def export_model(
    what: str | Path, to: str | Path, *, dtype: DType = "float32", force: bool = False
) -> Path:
    """Write a model of others as `export` writes a run.

    Args:
        what: as `real.opening.open_model` takes it.
        to: as in `export`.
        dtype: as in `export`.
        force: as in `export`.

    Raises:
        ValueError: as in `export`, and if the model cannot be opened.
        OSError: as in `export`.
    """
    return _written(lambda name: parts_of_model(what, name), to, dtype=dtype, force=force)


def _written(read: Callable[[str], Parts], to: str | Path, *, dtype: DType, force: bool) -> Path:
    """Write what is read for a name, as a folder or a GGUF file."""
    to = Path(to).resolve()
    in_one_file = to.suffix == ".gguf"
    allowed = tuple(GGUF_KINDS) if in_one_file else ("float32", "bfloat16")
    if dtype not in allowed:
        form = "a .gguf file" if in_one_file else "a folder"
        raise ValueError(f"dtype of {form} must be one of {', '.join(allowed)}, got {dtype!r}")
    if in_one_file:
        _refuse_taken_file(to, force=force)
        write_parts(to, read(to.stem), kind=GGUF_KINDS[dtype])
        return to
    refuse_taken(to, force=force)
    return write_folder(to, _contents(read(to.name), dtype), force=force)


def export_adapter(run_folder: str | Path, to: str | Path, *, force: bool = False) -> Path:
    """Write what LoRA has learnt in a run from a model of others, for peft; return where.

    Args:
        run_folder: where the run was started.
        to: the new folder.
        force: as in `export`.

    Raises:
        ValueError: as `export`, and if the run has no thin matrices, or more than them.
        OSError: as `export`.
    """
    to = Path(to).resolve()
    refuse_taken(to, force=force)
    config, saved = config_and_checkpoint(Path(run_folder))
    _refuse_other_models(config)
    with as_value_error(Path(run_folder)):
        thin = adapter_of(saved.model)
        contents = adapter_files(thin, config.model, base=getattr(config, "start", ""))
    return write_folder(to, contents, force=force)


def write_parts(
    to: Path, parts: Parts, *, kind: str, blocks: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write a GGUF file; llama.cpp calls the tokens by other names.

    Args:
        to: of the file; one that is there is replaced.
        parts: of the model.
        kind: as `real.gguf_writer.write_gguf` takes it.
        blocks: as there.

    Raises:
        ValueError: as there, and if a text of the model begins with more than one token.
        OSError: as there.
    """
    roles = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    ids = {role: parts.tokens.get(name) for role, name in roles.items()}
    specials = parts.tokenizer.special_tokens
    token_ids = {role: specials[token] for role, token in ids.items() if token in specials}
    others = [i for i in parts.stop_ids if i != token_ids.get("eos")]
    if parts.begin_ids not in ((), (token_ids.get("bos"),)):
        raise ValueError("a GGUF file tells one token before a text, bos_token: write a folder")
    write_gguf(
        to,
        parts.state,
        parts.model,
        parts.tokenizer,
        template=parts.template,
        token_ids=token_ids | dict(zip(("eot", "eom"), others, strict=False)),
        add_bos=bool(parts.begin_ids),
        kind=kind,
        blocks=blocks,
    )


def _refuse_taken_file(to: Path, *, force: bool) -> None:
    """Raise ValueError if something stands at `to`, unless it is a GGUF file to be replaced."""
    if to.exists():
        if not force:
            raise ValueError(f"{to} exists: choose another file, or replace it with force")
        with to.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError(f"{to} is no GGUF file: force replaces an export only")


def parts_of_run(run_folder: Path, name: str, dtype: DType) -> Parts:
    """Return the parts of a run's newest checkpoint.

    Args:
        run_folder: where the run was started.
        name: in its model card.
        dtype: told there.

    Raises:
        ValueError: as `export`.
    """
    _refuse_early(run_folder)
    config, saved = config_and_checkpoint(run_folder)
    _refuse_other_models(config)
    with as_value_error(run_folder):
        saved = replace(saved, model=stage_of(config).whole(saved.model))
    _check_weights(saved, config)
    tokenizer = Tokenizer.load(run_folder / "data" / "tokenizer")
    specials = tokenizer.special_tokens
    if END_OF_TEXT not in specials:
        raise ValueError(f"expected the special token {END_OF_TEXT!r}, got {sorted(specials)}")
    template = template_of(config)
    tokens = dict.fromkeys(("bos_token", "eos_token"), END_OF_TEXT)
    stop_ids = [specials[token] for token in (END_OF_TEXT, END_OF_TURN) if token in specials]
    source = huggingface.CHAT_TEMPLATE if END_OF_TURN in specials else None
    if template is not None:
        tokens, source = dict(template.tokens), template.source
        stop_ids = sorted(template.stop_ids(tokenizer))

    def card(weights: bytes) -> str:
        return model_card(
            run_folder, config, saved, tokenizer, name=name, dtype=dtype, weights=weights
        )

    return Parts(
        model=config.model,
        state=saved.model,
        tokenizer=tokenizer,
        tokens=tokens,
        stop_ids=stop_ids,
        template=source,
        begin_ids=(),
        card=card,
    )


def parts_of_model(what: str | Path, name: str) -> Parts:
    """Return the parts of a model of others; arguments and errors as of `export_model`."""
    opened = open_model(what)
    model, tokenizer, template = opened
    if (reason := obstacle(model.config)) is not None:
        raise ValueError(reason)
    tokens = {} if template is None else dict(template.tokens)
    names = {i: token for token, i in tokenizer.special_tokens.items()}
    ends = [names[i] for i in sorted(opened.end_ids) if i in names]
    usual = END_OF_TEXT if END_OF_TEXT in ends or not ends else ends[0]
    end = tokens.setdefault("eos_token", usual)
    if end not in tokenizer.special_tokens:
        raise ValueError(f"{what} has no token that ends a text: there is no {end!r}")
    if opened.begin_ids:
        tokens.setdefault("bos_token", names[opened.begin_ids[0]])
    first = tokenizer.special_tokens[end]
    original, licence = about_model(what)
    return Parts(
        model=model.config,
        state=model.state_dict(),
        tokenizer=tokenizer,
        tokens=tokens,
        stop_ids=[first, *sorted(opened.end_ids - {first})],
        template=None if template is None else template.source,
        begin_ids=opened.begin_ids,
        card=lambda _: card_of_others(name, original, licence, model.config),
    )


def _contents(parts: Parts, dtype: DType) -> dict[str, bytes]:
    """Return every file of a folder by name."""
    weights = _weights(parts, dtype)
    begins = parts.tokens.get("bos_token", "")
    begin_id = parts.tokenizer.special_tokens.get(begins, parts.stop_ids[0])
    described = {
        "config.json": huggingface.config_json(
            parts.model, end_id=parts.stop_ids[0], begin_id=begin_id, dtype=dtype
        ),
        "generation_config.json": huggingface.generation_config_json(
            parts.model, begin_id=begin_id, end_ids=parts.stop_ids
        ),
        "tokenizer.json": huggingface.tokenizer_json(parts.tokenizer, parts.begin_ids),
        "tokenizer_config.json": huggingface.tokenizer_config_json(
            parts.model, tokens=parts.tokens, template=parts.template
        ),
    }
    return {
        WEIGHTS: weights,
        **{file: _json(value) for file, value in described.items()},
        "README.md": parts.card(weights).encode(),
    }


def _refuse_early(run_folder: Path) -> None:
    """Refuse by the settings beside the checkpoints, which may be large; those in them count."""
    try:
        path = run_folder / "config.json"
        config = config_of(json.loads(path.read_bytes()), path)
    except (OSError, ValueError, TypeError, KeyError):
        return
    _refuse_other_models(config)


def _refuse_other_models(config: TrainConfig) -> None:
    """Raise ValueError if transformers cannot compute what a run's model computes."""
    if (reason := obstacle(config.model, config.without)) is not None:
        raise ValueError(reason)


def _json(value: dict[str, Any]) -> bytes:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode()


def _check_weights(saved: Checkpoint, config: TrainConfig) -> None:
    """Raise ValueError unless a checkpoint holds the weights of its settings."""
    with torch.device("meta"):
        expected = Transformer(config.model).state_dict()
    if odd := [n for n, weight in saved.model.items() if not isinstance(weight, torch.Tensor)]:
        raise ValueError(f"the checkpoint's {odd[0]!r} is no tensor")
    if _shapes(saved.model) != _shapes(expected):
        odd = sorted(dict(_shapes(saved.model).items() ^ _shapes(expected).items()))
        raise ValueError(f"the checkpoint's weights are not those of its settings: {odd[0]}")


def _weights(parts: Parts, dtype: DType) -> bytes:
    """Return model.safetensors: Hugging Face's names, a tied head once."""
    state = split_experts(to_huggingface(parts.state, parts.model))
    if parts.model.tied_head:
        del state["lm_head.weight"]  # the same memory as the embedding: transformers ties it again
    narrow = {name: weight.to(getattr(torch, dtype)).contiguous() for name, weight in state.items()}
    return safetensors.torch.save(narrow, metadata={"format": "pt"})


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in state.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _export(arguments))


def _export(arguments: Sequence[str] | None) -> None:
    """Write the folder, and say where."""
    options = _parser().parse_args(arguments)
    check_source(options)
    how = {"dtype": options.dtype, "force": options.force}
    if options.adapter:
        if options.model is not None or options.dtype != "float32":
            raise ValueError("--adapter is of a run, in float32: give --run, and no --dtype")
        written = export_adapter(options.run, options.to, force=options.force)
    elif options.model is None:
        written = export(options.run, options.to, **how)
    else:
        written = export_model(options.model, options.to, **how)
    print(f"exported to {written}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        description="Write a run, or a model of others, for transformers or for llama.cpp.",
    )
    add_source(parser, "folder of the run")
    parser.add_argument("--to", required=True, help="new folder, or new file that ends in .gguf")
    told = "of the weights (%(default)s): bfloat16 in a folder, float16 or q8_0 in a file"
    parser.add_argument("--dtype", type=DType, default="float32", help=told)
    told = "of a run with --lora_rank and --model: its thin matrices alone, a folder for peft"
    parser.add_argument("--adapter", action="store_true", help=told)
    parser.add_argument("--force", action="store_true", help="replace an export that stands there")
    return parser
