"""The widgets of chapters 05 and 09: the page encodes and packs as the package, and they obey."""

import itertools
import random
import sys
import unicodedata

import numpy as np
import pytest

from llmcourse import data
from llmcourse.data import shard_file
from llmcourse.data.tokenizer import GPT2, LLAMA3, Cutter, Tokenizer, train_bpe
from llmcourse_classroom.widgets.tokens import MergeBoard, PackingBoard
from tests.browser.hands import choose, enter, keys, later, place, press, stop_time, to_the_end
from tests.browser.kit import holds, noted, said, table, value
from tests.browser.registry import PROSE, merge_board, packing_board
from tests.browser.twins import agrees

SPECIALS = ["<|end|>", "<|end|><|end|>", "<|e"]
PATTERNS = {"GPT2": GPT2, "LLAMA3": LLAMA3}
TEXTS = ["", " ", "\n", "a", "the tea then the teas", "the the the  the   the", "aaaaaaaaaaaaaaa"]
TEXTS += ["\n\n  \t x\r\n\r\ny \n z  ", "line\n\n\n   indented\n"]
TEXTS += ["I'm HE'S we'Ll you'VE o'clock 'tis ''s 'ſ x'ſ' x'ſtop x'Stop X'STOP"]
TEXTS += ["12345678 3.14 1,000,000 ½ ٣٤٥ Ⅷ", "café naïve Größe e\u0301 Ελλάδα हिन्दी عربي 東京"]
TEXTS += ["🙂👩‍👩‍👧‍👦🇩🇪 \u200d", "a\u00a0b\u2003c\u3000d\u0085e\ufefff\u2028g\x1ch\x1fi\x0bj\x00k"]
TEXTS += ["e\u0301\u200b snake_case __init__(self): return x**2 != y //= 3"]
TEXTS += ["constructor toString __proto__ constructor", "<|end|>"]
TEXTS += ["one<|end|><|end|><|end|>two <|e <|en|> three<|end|>\n", PROSE[:200]]


def scrambled():
    rng = random.Random(0)
    alphabet = [*"aebt's TLRVDM  \n\r\t13½é東🙂.!_\u00a0\u0085\ufeff'", "'ll", "<|e", "nd|>", "the"]
    return ["".join(rng.choices(alphabet, k=rng.randrange(1, 30))) for _ in range(300)]


@pytest.fixture(scope="module")
def tokenizers():
    return {
        kind: train_bpe(PROSE, 420, special_tokens=SPECIALS, pattern=pattern)
        for kind, pattern in PATTERNS.items()
    }


# --- merges


@pytest.mark.parametrize("kind", PATTERNS)
def test_the_page_cuts_words_as_the_package(arithmetic, kind):
    """And old characters, of Unicode 3.2, are of the same kind; newer ones hang on the version."""
    cutter = Cutter(PATTERNS[kind], ())
    old = unicodedata.ucd_3_2_0.category
    everything = map(chr, [*range(0x3001), *range(0x3001, sys.maxunicode, 5)])
    characters = [c for c in everything if old(c) not in ("Cn", "Co", "Cs")]
    assert len(characters) > 20_000
    texts = [*TEXTS, *scrambled(), "".join(f"a{c}b1 {c}{c}" for c in characters)]
    cases = [[text, kind] for text in texts]
    agrees(arithmetic, MergeBoard, "cut", cases, lambda text, _: cutter.words(text))


@pytest.mark.parametrize("kind", PATTERNS)
def test_the_page_encodes_as_the_package(arithmetic, tokenizers, kind):
    tokenizer = tokenizers[kind]
    state, texts = MergeBoard(tokenizer, "").state(), TEXTS + scrambled()
    got = arithmetic(MergeBoard, "encode", [[text, state] for text in texts])
    assert got == [tokenizer.encode(text) for text in texts]
    assert any(tokenizer.special_tokens["<|end|><|end|>"] in ids for ids in got)


