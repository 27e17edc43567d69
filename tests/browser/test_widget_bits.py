"""The bits of chapter 27: the page rounds as the package does, and every bit can be flipped."""

import itertools
import math
import struct
from decimal import Decimal

import pytest
import torch
import traitlets

from llmcourse.course.widgets.bits import BitPattern, parsed
from llmcourse.optim.precision import FORMATS, decode, encode, round_to
from tests.browser.kit import look, noted, pictured, said, table, widget_faults

FIELDS = BitPattern().formats
NARROW = [name for name, fmt in FORMATS.items() if fmt.bits <= 16]


def float32_of(codes):
    """Return the float32 numbers of 32-bit codes."""
    return [struct.unpack("<f", struct.pack("<I", code))[0] for code in codes]


def numbers_for(name):
    """Numbers of the format, the midpoints between them, float32 neighbours of both, and others."""
    fmt = FORMATS[name]
    generator = torch.Generator().manual_seed(3)
    last = fmt.largest_code + 1
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


def choose(page, name):
    page.get_by_label("format", exact=True).select_option(name)


def shown_bits(page):
    return "".join(page.locator(".bp-bits button span").all_text_contents())


# --- the arithmetic


@pytest.mark.parametrize("name", FORMATS)
def test_rounds_as_the_package(arithmetic, name):
    numbers = numbers_for(name)
    got = arithmetic(BitPattern, "encode", [[x, FIELDS[name]] for x in numbers])
    given = torch.tensor(numbers, dtype=torch.float64).float()
    assert got == encode(given, FORMATS[name]).tolist()
    assert len({*got}) > 90


@pytest.mark.parametrize("name", FORMATS)
def test_rounds_infinities_and_nan_as_the_package(arithmetic, name):
    """Infinities and NaN do not travel as arguments of a page: it reads them from a text."""
    texts = ["inf", "-inf", "nan", "-0"]
    got = arithmetic(BitPattern, "codeOf", [[text, FIELDS[name]] for text in texts])
    given = torch.tensor([math.inf, -math.inf, math.nan, -0.0])
    assert got == encode(given, FORMATS[name]).tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_bits_mean_what_they_mean_in_the_package(arithmetic, name):
    fmt = FORMATS[name]
    generator = torch.Generator().manual_seed(4)
    every = fmt.bits <= 8
    codes = (
        range(1 << fmt.bits)
        if every
        else [*torch.randint(0, 1 << fmt.bits, (500,), generator=generator).tolist(), 0, 1]
    )
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


@pytest.mark.parametrize("name", NARROW)
def test_neighbours_are_the_next_numbers(arithmetic, name):
    fmt = FORMATS[name]
    values = dict(enumerate(decode(torch.arange(1 << fmt.bits), fmt).tolist()))
    ordered = sorted({v for v in values.values() if not math.isnan(v)})
    place = {value: i for i, value in enumerate(ordered)}
    chosen = [c for c in values if fmt.bits <= 8 or c % 97 == 0 or (c & 0x7FFF) < 3] + [
        fmt.largest_code,
        fmt.largest_code - 1,
        fmt.largest_code + (1 << (fmt.bits - 1)),
    ]
    got = arithmetic(BitPattern, "neighbours", [[code, FIELDS[name]] for code in chosen])
    for code, pair in zip(chosen, got, strict=True):
        if math.isnan(values[code]):
            assert pair == [None, None]
            continue
        at = place[values[code]]
        expected = [ordered[i] if 0 <= i < len(ordered) else None for i in (at - 1, at + 1)]
        assert [None if c is None else values[c] for c in pair] == expected


def test_neighbours_in_fp32_are_torchs(arithmetic):
    x = torch.tensor([0.1, -0.1, 1.0, -1.0, 3e-45, 1e-38, 3.4e38])
    codes = encode(x, FORMATS["fp32"]).tolist()
    got = arithmetic(BitPattern, "neighbours", [[code, FIELDS["fp32"]] for code in codes])
    for direction, side in ((-torch.inf, 0), (torch.inf, 1)):
        next_to = x.nextafter(torch.tensor(direction))
        assert [pair[side] for pair in got] == encode(next_to, FORMATS["fp32"]).tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_fates(arithmetic, name):
    """What is said of a number follows from what it becomes."""
    fmt = FORMATS[name]
    numbers = numbers_for(name)
    fates = arithmetic(BitPattern, "fateOf", [[x, FIELDS[name]] for x in numbers])
    seen = set()
    values = round_to(torch.tensor(numbers, dtype=torch.float64).float(), fmt).tolist()
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
NOT_NUMBERS = [
    "",
    "abc",
    "1,5",
    "1 2",
    "0/0",
    "2^0.5",
    "1+2+3",
    "--1",
    "0x",
    "0b2",
    "1e",
    "inf - inf",
]


def test_texts_mean_the_same_in_python_and_in_the_page(arithmetic):
    given = [[text] for text in TEXTS]
    for text, got in zip(TEXTS, arithmetic(BitPattern, "parsed", given), strict=True):
        expected = parsed(text)
        if math.isfinite(expected):
            assert got == expected
            assert math.copysign(1, got) == math.copysign(1, expected)
    codes = arithmetic(BitPattern, "codeOf", [[text, FIELDS["bf16"]] for text in TEXTS])
    numbers = torch.tensor([parsed(text) for text in TEXTS], dtype=torch.float64)
    assert codes == encode(numbers.float(), FORMATS["bf16"]).tolist()
    for text in NOT_NUMBERS:
        assert parsed(text) is None
    refused = arithmetic(BitPattern, "isNumber", [[text, FIELDS["bf16"]] for text in NOT_NUMBERS])
    assert refused == [False] * len(NOT_NUMBERS)


