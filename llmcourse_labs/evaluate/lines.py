"""Functions of one line: problems in HumanEval's form, which a small model solves now and then.

Each stands in two lines of a table: the head of the function and what it returns, then a solution
and arguments to test it on.  What the solution returns for these, a right function must return.
"""

from llmcourse_labs.evaluate.problems import Problem

_SHOWN = """
double_all(xs) | the list xs with each number doubled
    [2 * x for x in xs] | [1, 5],
half(x) | half of x
    x / 2 | 3,
shout(text) | text in capitals, with an exclamation mark
    text.upper() + "!" | "no",
"""
_TABLE = """
squares(xs) | the list of the squares of the numbers in xs
    [x * x for x in xs] | [1, 5], ; [], ; [-3, 2],
evens(xs) | the even numbers of xs, in their order
    [x for x in xs if x % 2 == 0] | [1, 2, 4], ; [], ; [7, -6],
count_vowels(text) | how many letters of text are one of a, e, i, o, u
    sum(text.count(v) for v in "aeiou") | "banana", ; "", ; "queue",
last(xs) | the last item of xs
    xs[-1] | [1, 5], ; "abc", ; [[]],
is_even(n) | whether n is even
    n % 2 == 0 | 4, ; 7, ; 0, ; -3,
average(xs) | the mean of the numbers in xs
    sum(xs) / len(xs) | [1, 2], ; [4], ; [-1, 0, 4],
initials(words) | the first letters of the words, as one text
    "".join(w[0] for w in words) | ["red", "owl"], ; ["a"], ; [],
longest(words) | the longest of the words
    max(words, key=len) | ["a", "bcd", "ef"], ; ["zz"], ; ["one", "three"],
reverse_words(text) | the words of text in reverse order, with a space between
    " ".join(text.split()[::-1]) | "a b c", ; "one", ; "good old days",
is_palindrome(text) | whether text reads the same from both ends
    text == text[::-1] | "otto", ; "abc", ; "",
sum_digits(n) | the sum of the decimal digits of n
    sum(int(d) for d in str(n)) | 123, ; 0, ; 9907,
product(a, b, c) | the product of the three numbers
    a * b * c | 2, 3, 4 ; 0, 1, 5 ; -1, 2, 7
middle(xs) | the item in the middle of xs, whose length is odd
    xs[len(xs) // 2] | [1, 2, 3], ; [5], ; "abcde",
count_longer(words, n) | how many of the words have more than n letters
    sum(len(w) > n for w in words) | ["a", "bcd"], 2 ; [], 1 ; ["ab", "cd"], 1
pairs(xs, ys) | the list of pairs of an item of xs and the one of ys at its place
    list(zip(xs, ys)) | [1, 2], [3, 4] ; [], [] ; "ab", "cd"
unique(xs) | the different items of xs, sorted
    sorted(set(xs)) | [3, 1, 3], ; [], ; [2, 2],
to_seconds(hours, minutes) | the number of seconds in hours and minutes
    hours * 3600 + minutes * 60 | 1, 1 ; 0, 5 ; 2, 30
hypotenuse(a, b) | the square of the long side of a right triangle with short sides a and b
    a * a + b * b | 3, 4 ; 1, 2 ; 0, 5
clamp(x, low, high) | x, or low if x is less, or high if x is more
    max(low, min(x, high)) | 5, 1, 3 ; 0, 1, 3 ; 2, 1, 3
third_largest(xs) | the third largest number of xs
    sorted(xs)[-3] | [1, 2, 3, 4], ; [9, 7, 8], ; [5, 5, 1, 7],
without(xs, x) | the list of the items of xs that are not x
    [y for y in xs if y != x] | [1, 2, 1], 1 ; [], 3 ; [4, 5], 6
every_second(xs) | every second item of xs, beginning with the first
    xs[::2] | [1, 2, 3], ; "abcd", ; [],
indexes(xs, x) | the places at which x stands in xs
    [i for i, y in enumerate(xs) if y == x] | [1, 2, 1], 1 ; [], 3 ; [4, 5], 6
flatten(rows) | one list with the items of all rows
    [x for row in rows for x in row] | [[1], [2, 3]], ; [], ; [[], [4]],
count_words(text) | the number of words in text
    len(text.split()) | "a b c", ; "", ; "two  words",
swap_case(text) | text with small letters made capital and the other way round
    text.swapcase() | "aB", ; "", ; "Hello You",
is_sorted(xs) | whether no number of xs is less than the one before it
    all(a <= b for a, b in zip(xs, xs[1:])) | [1, 2, 2], ; [3, 1], ; [],
largest_gap(xs) | the difference between the largest and the smallest number of xs
    max(xs) - min(xs) | [1, 5, 3], ; [4], ; [-2, 2],
inverse(table) | a dictionary with keys and values of table exchanged
    {v: k for k, v in table.items()} | {"a": 1, "b": 2}, ; {}, ; {3: 4},
lengths(words) | a dictionary that gives each word its length
    {w: len(w) for w in words} | ["a", "bcd"], ; [], ; ["zz"],
"""
"""The arguments of a test are a tuple, as Python writes it; tests are apart by a semicolon."""


def line_problems() -> list[Problem]:
    """Return all of them; a prompt ends after the word return."""
    return _problems(_TABLE)


def _problems(table: str) -> list[Problem]:
    lines = iter(table.strip().splitlines())
    rows = (f"{first} | {second}".split(" | ") for first, second in zip(lines, lines, strict=True))
    return [_problem(*map(str.strip, row)) for row in rows]


def _problem(head: str, told: str, solution: str, tests: str) -> Problem:
    """Return a row of a table as a problem."""
    name, parameters = head[:-1].split("(")
    right = eval(f"lambda {parameters}: {solution}")
    cases = [eval(f"({each})") for each in tests.split(" ; ")]
    asserts = [f"    assert candidate(*{case!r}) == {right(*case)!r}" for case in cases]
    return Problem(
        task_id=f"lines/{name}",
        prompt=f'def {head}:\n    """Return {told}."""\n    return',
        entry_point=name,
        canonical_solution=f" {solution}",
        test="\n".join(["def check(candidate):", *asserts, ""]),
    )


SHOWN = _problems(_SHOWN)
"""Solved before others: what a shot shows."""
