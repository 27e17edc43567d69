"""Checks of exercises 48: Serving: many users at once."""

import torch


def check_1(t, grow, slot, give_back):
    """48.1 Pages for rows"""
    found = grow([], 0, 5, [7, 8, 9], 4)
    t(found is not None, "5 tokens need two pages of 4, and three are free", "pages are found")
    table, free = list(found[0]), list(found[1])
    t.equal(len(table), 2, "5 tokens need two pages of 4", "5 tokens have two pages")
    t.equal(
        (table, free),
        ([9, 8], [7]),
        "pages come from the end of `free`, one after the other: 9, then 8",
        "they come from the end of free",
    )
    t.equal(
        grow([9, 8], 5, 3, [7], 4),
        ([9, 8], [7]),
        "8 tokens fill two pages of 4 exactly: the third is not needed yet",
        "no page is taken before it is needed",
    )
    t.equal(
        grow([9, 8], 8, 5, [7], 4),
        None,
        "13 tokens need two pages more, and one is free: None",
        "with too few pages there are none",
    )
    t.equal(
        [slot([9, 8], i, 4) for i in (0, 3, 4, 7)],
        [(9, 0), (9, 3), (8, 0), (8, 3)],
        "token 4 is the first of the second page of the table, which is page 8",
        "tokens are found by the table",
    )
    t.equal(
        give_back([9, 8], [7]),
        [7, 8, 9],
        "the row's last page goes back first: 8, then 9",
        "pages go back",
    )


def check_2(t, ends):
    """48.2 Who writes in which step"""
    t.equal(ends([0], [3], 2), [2], "three tokens in steps 0, 1 and 2", "one request alone")
    t.equal(
        ends([0, 0, 0], [2, 4, 2], 2),
        [1, 3, 3],
        "the first ends in step 1, so the third begins in step 2, while the second still writes",
        "a free row is used at once",
    )
    t.equal(
        ends([0, 0, 0, 0], [1, 1, 3, 1], 1),
        [0, 1, 4, 5],
        "with one row, everybody waits for those who came before",
        "first come, first served",
    )
    t.equal(
        ends([0, 5], [2, 2], 4),
        [1, 6],
        "the second is not there before step 5, and time goes on while nobody is there",
        "nobody is served before they come",
    )
    t.equal(
        ends([0, 1, 1], [5, 1, 1], 2),
        [4, 1, 2],
        "who comes in step 1 gets the second row in step 1",
        "rows are filled before the step",
    )


def check_3(t, kept, accepted, left_over):
    """48.3 Accept or reject"""
    t.equal(
        kept([5, 6, 7], [5, 9, 7, 8]),
        [5, 9],
        "6 is wrong, so what the model says behind it belongs to another text: [5, 9]",
        "up to the first wrong guess, and the model's own token there",
    )
    t.equal(
        kept([5, 6], [5, 6, 4]),
        [5, 6, 4],
        "if all are right, the token behind them is a gift",
        "all right, and one more",
    )
    t.equal(kept([], [3]), [3], "without a guess a pass brings one token", "without a guess")
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.3, 0.1, 0.4])
    t.equal(
        [accepted(p, q, 0, 0.99), accepted(p, q, 1, 0.99), accepted(p, q, 3, 0.0)],
        [True, True, False],
        "p / q is 2.5, 1 and 0 here: always, always, never",
        "accepted with p / q",
    )
    other = torch.tensor([0.8, 0.1, 0.1, 0.0])
    t.equal(
        [accepted(p, other, 0, u) for u in (0.6, 0.65)],
        [True, False],
        "p / q = 0.5 / 0.8 = 0.625",
        "between 0 and 1 by chance",
    )
    t.close(
        left_over(p, q),
        torch.tensor([0.75, 0.0, 0.25, 0.0]),
        "0.3 and 0.1 are missing, 0.4 together: 0.75 and 0.25",
    )
    t.close(left_over(p, p), p, "for p = q there is nothing left over: return p")


def check_4(t, token_bytes, users):
    """48.4 How many users fit?"""
    t.equal(
        token_bytes(30, 3, 64, 4),
        46_080,
        "2 · 30 · 3 · 64 · 4: keys and values are both kept",
        "a token of SmolLM2",
    )
    t.equal(
        users(1_000, 200, 10, 20, 0, 4),
        4,
        "800 bytes are 20 pages of 40 bytes, and a user needs 5",
        "pages that fit",
    )
    t.equal(
        users(1_000, 200, 10, 17, 0, 4),
        4,
        "17 tokens need five pages of 4: a page that is begun takes its whole place",
        "a page that is begun counts",
    )
    t.equal(
        users(1_000, 200, 10, 20, 8, 4),
        6,
        "two of the five pages are kept once: (20 - 2) // 3",
        "what begins alike is kept once",
    )
    t.equal(
        users(1_000, 200, 10, 20, 7, 4),
        4,
        "of 7 equal tokens only one page of 4 is full: (20 - 1) // 4",
        "only full pages are shared",
    )
    t.equal(users(100, 200, 10, 20, 0, 4), 0, "the weights alone do not fit: 0", "nobody fits")
