"""Hidden tests of the exercises of chapter 33."""

import math


def check_1(t, call, rng):
    """Losses with ties, rises and falls, for several patiences."""
    for _ in range(12):
        losses = [rng.randrange(1, 7) / 2 for _ in range(rng.randrange(1, 12))]
        patience = rng.randrange(1, 5)
        end = len(losses) - 1
        for place in range(len(losses)):
            first = losses.index(min(losses[: place + 1]))
            if place - first == patience:
                end = place
                break
        right = [losses.index(min(losses[: end + 1])), end]
        found = call("stop_early", losses, patience)
        t.equal(list(found), right, f"{losses}, patience {patience}")
        training = [loss - rng.randrange(0, 5) / 4 for loss in losses]
        least = rng.choice([0, 0.25, 0.5, 1])
        gaps = [high - low for low, high in zip(training, losses, strict=True)]
        right = next((i for i, gap in enumerate(gaps) if gap > least), None)
        t.equal(call("gap_opens", training, losses, least), right, f"gaps {gaps}, least {least}")


def check_2(t, call, rng):
    """Texts and epochs of many sizes, and the way back."""

    def worth(unique, epochs):
        repeats = max(0.0, epochs - 1)
        return unique * (min(1, epochs) + 15.39 * (1 - math.exp(-repeats / 15.39)))

    for _ in range(10):
        unique = rng.choice([1, 250, 10**6, rng.uniform(1, 1e9)])
        epochs = rng.choice([0, 0.5, 1, 2, 7.5, rng.uniform(0, 60)])
        case = f"{unique} tokens, {epochs} epochs"
        near = {"relative": 1e-6, "absolute": 1e-9 * unique}
        t.close(call("worth", unique, epochs), worth(unique, epochs), case, **near)
        total = unique * rng.uniform(0.1, 50)
        right = total - worth(unique, total / unique)
        t.close(call("lost_tokens", unique, total), right, f"{unique} of {total}", **near)
        back = rng.uniform(0.05, 40)
        found = call("epochs_for", unique, worth(unique, back))
        t.close(found, back, f"{unique} tokens as good as {back} epochs", relative=1e-5)
        much = unique * rng.uniform(16.4, 100)
        t.equal(call("epochs_for", unique, much), None, f"{unique} tokens, {much} wanted")


def check_3(t, call, rng):
    """Families of near copies among other texts."""

    def runs(text, n):
        words = text.lower().split()
        return {" ".join(words[i : i + n]) for i in range(len(words) - n + 1)}

    def alike(a, b, n):
        return len(runs(a, n) & runs(b, n)) / max(1, len(runs(a, n) | runs(b, n)))

    def grouped(documents, n, least):
        group = list(range(len(documents)))
        for _ in documents:
            for i, a in enumerate(documents):
                for j, b in enumerate(documents):
                    if i == j or alike(a, b, n) >= least:
                        group[j] = group[i] = min(group[i], group[j])
        return [[i for i, g in enumerate(group) if g == first] for first in sorted(set(group))]

    for _ in range(6):
        documents = []
        for _ in range(rng.randrange(3, 8)):
            words = [
                rng.choice("abcdefgh") + rng.choice("klmn") for _ in range(rng.randrange(5, 9))
            ]
            for _ in range(rng.randrange(1, 4)):
                documents.append(" ".join(words))
                words[rng.randrange(len(words))] = rng.choice("xyz")
        rng.shuffle(documents)
        n, least = rng.choice([1, 2]), rng.choice([0.3, 0.5])
        a, b = rng.sample(documents, 2)
        a = a.upper() + "  " + a
        t.equal(list(call("runs_of_words", a, n)), sorted(runs(a, n)), a)
        t.close(call("similarity", a, b, n), alike(a, b, n), f"{a} | {b}")
        t.equal(call("similarity", "a", "b", 3), 0, "texts that are too short for a run")
        right = grouped(documents, n, least)
        found = call("groups", documents, n, least)
        t.equal([list(group) for group in found], right, f"groups of {documents}")
        share, seed = rng.choice([0.2, 0.4]), rng.randrange(10**6)
        training, held_out = (
            list(side) for side in call("split", documents, n, least, share, seed)
        )
        case = f"{training} and {held_out} of {documents}"
        t.equal(sorted(training + held_out), list(range(len(documents))), case)
        t.equal([sorted(training), sorted(held_out)], [training, held_out], f"sorted, {case}")
        t(
            all(len({p in held_out for p in group}) == 1 for group in right),
            f"a group is cut: {case}",
        )
        wanted = share * len(documents)
        of_groups = [len(g) for g in right if g[0] in held_out]
        t(len(held_out) >= wanted, f"too few are held out: {case}")
        t(len(held_out) - max(of_groups) < wanted, f"a group too many is held out: {case}")
        again = [list(side) for side in call("split", documents, n, least, share, seed)]
        t.equal(again, [training, held_out], "the same seed")
    words = rng.sample("abcdefghijklm", 9)
    chain = [" ".join(words[i : i + 5]) for i in range(5)]  # each is like the next, and no other
    t.equal([list(group) for group in call("groups", chain, 2, 0.5)], [[0, 1, 2, 3, 4]], "a chain")
    chain = [chain[i] for i in (0, 2, 1, 4, 3)]
    t.equal([list(group) for group in call("groups", chain, 2, 0.5)], [[0, 1, 2, 3, 4]], "a chain")
    singles = [f"{word} {word}{word}" for word in "abcdefghij"]
    sides = {tuple(call("split", singles, 1, 0.5, 0.3, seed)[1]) for seed in range(8)}
    t(len(sides) > 3, "the split hangs on the seed")


