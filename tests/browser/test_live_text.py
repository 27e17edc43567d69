"""The stories, tokens and writing of the live run against the package."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from llmcourse import nutshell
from llmcourse.data.corpus import stories
from llmcourse_classroom.widgets import LiveRun
from llmcourse_classroom.widgets.live import small_run
from tests.browser.engine import AWKWARD, as_array, as_text, flat_weights, generic_model, shape_of


@cache
def merges():
    return nutshell.learn_merges(stories(200_000, seed=0), 768)


def test_stories_and_tokens_are_the_packages(engine):
    text = LiveRun(small_run(), merges(), floor=0.4).text
    seeds = [0, 1, 2**32 - 1]
    found = engine(
        """const tokenizer = new Tokenizer(given.text);
        return given.seeds.map((seed) => {
          const chance = new Random(seed);
          let text = "";
          while (text.length < 60000) text += story(given.text.grammar, chance) + END_OF_TEXT;
          return [text, tokenizer.encode(text), tokenizer.decode(tokenizer.encode(text))];
        });""",
        text=text,
        seeds=seeds,
    )
    tokenizer = nutshell.Tokenizer(merges())
    for seed, (written, ids, decoded) in zip(seeds, found, strict=True):
        expected = stories(60_000, seed=seed)
        assert written == decoded == expected
        assert ids == tokenizer.encode(expected)


def test_words_that_no_story_has_are_encoded_too(engine):
    text = "It's  2026:\n\n  we'll\tat 10!! <|endoftext|>end <|endoftext|><|endoftext|> ë 漢字🎈s"
    given = LiveRun(small_run(), merges(), floor=0.4).text
    found = engine("return new Tokenizer(given.all).encode(given.said);", all=given, said=text)
    assert found == nutshell.Tokenizer(merges()).encode(text)


def test_batches_are_cut_from_the_text_without_a_gap(engine):
    given = LiveRun(small_run(), merges(), floor=0.4).text
    found = engine(
        """const source = new Stories(given.text.grammar, new Tokenizer(given.text), 4);
        return [0, 1, 2].map(() => {
          const { ids, targets } = source.batch({ batch_size: 3, context_length: 20 });
          return [[...ids], [...targets]];
        });""",
        text=given,
    )
    expected = iter(nutshell.Tokenizer(merges()).encode(stories(4_000, seed=4)))
    for ids, targets in found:
        for b in range(3):
            row = [next(expected) for _ in range(21)]
            assert ids[20 * b : 20 * b + 20] == row[:-1]
            assert targets[20 * b : 20 * b + 20] == row[1:]


# --- writing


def test_the_cache_gives_the_logits_of_the_package(engine):
    generator = torch.Generator().manual_seed(8)
    model = generic_model(AWKWARD, generator)
    ids = torch.randint(0, 300, (1, 20), generator=generator)
    found = engine(
        """const sampler = new Sampler(madeModel(given));
        const read = () => given.ids.map((id, at) => textOf(sampler.next(id, at)));
        read(); // a second text is not mixed with the first
        return read();""",
        arithmetic="SIMD",
        config=shape_of(AWKWARD, 4),
        weights=as_text(flat_weights(model)),
        ids=ids[0].tolist(),
    )
    expected = model(ids)[0].detach().numpy()
    off = np.abs(np.stack([as_array(row) for row in found]) - expected).max()
    assert off < 2e-6 * np.abs(expected).max()


def test_tokens_are_drawn_by_their_probabilities(engine):
    cases = [[[0.5, 0.0, 0.5], u] for u in (0.0, 0.49, 0.5, 0.99)] + [[[0.5, 0.499], 0.9999]]
    assert engine("return given.all.map((each) => draw(...each));", all=cases) == [0, 0, 2, 2, 1]
    (found,) = engine("return [softmax([1000, 1000 + Math.log(3), 0])];")
    assert found == pytest.approx([0.25, 0.75, 0.0])


# --- a beginning of the reader's

PROMPTS = ["", "Once there was", " Tom Zoë", "One xyz two three 4 5 6 7 8 9 went to see Zoë?"]


def test_the_likeliest_tokens_after_a_beginning_are_the_packages(engine):
    shape = replace(small_run().model, num_layers=2, width=16, hidden=24, context_length=24)
    model = generic_model(shape, torch.Generator().manual_seed(4), scale=0.5)
    text = LiveRun(small_run(), merges(), floor=0.4).text
    config = {**shape_of(shape, 2), "steps": 3, "learning_rate": 0.1}
    found = engine(
        """const run = new Run({ ...given, arithmetic: "SIMD", seed: 0 });
        run.model.flat.weights.set(numbersOf(given.weights));
        return given.prompts.map((prompt) => [run.write({ prompt, temperature: 1e-3, draws: 1 }),
          run.write({ prompt, draws: 5 }), run.likeliest({ prompt, temperature: 0.7 }, 8)]);""",
        config=config,
        text=text,
        weights=as_text(flat_weights(model)),
        prompts=PROMPTS,
    )
    tokenizer = nutshell.Tokenizer(merges())
    for prompt, (coldest, drawn, likeliest) in zip(PROMPTS, found, strict=True):
        ids = [tokenizer.end, *tokenizer.encode(prompt)[-12:]]
        room = 25 - len(ids)
        expected, best = (model(torch.tensor([ids]))[0, -1] / 0.7).softmax(-1).topk(8)
        assert [p for _, p in likeliest] == pytest.approx(expected.tolist(), rel=1e-4)
        assert [name.encode("latin-1") for name, _ in likeliest] == [
            tokenizer.tokens[i] for i in best.tolist()
        ]
        for _ in range(room):
            ids.append(model(torch.tensor([ids]))[0, -1].argmax().item())
            if ids[-1] == tokenizer.end:
                break
        written = [i for i in ids[-room:] if i != tokenizer.end]
        assert coldest.encode("latin-1") == b"".join(tokenizer.tokens[i] for i in written)
        assert drawn != coldest