def test_each_step_is_the_encoding_by_the_merges_so_far(arithmetic, tokenizers):
    """After all merges up to rank r, the ids are those of a tokenizer that has only these."""
    tokenizer = tokenizers["GPT2"]
    state = MergeBoard(Tokenizer.from_merges(tokenizer.merges), "").state()
    texts = [[text, state] for text in TEXTS if len(text) > 3]
    plans = arithmetic(MergeBoard, "plan", texts)
    stepped = arithmetic(MergeBoard, "encodings", texts)
    for (text, _), plan, steps in zip(texts, plans, stepped, strict=True):
        ranks, size = [merge["rank"] for merge in plan["merges"]], len(text.encode())
        assert ranks == sorted(ranks)
        assert [len(ids) for ids in steps] == list(range(size, size - len(ranks) - 1, -1))
        for count, ids in enumerate(steps):
            if count < len(ranks) and count and ranks[count] == ranks[count - 1]:
                continue  # in the middle of one rank
            learnt = ranks[count - 1] + 1 if count else 0
            assert ids == Tokenizer.from_merges(tokenizer.merges[:learnt]).encode(text)


def test_the_leftmost_of_equal_pairs_goes_first_and_white_space_shows(arithmetic):
    state = MergeBoard(Tokenizer.from_merges([(b"a", b"a")]), "").state()
    (steps,) = arithmetic(MergeBoard, "encodings", [["aaa aa", state]])
    a, made = steps[0][0], 256
    space = steps[0][3]
    assert steps[1:] == [[made, a, space, a, a], [made, a, space, made]]
    given = [b" the", b"\n\t", "é".encode(), b"\xc3", b" \xf0\x9f", b"\x00", "\ufeff".encode()]
    got = arithmetic(MergeBoard, "spelt", [[token.hex()] for token in given])
    assert got == ["␣the", "↵⇥", "é", "C3", "20 F0 9F", "00", "EF BB BF"]


@pytest.mark.parametrize("vocab_size", [300, 65_536, 65_537, 128_256])
def test_a_shard_on_the_page_is_what_the_package_writes(arithmetic, tmp_path, vocab_size):
    """Mutants: the high byte first, two bytes for each id in any vocabulary, no header before."""
    ids = [*range(9), 255, 256, 299, vocab_size - 1, 299]
    array = np.array(ids, dtype=shard_file.token_dtype(vocab_size))
    about = {"number": 0, "is_last": True, "vocab_size": vocab_size, "tokenizer_fingerprint": "x"}
    shard_file.write_shard(tmp_path / "shard", array, **about)
    written = (tmp_path / "shard").read_bytes()
    (rows,) = arithmetic(MergeBoard, "shardRows", [[ids, vocab_size]])
    assert [row[2] for row in rows] == [ids[:8], ids[8:]]
    starts = [row[0] for row in rows]
    assert [bytes.fromhex(row[1]) for row in rows] == [
        written[starts[0] : starts[1]],
        written[starts[1] :],
    ]


def test_typed_text_is_merged_to_the_end_by_keys_and_buttons(show):
    page = show(merge_board())
    typed = page.get_by_label("your text")
    holds(said(page), "0 of 16 merges", "21 bytes are 21 tokens")
    press(page, "Step", "1 of 16 merges", "21 bytes are 20 tokens")
    holds(said(page), "“␣” + “t” → “␣t”, rank 0, id 256")
    keys(page, "merges applied", "ArrowRight", "2 of 16 merges")
    keys(page, "merges applied", "End", "what the model reads")
    typed.fill("teas")
    expected = train_bpe("the tea then the teas", 264).encode("teas")
    assert [row[1] for row in table(page)] == [str(token) for token in expected]
    holds(page.get_by_role("img").get_attribute("aria-label"), "ea")
    typed.fill("teas the tea")
    holds(said(page), "what the model reads")
    typed.fill("")
    holds(said(page), "No text")
    typed.fill("🙂" * 201)
    holds(noted(page), "201 characters", "first 200")
    assert typed.input_value() == "🙂" * 200
    typed.fill("<img src=x onerror=alert(1)>")
    assert page.locator(".lc-host img, .lc-host b").count() == 0


