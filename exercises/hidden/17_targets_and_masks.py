"""Hidden tests of the exercises of chapter 17."""

import torch


def rows_of_documents(rng, num_rows, length):
    """Return document numbers: in any order, of any length, some rows with padding."""
    rows = []
    for _ in range(num_rows):
        numbers, row = rng.sample(range(50), k=length), []
        while len(row) < length:
            row += [numbers.pop()] * rng.choice((1, 1, 2, 3, 5))
        rows.append(row[:length])
        if padding := min(rng.choice((0, 0, 1, 2, length)), length):
            rows[-1][-padding:] = [-1] * padding
    return rows


def check_1(t, call, rng):
    """Many small rows; one document for all rows; every token in a document of its own."""
    cases = [rows_of_documents(rng, rng.randrange(1, 6), rng.randrange(1, 12)) for _ in range(8)]
    cases += [[[3] * 7] * 4, [list(range(6))], [[-1] * 3] * 2, [[0, 0, 0, -1, -1, -1], [1] * 6]]
    for documents in cases:
        length = len(documents[0])
        ids = [[rng.randrange(9) for _ in range(length)] for _ in documents]
        right = [
            [
                row[t + 1] if t + 1 < length and own[t] == own[t + 1] >= 0 else -100
                for t in range(length)
            ]
            for row, own in zip(ids, documents, strict=True)
        ]
        answer = call("shifted_targets", torch.tensor(ids), torch.tensor(documents))
        t.equal(answer, torch.tensor(right), f"ids {ids}, documents {documents}")


def check_2(t, call, rng):
    """Chats of any length, with text outside of the turns, and windows that start in the midst."""
    words = ["yes", "end", "user", "assistant", "<", "|>", "4", "."]
    for _ in range(25):
        learned = tuple(
            rng.choice((("assistant",), ("assistant",), ("user", "assistant"), ("system",), ()))
        )
        tokens, right = [], []

        def add(text, counts, tokens=tokens, right=right):
            tokens.append(text)
            right.append(counts)

        for word in rng.choices(words, k=rng.choice((0, 0, 2))):
            add(word, False)
        if tokens and rng.random() < 0.5:
            add("<|end|>", False)
        for _ in range(rng.randrange(6)):
            role = rng.choice(("system", "user", "assistant", "assistant"))
            add(f"<|{role}|>", False)
            for word in rng.choices(words, k=rng.randrange(4)):
                add(word, role in learned)
            add("<|end|>", role in learned)
            for word in rng.choices(words, k=rng.choice((0, 0, 1))):
                add(word, False)
        cut = rng.randrange(len(tokens) + 1) if rng.random() < 0.3 else len(tokens)
        answer = call("learned_tokens", tokens[:cut], learned)
        t.equal(answer, right[:cut], f"{tokens[:cut]} with {learned} learned")


def check_3(t, call, rng):
    """Ranks with any number of micro-batches of any shape; some without a target."""
    for num_ranks in (1, 1, 2, 3, 5):
        targets = []
        for _ in range(num_ranks):
            targets.append([])
            for _ in range(rng.randrange(1, 5)):
                size = rng.randrange(1, 4), rng.randrange(1, 9)
                generator = torch.Generator().manual_seed(rng.randrange(2**31))
                batch = torch.randint(0, 9, size, generator=generator)
                batch[torch.rand(size, generator=generator) < rng.choice((0.1, 0.6, 1.0))] = -100
                targets[-1].append(batch)
        # One target counts for certain, and counts differ whatever was drawn above.
        targets[0].append(torch.tensor([[0, 5, -100, 7, 0, -100, -100]]))
        targets[-1].append(torch.tensor([[-100, 2]]))
        counts = [[sum(y != -100 for y in b.flatten().tolist()) for b in own] for own in targets]
        total = sum(n for own in counts for n in own)
        right = [[n / total * num_ranks for n in own] for own in counts]
        # Single precision is enough, and 0 has to be 0.
        t.close(call("loss_factors", targets), right, f"counts {counts}", relative=1e-5)


def check_4(t, call, rng):
    """Rows of any length with the token 12 anywhere; conclusions as the runs bear them out."""
    for shift in (0, 1, 2):
        for masked in (False, True):
            ids, right = [], []
            length = rng.randrange(4, 12)
            for _ in range(rng.randrange(1, 5)):
                now = rng.randrange(length - 1)
                row = [rng.choice((0, 3, 7, 11, 13)) for _ in range(length)]
                row[now] = 12
                kept = [token if t > now or not masked else -100 for t, token in enumerate(row)]
                ids.append(row)
                right.append(kept[shift:] + [-100] * shift)
            answer = call("targets_of", torch.tensor(ids), shift, masked)
            t.equal(answer, torch.tensor(right), f"shift {shift}, masked {masked}, rows {ids}")
    # So come out the six runs with seed 0, which the check repeats.
    yours = call("conclusions")
    t.equal(yours["answers nearly all questions"], [(1, True)], "which runs answer")
    fooled = sorted(yours["loss below 0.1, and no answer right"])
    t.equal(fooled, [(0, False), (0, True), (2, True)], "which losses deceive")
    t.equal(yours["a lower training loss means a better model"], False, "loss and model")
    floor = yours["lowest possible loss of the run (1, False)"]
    t.close(floor, 1.2542, "the floor of the unmasked run", relative=1e-3)
