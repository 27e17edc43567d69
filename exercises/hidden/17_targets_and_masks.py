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


def leaks(mask, documents, num_layers):
    """Return the leaks, with sets of what each position knows."""
    size = len(documents)
    knows = [{t} for t in range(size)]
    for _ in range(num_layers):
        knows = [
            knows[t].union(*(knows[s] for s in range(size) if mask[t][s])) for t in range(size)
        ]
    pairs = {(documents[t], documents[s]) for t in range(size) for s in knows[t]}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)


def check_4(t, call, rng):
    """Clean masks with a few wrong entries, sparse random ones, and long chains."""
    cases = []
    for _ in range(6):
        (documents,) = rows_of_documents(rng, 1, rng.randrange(4, 14))
        size = len(documents)
        mask = [[s <= t and documents[s] == documents[t] for s in range(size)] for t in range(size)]
        for _ in range(rng.randrange(4)):
            mask[rng.randrange(size)][rng.randrange(size)] = True
        cases.append((mask, documents, rng.randrange(1, 5)))
    for _ in range(5):
        size = rng.randrange(5, 12)
        documents = [rng.choice((-1, 0, 1, 2, 3)) for _ in range(size)]
        mask = [[rng.random() < 0.12 for _ in range(size)] for _ in range(size)]
        cases.append((mask, documents, rng.randrange(1, 4)))
    # A chain: each position looks at the one before only, so each layer reaches one further.
    for reach in (1, 2, 5, 40):
        numbers = rng.sample(range(30), k=9)
        cases.append(([[s == t - 1 for s in range(9)] for t in range(9)], numbers, reach))
    # From the future, through padding, and read by padding alone.
    cases.append(([[s in (t, t + 1) for s in range(6)] for t in range(6)], [0, -1, 1, -1, 2, 2], 3))
    cases.append(([[t == 2 for _ in range(3)] for t in range(3)], [1, 0, -1], 2))
    for mask, documents, num_layers in cases:
        where = [(t, s) for t, row in enumerate(mask) for s, looks in enumerate(row) if looks]
        case = f"documents {documents}, {num_layers} layers, True at {where}"
        answer = call("find_leaks", torch.tensor(mask), documents, num_layers)
        t.equal(answer, leaks(mask, documents, num_layers), case)