def test_a_text_is_never_markup_and_a_long_one_is_cut(show):
    assert show(merge_board("<b>x</b>")).locator(".lc-host b").count() == 0
    board = merge_board()
    board.text = "x" * 300
    assert len(board.text) == 200
    holds(board.note, "300 characters", "first 200")


def test_play_goes_to_the_end_and_begins_anew(show):
    page = show(merge_board(applied=500), says=["16 of 16 merges"])
    assert value(page, "merges applied") == "16"
    to_the_end(page, "16 of 16 merges")
    press(page, "Step", "0 of 16 merges")
    enter(page, "merges applied", "99", note=["from 0 to 16", "16 is used"])


# --- packing


def boards():
    rng = random.Random(1)
    fixed = [[2, 3, 4, 5, 3, 1], [0, 7, 0], [6], [12, 6, 18], [1] * 9, [13, 1, 7]]
    fixed.append([5, 5, 5, 4, 4, 2, 2, 1])
    drawn = [[rng.randrange(0, 40) for _ in range(rng.randrange(1, 24))] for _ in range(25)]
    return [(lengths, context) for lengths in fixed + drawn for context in (1, 2, 6, 7, 16, 100)]


def as_rows(placed):
    rows = {}
    for piece in placed:
        rows.setdefault(piece["row"], []).append(
            (piece["document"], piece["start"], piece["length"])
        )
    return [rows[i] for i in range(len(rows))]


@pytest.mark.parametrize("method", ["one_per_row", "concatenate_and_cut", "pack"])
def test_rows_are_those_of_the_package(arithmetic, method):
    cases = boards()
    got = arithmetic(PackingBoard, "placing", [[method, *case] for case in cases])
    expected = [getattr(data, method)(*case) for case in cases]
    assert [as_rows(placed) for placed in got] == [packing.rows for packing in expected]
    rows = [packing.rows for packing in expected]
    given = [
        [[[{"length": p.length} for p in row] for row in each], context]
        for each, (_, context) in zip(rows, cases, strict=True)
    ]
    shares = arithmetic(PackingBoard, "efficiency", given)
    assert shares == pytest.approx([packing.efficiency for packing in expected], rel=1e-12)


def test_documents_are_packed_the_longest_first_and_cut_ones_counted(arithmetic):
    (placed,) = arithmetic(PackingBoard, "placing", [["pack", [2, 3, 4, 5, 3, 1], 6]])
    assert [p["document"] for p in placed] == [3, 2, 1, 4, 0, 5]
    assert [p["row"] for p in placed] == [0, 1, 2, 2, 1, 0]
    lengths = [4, 9, 4, 6, 0]
    methods = ("pack", "one_per_row", "concatenate_and_cut")
    placings = arithmetic(PackingBoard, "placing", [[method, lengths, 6] for method in methods])
    begun = [{"document": 0, "start": 0, "length": 6}]  # its second piece is not placed yet
    given = [*([placed, lengths] for placed in placings), [begun, [9]]]
    assert arithmetic(PackingBoard, "numCut", given) == [1, 1, 2, 1]


def test_the_mask_is_causal_and_of_one_document(arithmetic):
    row = [{"length": 3}, {"length": 1}, {"length": 4}]
    owner = np.array([0] * 3 + [1] + [2] * 4 + [-1] * 2)  # two tokens of padding
    expected = np.tril(owner[:, None] == owner[None, :]) & (owner >= 0)[:, None]
    pairs = list(itertools.product(range(10), repeat=2))
    got = arithmetic(PackingBoard, "mayLook", [[row, q, k] for q, k in pairs])
    np.testing.assert_array_equal(np.array(got).reshape(10, 10), expected)
    assert arithmetic(PackingBoard, "allowedPairs", [[row]]) == [expected.sum()]


