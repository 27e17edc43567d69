"""Numbers out of range are refused by name, with the rule and what was given."""

import math
from types import SimpleNamespace

import pytest

from llmcourse.base.arguments import require, require_each, require_fields


@pytest.mark.parametrize(
    ("rule", "allowed", "refused", "message"),
    [
        ({"least": 1}, (1, 1.5), (0, -1), "n must be 1 or greater, got"),
        ({"above": 0}, (1e-9, 1), (0, -1), "n must be above 0, got"),
        ({"most": 2}, (2, -5), (2.5, 3), "n must be at most 2, got"),
        ({"below": 1}, (0, 0.99), (1, 2), "n must be below 1, got"),
    ],
)
def test_each_rule_has_its_border(rule, allowed, refused, message):
    for value in allowed:
        require("n", value, **rule)
    for value in (*refused, math.nan):
        with pytest.raises(ValueError, match=f"^{message} {value}$"):
            require("n", value, **rule)


def test_rules_with_two_ends_name_the_first_that_breaks_them():
    require("share", 0, least=0, below=1)
    with pytest.raises(ValueError, match="share must be below 1, got 1"):
        require("share", 1, least=0, below=1)
    with pytest.raises(ValueError, match="share must be 0 or greater, got -1"):
        require("share", -1, least=0, below=1)
    require_each({"a": None, "b": 1}, least=1)
    with pytest.raises(ValueError, match=r"^b must be 1 or greater, got 0$"):
        require_each({"a": 3, "b": 0, "c": -1}, least=1)
    settings = SimpleNamespace(steps=3, rate=0.0, seed=-1)
    require_fields(settings, "steps", least=1)
    with pytest.raises(ValueError, match=r"^rate must be above 0, got 0\.0$"):
        require_fields(settings, "steps", "rate", above=0)
