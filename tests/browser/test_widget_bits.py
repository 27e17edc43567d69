"""The bits of chapter 27: the page rounds as the package does, and every bit can be flipped."""

import math
import struct
from decimal import Decimal

import pytest
import torch
import traitlets

from llmcourse.optim.precision import FORMATS, decode, encode, round_to
from llmcourse_classroom.widgets.bits import BitPattern, parsed
from tests.browser.hands import by_key, choose, press
from tests.browser.kit import holds, look, noted, pictured, said, table, widget_faults
from tests.browser.twins import each

FIELDS = BitPattern().formats


def float32_of(codes):
    return [struct.unpack("<f", struct.pack("<I", code))[0] for code in codes]


def as_float32(numbers):
    return torch.tensor(numbers, dtype=torch.float64).float()


def numbers_for(name):
    """Numbers of the format, the midpoints between them, float32 neighbours of both, and others."""
    fmt = FORMATS[name]
    generator, last = torch.Generator().manual_seed(3), fmt.largest_code + 1
    codes = torch.randint(0, last, (100,), generator=generator).tolist()
    codes += [0, 1, 2, last - 1, last - 2]
    codes += [(1 << fmt.mantissa_bits) + k for k in (-2, -1, 0, 1)]
    values = decode(torch.tensor(codes), fmt).double()
    half = (values + decode(torch.tensor(codes) - 1, fmt)) / 2
    top = torch.tensor([1.5 * fmt.largest - fmt.value(fmt.largest_code - 1) / 2]).double()
    exact = torch.cat([values, half[values > 0], top]).float()
    around = [exact, exact.nextafter(torch.tensor(torch.inf)), exact.nextafter(torch.zeros(()))]
    random = torch.randint(0, 1 << 31, (150,), generator=generator).tolist()
    positive = [*torch.cat(around).tolist(), *float32_of(random), 1e39, 1e-46, 0.1]
    positive.append(1 + 2.0 ** (-1 - fmt.mantissa_bits) + 2.0**-40)  # as float32 it is a tie
    return [
        x * sign for x in positive if not math.isnan(x) and math.isfinite(x) for sign in (1, -1)
    ]


def enter(page, text):
    page.get_by_label("number", exact=True).fill(text)
    page.keyboard.press("Tab")


def number(page):
    return page.get_by_label("number", exact=True).input_value()


def shown_bits(page):
    return "".join(page.locator(".bp-bits button span").all_text_contents())


@pytest.mark.parametrize("name", FORMATS)
def test_rounds_as_the_package(arithmetic, name):
    """Infinities and NaN do not travel as arguments of a page: it reads them from a text."""
    numbers = numbers_for(name)
    got = arithmetic(BitPattern, "encode", [[x, FIELDS[name]] for x in numbers])
    assert got == encode(as_float32(numbers), FORMATS[name]).tolist()
    assert len({*got}) > 90
    texts = ["inf", "-inf", "nan", "-0"]
    got = arithmetic(BitPattern, "codeOf", [[text, FIELDS[name]] for text in texts])
    given = torch.tensor([math.inf, -math.inf, math.nan, -0.0])
    assert got == encode(given, FORMATS[name]).tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_bits_mean_what_they_mean_in_the_package(arithmetic, name):
    fmt, generator = FORMATS[name], torch.Generator().manual_seed(4)
    codes = range(1 << fmt.bits)
    if fmt.bits > 8:
        codes = [*torch.randint(0, 1 << fmt.bits, (500,), generator=generator).tolist(), 0, 1]
    given = [[code, FIELDS[name]] for code in codes]
    values = arithmetic(BitPattern, "decode", given)
    exact = arithmetic(BitPattern, "exactDecimal", given)
    packages = decode(torch.tensor(codes), fmt).tolist()
    for got, decimal, expected in zip(values, exact, packages, strict=True):
        if math.isfinite(expected):
            assert float(got) == expected  # a large whole number arrives as an int
            assert Decimal(decimal) == Decimal(expected)
            assert "E" not in decimal.upper()
        else:
            assert decimal == {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(expected)]


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.bits <= 16])
def test_neighbours_are_the_next_numbers(arithmetic, name):
    fmt = FORMATS[name]
    values = dict(enumerate(decode(torch.arange(1 << fmt.bits), fmt).tolist()))
    ordered = sorted({v for v in values.values() if not math.isnan(v)})
    place = {value: i for i, value in enumerate(ordered)}
    chosen = [c for c in values if fmt.bits <= 8 or c % 97 == 0 or (c & 0x7FFF) < 3]
    chosen += [fmt.largest_code + more for more in (0, -1, 1 << (fmt.bits - 1))]
    for (code, _), pair in each(
        arithmetic, BitPattern, "neighbours", [[code, FIELDS[name]] for code in chosen]
    ):
        if math.isnan(values[code]):
            assert pair == [None, None]
            continue
        at = place[values[code]]
        expected = [ordered[i] if 0 <= i < len(ordered) else None for i in (at - 1, at + 1)]
        assert [None if c is None else values[c] for c in pair] == expected


