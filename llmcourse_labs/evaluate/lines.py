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
last(xs) | the last item of xs
    xs[-1] | [1, 5], ; "abc", ; [[]],
average(xs) | the mean of the numbers in xs
    sum(xs) / len(xs) | [1, 2], ; [4], ; [-1, 0, 4],
middle(xs) | the item in the middle of xs, whose length is odd
    xs[len(xs) // 2] | [1, 2, 3], ; [5], ; "abcde",
hypotenuse(a, b) | the square of the long side of a right triangle with short sides a and b
    a * a + b * b | 3, 4 ; 1, 2 ; 0, 5
largest_gap(xs) | the difference between the largest and the smallest number of xs
    max(xs) - min(xs) | [1, 5, 3], ; [4], ; [-2, 2],
lengths(words) | a dictionary that gives each word its length
    {w: len(w) for w in words} | ["a", "bcd"], ; [], ; ["zz"],
divisors(n) | the list of all numbers from 1 to n that divide n
    [d for d in range(1, n + 1) if n % d == 0] | 6, ; 1, ; 7,
count_negative(xs) | how many numbers of xs are less than zero
    sum(x < 0 for x in xs) | [-1, 2, -3], ; [], ; [5],
absolute(xs) | the list of the absolute values of the numbers in xs
    [abs(x) for x in xs] | [-1, 2], ; [], ; [0, -7],
is_vowel(letter) | whether letter is one of a, e, i, o, u
    letter in "aeiou" | "a", ; "b", ; "u",
add_one(xs) | the list of the numbers in xs, each one greater by one
    [x + 1 for x in xs] | [1, 5], ; [], ; [-1],
percent(part, whole) | how many percent of whole the part is
    100 * part / whole | 1, 4 ; 3, 3 ; 0, 7
sort_by_length(words) | the words sorted by their lengths, the shortest first
    sorted(words, key=len) | ["ccc", "a", "bb"], ; [], ; ["zz", "y"],
digits(n) | the list of the decimal digits of n, as numbers
    [int(d) for d in str(n)] | 123, ; 0, ; 90,
product(a, b, c) | the product of the three numbers
    a * b * c | 2, 3, 4 ; 0, 1, 5 ; -1, 2, 7
cube(x) | x to the third power
    x ** 3 | 2, ; -1, ; 0,
perimeter(width, height) | the perimeter of a rectangle of that width and height
    2 * (width + height) | 2, 3 ; 1, 5 ; 0, 4
kilometres(metres) | metres as kilometres
    metres / 1000 | 1500, ; 0, ; 20,
divides(a, b) | whether b is a multiple of a
    b % a == 0 | 2, 4 ; 3, 4 ; 5, 5
last_two(xs) | the last two items of xs
    xs[-2:] | [3, 1, 2], ; "abc", ; [5, 6],
is_between(x, low, high) | whether x is at least low and at most high
    low <= x <= high | 2, 1, 3 ; 3, 1, 3 ; 0, 1, 3
total(xs) | the sum of the numbers in xs
    sum(xs) | [3, 1, 2], ; [], ; [-1, -4],
first(xs) | the first item of xs
    xs[0] | [3, 1, 2], ; "abc", ; [[]],
reverse(xs) | the items of xs in reverse order
    xs[::-1] | [3, 1, 2], ; "abc", ; [],
split_words(text) | the list of the words of text
    text.split() | "a b c", ; "one", ; "two words",
minutes_to_seconds(minutes) | the number of seconds in that many minutes
    minutes * 60 | 1, ; 5, ; 0,
remainder(a, b) | what is left when a is divided by b
    a % b | 7, 3 ; 6, 3 ; 1, 4
lower(text) | text in small letters
    text.lower() | "AbC", ; "", ; "X y",
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
