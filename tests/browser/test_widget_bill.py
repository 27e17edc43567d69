"""The calculator of chapter 35: the page computes as the package, and every control obeys.

Mutants that these tests reject: 3 or 2 for 6, minutes for seconds, hours not shared by GPUs, a host
share that is not added to one, watts in place of kilowatts.
"""

import itertools

import pytest

from llmcourse_classroom.widgets.bill import ASSUMED_RENT, OWN, CostCalculator
from llmcourse_labs.scale import cost
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table, value

GRID = list(
    itertools.product(
        (1e5, 7.1e9, 4e14), (3e6, 15.6e12), cost.HARDWARE, (0.01, 0.346, 1), (1, 16_384)
    )
)
RENTS = [(0.01, 1, 0, 1), (2, 700, 0.82, 1.1), (99.5, 1_999, 1, 3)]


def packages(case):
    return list(
        cost.bill(
            flop=cost.model_flop_per_token(case["parameters"]) * case["tokens"],
            hardware=cost.HARDWARE[case["gpu"]],
            mfu=case["mfu"],
            num_gpus=case["gpus"],
            dollars_per_gpu_hour=case["price"],
            watts_per_gpu=case["watts"],
            host_share=case["host"],
            pue=case["pue"],
        )
    )


def test_the_bill_is_the_packages_on_a_grid(arithmetic):
    cases = []
    for (n, d, gpu, mfu, gpus), (price, watts, host, pue) in itertools.product(GRID, RENTS):
        case = {"parameters": n, "tokens": d, "gpu": gpu, "mfu": mfu, "gpus": gpus, "price": price}
        cases.append(case | {"watts": watts, "host": host, "pue": pue})
    peaks = {name: part.dense_bf16_flop_per_s for name, part in cost.HARDWARE.items()}
    found = arithmetic(CostCalculator, "bill", [[c | {"peak": peaks[c["gpu"]]}] for c in cases])
    assert len(cases) == 972
    for case, numbers in zip(cases, found, strict=True):
        assert numbers == pytest.approx(packages(case), rel=1e-12)


def test_numbers_in_words(arithmetic):
    given = {30.84e6: "30.84 million", 61_680_000: "61.68 million", 1.5e9: "1.5 billion"}
    given |= {78.4302: "78.43", 3_640: "3,640", 0.00217: "0.00217", 0: "0", 1.2e-7: "1.200e-7"}
    given |= {7e21: "7.000e21"}
    assert arithmetic(CostCalculator, "inWords", [[x] for x in given]) == list(given.values())


def test_a_preset_has_the_hours_and_the_price_of_its_source(show):
    page = show(CostCalculator())
    for name, run in cost.PUBLISHED.items():
        choose(page, "start from", name)
        rows = {row[0]: row[1:] for row in table(page)}
        hours = f"{float(f'{run.gpu_hours / 1e6:.4g}'):g} million"
        assert rows["GPU-hours"][1] == hours
        assert said(page).startswith(f"{hours} GPU-hours of {cost.HARDWARE[run.hardware].name} at ")
        price = run.gpu_hours * (run.dollars_per_gpu_hour or ASSUMED_RENT) / 1e6
        holds(pictured(page), f"{name} {float(f'{price:.4g}'):g} million")
        source = run.source.replace("https://", "")
        holds(page.locator(".lc-stages").text_content(), source)
        assert (rows["run"], CostCalculator(name).mfu) == ([name, "", source], run.mfu)


def test_the_chain_stands_in_formulas_with_its_numbers(show):
    lines = show(CostCalculator()).locator(".lc ol li").all_text_contents()
    assert lines[0] == "FLOPs = 6 · N · D = 6 · 4.059e11 · 1.560e13 = 3.799e25"
    holds(lines[1], "FLOPs / (peak · MFU · 3,600 s) = 3.799e25 / (9.894e14 ")
    assert lines[2] == "days = GPU-hours / GPUs / 24 = 30.84 million / 16,384 / 24 = 78.43"
    assert lines[4].endswith(" = 30.84 million · 700 · 1 · 1 / 1,000 = 21.59 million")


def start(page):
    return page.get_by_label("start from", exact=True).input_value()


def test_a_change_makes_it_ones_own_and_moves_what_hangs_on_it(show):
    page = show(CostCalculator())
    enter(page, "GPUs", "8192")
    assert start(page) == OWN
    holds(said(page), "156.9 days on 8,192, 61.68 million dollars")
    enter(page, "MFU", "0.404", "26.4 million GPU-hours")
    enter(page, "server and network, share", "0.82")
    enter(page, "PUE", "1.1", "1.4 for each GPU-hour")
    choose(page, "compare", "days", picture=["GPT-3 12.98, Llama 3.1 405B 78.43"])
    choose(page, "start from", "DeepSeek-V3")
    assert (value(page, "PUE"), start(page)) == ("1", "DeepSeek-V3")
    holds(said(page), "2.664 million GPU-hours")
    choose(page, "start from", "GPT-3")
    choose(page, "GPU", "H100", values={"watts of a GPU": "700"})
    run = cost.PUBLISHED["GPT-3"]
    hours = cost.gpu_hours(flop=run.flop, hardware=cost.HARDWARE["H100"], mfu=run.mfu)
    assert said(page).startswith(f"{round(hours, -2):,.0f} GPU-hours of NVIDIA H100")
    assert start(page) == OWN