def test_methods_steps_and_rows_by_mouse_and_keys(show):
    page = show(packing_board())
    holds(said(page), "6 rows of 6 tokens", "50 % filled", "padding 18", "documents cut: 0")
    choose(page, "method", "pack")
    holds(said(page), "3 rows of 6 tokens", "100 % filled", "Row 1 holds 2 documents", "21 pairs")
    holds(page.get_by_role("img").last.get_attribute("aria-label"), "allows 16, 76 %")
    enter(page, "row for the mask", "1")
    press(page, "Next row", "Row 2 holds 2 documents")
    page.locator(".lc-stage").first.click(position={"x": 200, "y": 46 + 2 * 24 + 8})
    assert value(page, "row for the mask") == "3"
    press(page, "Reset", "0 of 6 pieces", "packed, longest first", "no rows yet")
    press(page, "Step", "1 row of 6 tokens", "83.3 % filled")
    keys(page, "pieces placed", "ArrowRight", picture=["2 of 6 pieces"])
    enter(page, "row for the mask", "1")
    page.locator(".lc-table > summary").click()
    assert page.locator("tbody tr").all_text_contents() == ["14 (5)5183.3 %", "23 (4)4266.7 %"]


def test_all_stays_placed_when_the_method_or_the_context_changes(show):
    page = show(PackingBoard([20, 3, 4], 10, method="pack"), says=["4 of 4 pieces"])
    enter(page, "context length T", "5", "6 of 6 pieces")


def test_many_rows_are_shown_a_page_at_a_time(show):
    page = show(PackingBoard([128] * 64, 2, row=4096))
    label = page.locator(".lc-stage text", has_text="of 4096")
    holds(label.text_content(), "rows 4081 to 4096 of 4096", "0 to 2 tokens")
    assert len(table(page)) == 16


def test_lengths_that_cannot_be_change_nothing():
    board = PackingBoard([3], 900)
    with pytest.raises(ValueError, match="document 0 has -3 tokens"):
        board.lengths = [-3]
    assert (board.lengths, board.context_length) == ([3], 512)
    holds(board.note, "900 is not possible")
    assert (board.placed, PackingBoard([3], 2).placed) == (1, 2)


def test_a_document_falls_into_its_row_and_moves_to_another_under_another_method(show):
    """Of lengths 2 3 4 5 3 1 into rows of 6, the longest first: the 4 is the first."""
    page = show(packing_board(method="pack", placed=1), as_is=True)
    stop_time(page)
    start = place(page, "document 2 0")
    press(page, "Step", "Document 3 went into row 2")
    later(page, 100)
    middle = place(page, "document 2 0")
    later(page, 1_000)
    end = place(page, "document 2 0")
    assert start[1] + 5 < middle[1] < end[1] - 5
    assert end[1] == pytest.approx(place(page, "document 3 0")[1] + 24, abs=1)
    for _ in range(4):
        press(page, "Step")
        later(page, 1_000)
    packed = place(page, "document 5 0")
    choose(page, "method", "one_per_row")
    assert place(page, "document 5 0") == pytest.approx(packed, abs=0.1)
    later(page, 100)
    middle = place(page, "document 5 0")
    later(page, 1_000)
    alone = place(page, "document 5 0")
    assert alone[0] + 5 < middle[0] < packed[0] - 5
    assert packed[1] + 5 < middle[1] < alone[1] - 5


def test_with_reduced_motion_a_document_lies_in_its_row_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(packing_board(method="pack", placed=1), as_is=True)
    stop_time(page)
    press(page, "Step")
    there = place(page, "document 2 0")
    later(page, 1_000)
    assert place(page, "document 2 0") == there
