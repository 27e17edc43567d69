"""Checks of exercises 06: From crawl to corpus."""

import itertools


def check_1(t, estimate, hashes_for, shingles, signature, *, hashed):
    """06.1 How alike are two texts?"""
    mat = shingles("The cat sat on  the mat", 3)
    t(
        "on the mat" in mat,
        "the last shingle, 'on the mat', is missing: six words have 6 - 3 + 1 = 4 shingles of "
        "three words",
        "the last shingle is there",
    )
    t.equal(
        mat,
        ["cat sat on", "on the mat", "sat on the", "the cat sat"],
        "the shingles of 'The cat sat on  the mat' are not its four runs of three words, in lower "
        "case and sorted",
        "six words have four shingles of three words",
    )
    t.equal(
        [shingles("Not found", 3), shingles(" ", 3)],
        [["not found"], []],
        "a text of two words is one shingle itself: without any, all short pages would be alike. "
        "A text without words has none",
        "a short text is one shingle",
    )
    t.equal(
        shingles("ha ha ha ha", 2),
        ["ha ha"],
        "a shingle that comes again is counted again: the similarity is one of sets",
        "a shingle counts once, however often it comes",
    )
    hashes = [(1_000_003 * i + 7, 99_991 * i) for i in range(1, 401)]
    kept = signature(mat, hashes)
    t(
        len(kept) == 400,
        "the signature has not one number for each hash function: take the smallest over the "
        "shingles, for every function anew",
        "a signature has one number for each hash function",
    )
    t.equal(
        kept[:2],
        [min(hashed(shingle, a, b) for shingle in mat) for a, b in hashes[:2]],
        "the signature does not hold the smallest number of all shingles",
        "the signature holds the smallest number of all shingles",
    )
    t.equal(
        estimate([5, 2, 9, 4], [2, 5, 9, 7]),
        0.25,
        "the signatures 5 2 9 4 and 2 5 9 7 agree at one place of four: a 5 of the first hash "
        "function and a 5 of the second have nothing to do with each other",
        "signatures are compared place by place",
    )
    t.equal(
        [hashes_for(0.125), hashes_for(0.03)],
        [16, 278],
        "a standard error of 1/8 takes 16 hash functions and one of 0.03 takes 278: "
        "1 / (4 error²), rounded up",
        "16 hash functions keep the error at 1/8, and 278 at 0.03",
    )