def test_neighbours_in_fp32_are_torchs_and_bits_may_be_given_as_text(arithmetic):
    x = torch.tensor([0.1, -0.1, 1.0, -1.0, 3e-45, 1e-38, 3.4e38])
    codes = encode(x, FORMATS["fp32"]).tolist()
    got = arithmetic(BitPattern, "neighbours", [[code, FIELDS["fp32"]] for code in codes])
    for direction, side in ((-torch.inf, 0), (torch.inf, 1)):
        next_to = x.nextafter(torch.tensor(direction))
        assert [pair[side] for pair in got] == encode(next_to, FORMATS["fp32"]).tolist()
    texts = ["0x3dcd", "0X3DCD", "0b11", "0x13dcd", " 0xff ", "12", "0xg"]
    got = arithmetic(BitPattern, "bitsGiven", [[text, FIELDS["bf16"]] for text in texts])
    assert got == [0x3DCD, 0x3DCD, 3, 0x3DCD, 0xFF, None, None]


@pytest.mark.parametrize("name", FORMATS)
def test_fates(arithmetic, name):
    """What is said of a number follows from what it becomes."""
    fmt, seen = FORMATS[name], set()
    numbers = numbers_for(name)
    fates = arithmetic(BitPattern, "fateOf", [[x, FIELDS[name]] for x in numbers])
    values = round_to(as_float32(numbers), fmt).tolist()
    for x, value, fate in zip(numbers, values, fates, strict=True):
        seen.add(fate)
        if fate in ("overflow", "saturated"):
            assert abs(x) > fmt.largest
            assert abs(value) == (fmt.largest if fate == "saturated" else math.inf)
        elif fate == "underflow":
            assert value == 0 != x
        elif fate == "subnormal":
            assert 0 < abs(value) < fmt.smallest_normal
        else:
            assert (value == x) == (fate == "exact")
            assert fate in ("exact", "rounded")
            half = abs(value) * 2.0 ** (-1 - fmt.mantissa_bits)
            assert abs(value - x) <= half + abs(x) * 2.0**-24  # 500 is not rounded to 448
    too_large = "saturated" if fmt.overflow == "largest" else "overflow"
    assert seen == {"exact", "rounded", "subnormal", "underflow", too_large}


TEXTS = [
    *("0.1", "-1e-8", "1/3", "2^-24", "1 + 2^-8", "-2^3 - .5e1", "70,000", "−3", "1.", "1e400"),
    *("2^9999", "2^-9999", "1/0", "-0", " 5 ", "3e+2", "1e3+2e+3", "inf", "-Infinity", "1,234,567"),
]
NOT_NUMBERS = ["", "abc", "1,5", "1 2", "0/0", "2^0.5", "1+2+3", "--1", "0x", "0b2", "1e"]
NOT_NUMBERS.append("inf - inf")


def test_texts_mean_the_same_in_python_and_in_the_page(arithmetic):
    for (text,), got in each(arithmetic, BitPattern, "parsed", [[text] for text in TEXTS]):
        expected = parsed(text)
        if math.isfinite(expected):
            assert (got, math.copysign(1, got)) == (expected, math.copysign(1, expected))
    codes = arithmetic(BitPattern, "codeOf", [[text, FIELDS["bf16"]] for text in TEXTS])
    assert codes == encode(as_float32([parsed(text) for text in TEXTS]), FORMATS["bf16"]).tolist()
    refused = arithmetic(BitPattern, "isNumber", [[text, FIELDS["bf16"]] for text in NOT_NUMBERS])
    assert refused == [False] * len(NOT_NUMBERS)
    assert [parsed(text) for text in NOT_NUMBERS] == [None] * len(NOT_NUMBERS)
    for wrong in (*NOT_NUMBERS, True):
        with pytest.raises(traitlets.TraitError, match="number must be a number"):
            BitPattern(wrong)
    assert BitPattern(0.1).number == "0.1"


