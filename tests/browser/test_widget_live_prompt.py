"""What the page does with a prompt of the reader's own."""

import re

from llmcourse_classroom.widgets import LivePrompt
from tests.browser import hands, kit
from tests.browser.hands import press
from tests.browser.kit import holds
from tests.browser.registry import tiny_live
from tests.browser.test_widget_live import press_until, wait_to_say

PROBABILITY = re.compile(r"(“.*?”|all others) (\d\.\d{3})")


def written(page):
    return page.locator(".lr-words span").text_content(), page.locator("strong").text_content()


def probabilities(page):
    return [(name, float(p)) for name, p in PROBABILITY.findall(kit.pictured(page))]


def wait_for_picture(page, words):
    page.locator(f'.lc-stage > svg[aria-label*="{words}"]').wait_for(timeout=20_000)


def test_it_writes_on_from_the_readers_words(show):
    page = show(tiny_live(LivePrompt, temperature=1.0))
    holds(kit.pictured(page), "not known yet")
    assert (written(page), len(page.workers)) == (("Once there was", ""), 0)
    press_until(page, "Train", re.compile(r"Step 60 of 60.*At temperature 1 the likeliest .*“"))
    page.get_by_text("model of step 60 writes on").wait_for()
    before, first = written(page)
    assert before == "Once there was"
    assert first
    page.get_by_label("your beginning").fill("Tom")
    page.locator(".lr-words span", has_text=re.compile("^Tom$")).wait_for()
    shown = probabilities(page)
    assert len(shown) == 9
    assert abs(sum(p for _, p in shown) - 1) < 0.005
    assert [p for _, p in shown[:-1]] == sorted((p for _, p in shown[:-1]), reverse=True)
    _, once = written(page)
    press(page, "Draw again")
    page.wait_for_function(
        "(once) => document.querySelector('strong').textContent !== once", arg=once
    )
    assert written(page)[0] == "Tom"


def test_a_temperature_near_nothing_leaves_one_token(show):
    page = show(tiny_live(LivePrompt))
    press_until(page, "Train", "Step 60 of 60")
    hands.enter(page, "temperature", "0.1")
    wait_to_say(page, "At temperature 0.1")
    cold = probabilities(page)
    hands.enter(page, "temperature", "3")
    wait_to_say(page, "At temperature 3")
    warm = probabilities(page)
    assert cold[0][1] > 0.5 > warm[0][1]
    assert cold[0][0] == warm[0][0]  # the order stays


def test_an_earlier_step_writes_as_it_did_then(show):
    page = show(tiny_live(LivePrompt))
    press_until(page, "Train", "Step 60 of 60")
    for _ in range(100):  # the picture may follow the sentence a moment later
        trained = probabilities(page)
        if trained[0][1] > 0.01:
            break
        page.wait_for_timeout(100)
    hands.enter(page, "step", "0")
    page.get_by_text("model of step 0 writes on").wait_for()
    assert probabilities(page)[0][1] < 0.01 < trained[0][1]
    press(page, "Start anew")
    wait_for_picture(page, "not known yet")