def check_2(t, bands_for, candidate_probability, missed_and_needless, with_more_rows):
    """06.2 Which pairs to look at"""
    t.close(
        candidate_probability(0.5, 2, 2),
        7 / 16,
        "two bands of two rows make a pair of similarity 1/2 a candidate with probability 7/16: "
        "all rows of a band, and at least one of the bands",
        "two bands of two rows find a similarity of 1/2 with probability 7/16",
    )
    t.close(
        candidate_probability(0.5, 1, 3),
        1 / 8,
        "one band of three rows agrees with probability 1/8: rows are the exponent inside, bands "
        "the one outside",
        "one band of three rows agrees with probability 1/8",
    )
    t.equal(
        [tuple(bands_for(0.7, 16)), tuple(bands_for(0.35, 16))],
        [(4, 4), (8, 2)],
        "with 16 hash functions the threshold nearest to 0.7 is that of 4 bands of 4 rows, 0.707, "
        "and nearest to 0.35 that of 8 bands of 2 rows, 0.354: it is (1 / bands) ^ (1 / rows)",
        "16 hash functions find 0.7 with 4 bands of 4 rows, and 0.35 with 8 of 2",
    )
    t.equal(
        tuple(bands_for(0.6, 16)),
        (5, 3),
        "5 bands of 3 rows have the threshold 0.585, nearest to 0.6, and leave one of 16 hash "
        "functions unused: bands x rows may be less than the number of hash functions",
        "a hash function may stay unused",
    )
    t.equal(
        tuple(bands_for(1.0, 4)),
        (1, 3),
        "one band has the threshold 1 with 3 rows as with 4: of equally near ones, take that with "
        "fewest rows",
        "of equally near thresholds that with fewest rows is taken",
    )
    t.close(
        missed_and_needless([1.0, 0.5], [0.5, 0.0, 0.5], 2, 2),
        (9 / 16, 14 / 16),
        "a copy of similarity 1/2 is missed with 9/16, and two others of 1/2 make 14/16 needless "
        "candidates: missed copies are those that are no candidates, needless ones are candidates",
        "copies are missed, and others are candidates for nothing",
    )
    seen = [missed_and_needless([0.7, 0.8, 0.9], [0.2, 0.3, 0.4], 16 // r, r) for r in (1, 2, 4, 8)]
    t(
        all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(seen)),
        "your counts for 1, 2, 4 and 8 rows do not go up for missed copies and down for needless "
        "candidates",
        "from 1 to 8 rows both counts change in one direction",
    )
    t.equal(
        with_more_rows(),
        {"missed": "more", "needless": "fewer"},
        "your conclusion is not what your counts say: a band of more rows agrees more seldom, for "
        "copies as well as for others",
        "more rows miss more copies and bother fewer others",
    )


def check_3(t, judge):
    """06.3 A rule that says why"""
    story = "The fox went home with a friend"
    t.equal(
        [judge(story, 7), judge(story, 8)],
        [None, "few words"],
        "seven words are enough where 7 are asked for, and too few where 8 are",
        "a text of exactly min_words words is kept",
    )
    t.equal(
        [judge("The end of it", 4), judge("the " + "incomprehensibilities " * 3 + "of", 5)],
        ["word length"] * 2,
        "means of 2.5 and of 13.6 characters are outside of 3 to 10",
        "words may be neither too short nor too long",
    )
    t(
        judge("The cat and the dog", 5) is None,
        "words of 3 characters on average are dropped: only less than 3 is too short",
        "a mean of exactly 3 characters is kept",
    )
    more = "Read about the house...\n\n \n\nSee the tree and more… \nHome with friends\nContact us"
    t.equal(
        [judge(more, 5)],
        ["ellipses"],
        "two of four lines end with an ellipsis: '...' and '…' both count, with white space after "
        "them or not, and empty lines are no lines",
        "both forms of an ellipsis count, and empty lines do not",
    )
    t(
        judge("The cat sat and waited...\nThen\ncame\nhome", 5) is None,
        "one line of four ends with an ellipsis, 25 %: only more than 30 % is too much",
        "a story may trail off once",
    )
    t.equal(
        [judge("the shop, the price, the offer, the shoes", 5)],
        ["stop words"],
        "'the' four times is one stop word: the rule asks for two different ones",
        "one word that comes four times is one stop word",
    )
    t(
        judge("(The) house stands empty; WITH: nobody inside", 5) is None,
        "'(The)' and 'WITH:' are stop words too: take punctuation off, and capitals",
        "punctuation and capitals do not hide a stop word",
    )
    t.equal(
        [judge("a b...", 3), judge("a b...", 2), judge("house garden...", 2)],
        ["few words", "word length", "ellipses"],
        "a text that breaks several rules gets the reason of the first: few words, word length, "
        "ellipses, stop words",
        "the first rule that is broken is the reason",
    )


def check_4(t, contaminated, rows_to_drop):
    """06.4 Has the exam leaked?"""
    items = ["What colour is Tim's ball?", "Who is Ann", "The red house is far away from here"]
    t.equal(
        contaminated("He asked: what  COLOUR is Tim's ball", items, 3),
        [0],
        "the question stands there in capitals and with two spaces, and you do not find it: bring "
        "both sides into one form first",
        "capitals, spaces and punctuation hide nothing",
    )
    t.equal(
        contaminated("Nobody knew what colour is best.", items, 3),
        [0],
        "three words in a row, 'what colour is', are enough with n = 3: an item need not stand "
        "there as a whole",
        "a part of an item is enough",
    )
    t.equal(
        contaminated("Is what colour he liked a ball?", items, 3),
        [],
        "the words of the item are there, but in no run of three: their order counts",
        "words in another order are not found",
    )
    t.equal(
        contaminated("And who is Ann? said he", items, 5),
        [1],
        "'Who is Ann' has only three words and n is 5: shorter items are looked for as a whole",
        "an item with fewer than n words is looked for as a whole",
    )
    t.equal(
        contaminated("And who is Anna? said he", items, 5),
        [],
        "you found 'Who is Ann' in 'who is Anna': compare words, not letters",
        "Ann is not found in Anna",
    )
    t.equal(
        contaminated("Any text at all", ["", "?!", "any"], 2),
        [2],
        "an item without words was found: it would drop every document",
        "an item without words is never found",
    )
    t.equal(
        contaminated("The red house is Ann. Who is Ann", items, 4),
        [1, 2],
        "two items are in the text: return the indices of all of them, ascending",
        "every item that is found is named",
    )
    rows, lost = rows_to_drop([3, 4, 5], [1], 4)
    t.equal(
        list(rows),
        [0, 1],
        "document 1 of the documents of 3, 4 and 5 tokens has the places 3 to 6, so in rows of 4 "
        "it begins in row 0 and ends in row 1",
        "every row that holds a piece of a leaking document goes",
    )
    t.equal(
        lost,
        4,
        "rows 0 and 1 hold 8 tokens, of which 4 are those of document 1: only the other 4 are "
        "lost without need",
        "with the two rows, 4 tokens of other documents are lost",
    )
    t.equal(
        list(rows_to_drop([4, 4, 2], [0], 4)[0]),
        [0],
        "a document that ends where its row ends was given the next row as well: its last token "
        "stands at start + length - 1",
        "a document that ends with its row needs no other row",
    )
    t.equal(
        rows_to_drop([4, 1, 2], [1], 4)[1],
        2,
        "the last row is shorter than the others: of 7 tokens in rows of 4, it holds 3",
        "the last row may be shorter",
    )


def check_5(t, kept_and_lost, threshold_for, with_a_higher_threshold):
    """06.5 Where to cut"""
    scores, labels = [0.5, 0.8, 0.7, 0.9, 0.6], [0, 0, 1, 1, 1]
    t.equal(
        threshold_for(scores, labels, 0.9),
        0.9,
        "only the threshold 0.9 has a precision of at least 0.9: precision is the share of good "
        "ones among the kept, not the share of the good ones that are kept",
        "a precision of 0.9 takes the threshold 0.9",
    )
    t.equal(
        threshold_for(scores, labels, 0.7),
        0.6,
        "the threshold 0.6 has the precision 3/4, though 0.8 and 0.7 fail: the least threshold "
        "that reaches 0.7 lies below some that do not",
        "the search goes on past a threshold that fails",
    )
    t.equal(
        threshold_for(scores, labels, 0.75),
        0.6,
        "3 good ones of 4 reach a precision of 0.75: reaching is enough",
        "a precision that is reached exactly is enough",
    )
    t.equal(
        threshold_for([0.8, 0.8, 0.3], [1, 0, 0], 0.9),
        None,
        "a good and a bad document share the score 0.8, so no threshold has a better precision "
        "than 1/2: then return None",
        "where no threshold reaches the precision, that is said",
    )
    t.equal(
        [list(kept_and_lost(scores, labels, cut)) for cut in (0.6, 0.75, 2)],
        [[3, 1, 0], [1, 1, 2], [0, 0, 3]],
        "the thresholds 0.6, 0.75 and 2 keep 3, 1 and 0 good ones, keep 1, 1 and 0 bad ones, and "
        "lose 0, 2 and 3 good ones",
        "a stricter threshold loses more good documents",
    )
    t.equal(
        with_a_higher_threshold(),
        {"precision": "can do both", "recall": "never rises"},
        "your conclusion does not fit the example: from 0.6 to 0.8 precision falls, from there to "
        "0.9 it rises, and a document that is dropped does not come back to raise recall",
        "recall never rises with the threshold, and precision may do both",
    )