def check_4(t, call, rng):
    """Counts of texts with few letters, which tie often, and documents that are read or not."""

    def count(text, k):
        counts = {}
        for i in range(k, len(text)):
            followers = counts.setdefault(text[i - k : i], {})
            followers[text[i]] = followers.get(text[i], 0) + 1
        return counts

    def go_on(counts, prompt, k, length):
        added = ""
        for _ in range(length):
            text = prompt + added
            followers = counts.get(text[len(text) - k :])
            if not followers:
                break
            most = max(followers.values())
            added += min(letter for letter, n in followers.items() if n == most)
        return added

    t.equal(call("continuation", count("aab", 0), "b", 0, 3), "aaa", "no context at all")
    for number in range(12):
        k = number % 4
        text = "".join(rng.choice("abc") for _ in range(rng.randrange(6, 30)))
        counts = count(text, k)
        t.equal(call("counts_of", text, k), counts, f"{text}, k = {k}")
        prompt = "".join(rng.choice("abc") for _ in range(rng.randrange(k, k + 4)))
        length = rng.randrange(0, 8)
        right = go_on(counts, prompt, k, length)
        t.equal(call("continuation", counts, prompt, k, length), right, f"{text}, {prompt}, {k}")
        given = k + rng.randrange(0, 3)
        documents = [text, text[::-1], "".join(rng.choice("ab") for _ in range(20))]
        documents = [d for d in documents if len(d) >= given + 3]
        right = [
            i
            for i, d in enumerate(documents)
            if go_on(counts, d[:given], k, 3) == d[given : given + 3]
        ]
        found = call("memorised", counts, documents, k, given, 3)
        t.equal(list(found), right, f"{documents}, counts of {text}, k = {k}, given {given}")
    longer = count("the cat sat on the mat", 4)
    t.equal(
        list(call("memorised", longer, ["the cat sat on", "a cat sat on m"], 4, 6, 5)), [0, 1], ""
    )


def check_5(t, call, rng):
    """Losses of counted models, of several sizes and smoothings, and both conclusions."""

    def loss(text, new, k, alpha, size):
        total = 0.0
        for i in range(k, len(new)):
            places = [j for j in range(k, len(text)) if text[j - k : j] == new[i - k : i]]
            hits = sum(text[j] == new[i] for j in places)
            total -= math.log((hits + alpha) / (len(places) + alpha * size))
        return total / (len(new) - k)

    for _ in range(8):
        text, new = ("".join(rng.choice("aabcd") for _ in range(n)) for n in (40, 25))
        k, alpha, size = rng.randrange(0, 4), rng.choice([0.01, 0.5, 2]), rng.randrange(4, 30)
        case = f"{text}, {new}, k = {k}, alpha = {alpha}, V = {size}"
        t.close(call("loss_on", text, new, k, alpha, size), loss(text, new, k, alpha, size), case)
        sizes = rng.sample(range(6), 4)
        losses = {each: loss(text, new, each, alpha, size) for each in sizes}
        right = min(sorted(sizes), key=losses.get)
        if sorted(losses.values())[1] - losses[right] > 1e-9:
            t.equal(call("best_size", text, new, sizes, alpha, size), right, f"{sizes}, {case}")
    t.equal(call("best_size", "aaaa", "bbbb", [3, 2], 1.0, 3), 2, "equal losses")
    t.equal(call("what_more_text_does"), "the best k grows", "the conclusion about text")
    right = "the gap shrinks and new text is predicted worse"
    t.equal(call("what_much_smoothing_does"), right, "the conclusion about smoothing")