def test_a_tenth_in_bf16(show):
    page = show(BitPattern())
    assert shown_bits(page) == "0011110111001101"
    below, above = (FORMATS["bf16"].value(0x3DCD + k) for k in (-1, 1))
    holds(said(page), "0.1 becomes 0.10009765625 in bf16", "0.0977 % too large", "at most 0.391 %")
    holds(said(page), f"{below:.9g} below", f"{above:.9g} above")
    board = table(page, "in every format")
    assert [row[0] for row in board] == list(FORMATS)
    assert [row[3] for row in board] == ["rounded"] * 5
    assert board[1][1:] == ["0.100097656", "0.0977 %", "rounded", "0 01111011 1001101"]
    for row, fmt in zip(board, FORMATS.values(), strict=True):
        near = float(decode(encode(torch.tensor(0.1), fmt), fmt))
        assert float(row[1]) == pytest.approx(float(f"{near:.9g}"))


def test_bits_flip_by_mouse_and_keyboard(show):
    page = show(BitPattern(1.0))
    press(page, "sign bit: 0")
    assert number(page) == "-1"
    page.get_by_role("button", name="exponent bit worth 1: 1").focus()
    page.keyboard.press("Space")
    assert number(page) == "-0.5"
    assert page.evaluate("document.activeElement.ariaLabel") == "exponent bit worth 1: 0"
    by_key(page, "mantissa bit worth 2^-1: 0")
    assert number(page) == "-0.75"
    found = page.locator(".bp-sum").text_content()
    holds(found, "0xbf40 = − 1.1000000 (binary) × 2^(126 − 127) = − 1.5 × 2⁻¹ = -0.75")


@pytest.mark.parametrize("name", FORMATS)
def test_every_bit_flips_and_flips_back(show, name):
    """From NaN, too: its bits are kept."""
    page = show(BitPattern("nan", name))
    before = shown_bits(page)
    for place in range(len(before)):
        button = page.locator(".bp-bits button").nth(place)
        button.click()
        after = shown_bits(page)
        assert [i for i in range(len(before)) if before[i] != after[i]] == [place]
        button.click()
        assert shown_bits(page) == before


def test_next_numbers(show):
    page = show(BitPattern(448, "fp8 e4m3"))
    up, down = (page.get_by_role("button", name=f"Next number {x}") for x in ("above", "below"))
    assert up.is_disabled()
    down.press("Enter")
    assert number(page) == "416"
    up.click()
    assert number(page) == "448"
    choose(page, "format", "fp8 e5m2")
    enter(page, "57344")
    up.click()
    holds(said(page), "Infinity")
    assert up.is_disabled()


def test_words_for_what_does_not_fit(show):
    page = show(BitPattern("70000", "fp16"), says=["Overflow: 70000", "65,504", "fp16", "infinite"])
    holds(pictured(page), "becomes infinity")
    choose(page, "format", "fp8 e4m3", "no infinity", "becomes 448")
    choose(page, "format", "fp16")
    press(page, "1e-8", "Underflow: 1e-8", "5.96e-8")
    press(page, "0.00003", "subnormal", "9 of 11")
    press(page, "nan", "Not a number")
    holds(pictured(page), "NaN has no place")
    enter(page, "1 + 2^-8")  # lies halfway, and the tie goes to the even mantissa: 1
    choose(page, "format", "bf16", "1 + 2^-8 becomes 1 in bf16")
    choose(page, "format", "fp32", "nothing is lost")


def test_bits_given_as_text(show):
    page = show(BitPattern("0x7fc1"))
    assert shown_bits(page) == f"{0x7FC1:016b}"
    enter(page, "0x13dcd")
    holds(noted(page), "16 bits")
    assert shown_bits(page) == f"{0x3DCD:016b}"
    choose(page, "format", "fp16")  # the value goes along, not the bits
    assert (number(page), noted(page)) == ("0.10009765625", "")
    enter(page, "a tenth")
    holds(noted(page), "“a tenth”", "0.10009765625 is kept")
    assert number(page) == "0.10009765625"
    choose(page, "format", "bf16")
    enter(page, "1/3")
    assert noted(page) == ""
    holds(said(page), "1/3 becomes 0.333984375 in bf16")


AWKWARD = ["0.1", "-1/3", "1e-45", "-3.4e38", "70000", "nan", "-0", "2^-149", "123456.789012345"]


@pytest.mark.parametrize("name", FORMATS)
def test_awkward_numbers_fit(show, name):
    page, found = show(BitPattern(format=name), theme="dark", width=360), {}
    for width in (360, 760):
        look(page, theme="light", width=width)
        for text in AWKWARD:
            enter(page, text)
            found[width, text] = widget_faults(page)
    assert {key: faults for key, faults in found.items() if faults} == {}