def test_bits_as_text(arithmetic):
    texts = ["0x3dcd", "0X3DCD", "0b11", "0x13dcd", " 0xff ", "12", "0xg"]
    got = arithmetic(BitPattern, "bitsGiven", [[text, FIELDS["bf16"]] for text in texts])
    assert got == [0x3DCD, 0x3DCD, 3, 0x3DCD, 0xFF, None, None]


# --- the page


def test_a_tenth_in_bf16(show):
    page = show(BitPattern())
    assert shown_bits(page) == "0011110111001101"
    below, above = (FORMATS["bf16"].value(0x3DCD + k) for k in (-1, 1))
    assert said(page) == (
        "0.1 becomes 0.10009765625 in bf16: 0.0977 % too large (at most 0.391 %, half of the "
        f"distance). Next to it: {below:.9g} below and {above:.9g} above."
    )
    board = table(page, "in every format")
    assert [row[0] for row in board] == list(FORMATS)
    assert [row[3] for row in board] == ["rounded"] * 5
    assert board[1][1:3] == ["0.100097656", "0.0977 %"]
    assert board[1][4] == "0 01111011 1001101"
    assert [float(row[1]) for row in board] == pytest.approx(
        [
            float(f"{v:.9g}")
            for v in (float(decode(encode(torch.tensor(0.1), f), f)) for f in FORMATS.values())
        ]
    )


def test_bits_flip_by_mouse_and_keyboard(show):
    page = show(BitPattern(1.0))
    page.get_by_role("button", name="sign bit: 0").click()
    assert page.get_by_label("number", exact=True).input_value() == "-1"
    bit = page.get_by_role("button", name="exponent bit worth 1: 1")
    bit.focus()
    page.keyboard.press("Space")
    assert page.get_by_label("number", exact=True).input_value() == "-0.5"
    assert page.evaluate("document.activeElement.ariaLabel") == "exponent bit worth 1: 0"
    page.get_by_role("button", name="mantissa bit worth 2^-1: 0").press("Enter")
    assert page.get_by_label("number", exact=True).input_value() == "-0.75"
    assert "0xbf40 = − 1.1000000 (binary) × 2^(126 − 127) = − 1.5 × 2⁻¹ = -0.75" in (
        page.locator(".bp-sum").text_content()
    )


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
    up, down = (
        page.get_by_role("button", name=f"Next number {side}") for side in ("above", "below")
    )
    assert up.is_disabled()
    down.press("Enter")
    assert page.get_by_label("number", exact=True).input_value() == "416"
    up.click()
    assert page.get_by_label("number", exact=True).input_value() == "448"
    choose(page, "fp8 e5m2")
    enter(page, "57344")
    up.click()
    assert said(page).startswith("Infinity has bits of its own")
    assert up.is_disabled()


def test_words_for_what_does_not_fit(show):
    page = show(BitPattern("70000", "fp16"))
    assert said(page) == (
        "Overflow: 70000 is beyond 65,504, the largest number of fp16, and becomes infinite."
    )
    assert pictured(page).endswith("becomes infinity")
    choose(page, "fp8 e4m3")
    assert "The format has no infinity: it becomes 448." in said(page)
    choose(page, "fp16")
    page.get_by_role("button", name="1e-8", exact=True).click()
    assert said(page).startswith("Underflow: 1e-8 is at most half of 5.96e-8")
    page.get_by_role("button", name="0.00003", exact=True).click()
    assert "subnormal, with 9 of 11 significant bits left" in said(page)
    page.get_by_role("button", name="nan", exact=True).click()
    assert said(page).startswith("Not a number")
    assert pictured(page).endswith("NaN has no place on it")


def test_a_lost_update(show):
    """1 + 2^-8 lies halfway, and the tie goes to the even mantissa: 1."""
    page = show(BitPattern("1 + 2^-8"))
    assert said(page).startswith("1 + 2^-8 becomes 1 in bf16")
    choose(page, "fp32")
    assert "nothing is lost" in said(page)


def test_bits_given_as_text(show):
    page = show(BitPattern("0x7fc1"))
    assert shown_bits(page) == f"{0x7FC1:016b}"
    enter(page, "0x13dcd")
    assert "longer than 16 bits" in noted(page)
    assert shown_bits(page) == f"{0x3DCD:016b}"
    choose(page, "fp16")  # the value goes along, not the bits
    assert page.get_by_label("number", exact=True).input_value() == "0.10009765625"
    assert noted(page) == ""


def test_what_is_no_number_is_refused_and_said(show):
    page = show(BitPattern())
    enter(page, "a tenth")
    assert "“a tenth” is not a number; 0.1 is kept." in noted(page)
    assert page.get_by_label("number", exact=True).input_value() == "0.1"
    enter(page, "1/3")
    assert noted(page) == ""
    assert said(page).startswith("1/3 becomes 0.333984375 in bf16")


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


# --- Python


def test_a_number_is_kept_as_a_text():
    assert BitPattern(0.1).number == "0.1"


def test_what_is_not_there_is_refused():
    for wrong in (*NOT_NUMBERS, True):
        with pytest.raises(traitlets.TraitError, match="number must be a number"):
            BitPattern(wrong)


def test_formats_are_the_packages():
    for (name, fields), (field, of) in itertools.product(
        FIELDS.items(), {"bits": "bits", "largest_code": "largest_code"}.items()
    ):
        assert fields[field] == getattr(FORMATS[name], of)
