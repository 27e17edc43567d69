"""`show` displays the source of the installed package, and nothing else."""

import ast
import inspect
import textwrap

import pytest

from llmcourse.course import show
from llmcourse.course.listing import listing
from llmcourse.data import Batches
from llmcourse.model import attention, ops
from llmcourse.optim import AdamW


@pytest.mark.parametrize("thing", [ops.rmsnorm_backward, AdamW, AdamW._update])
def test_what_is_shown_is_the_source(thing):
    source, name = listing(thing)
    assert source == textwrap.dedent(inspect.getsource(thing)).rstrip("\n")
    assert ast.parse(source).body[0].name == thing.__name__
    assert name == f"{thing.__module__}.{thing.__qualname__}"


def test_a_property_is_shown_by_its_function():
    source, name = listing(Batches.num_windows)
    assert source.startswith("@property\ndef num_windows(")
    assert name == "llmcourse.data.order.Batches.num_windows"


def test_a_part_is_shown_from_line_to_line():
    source, _ = listing(attention.flash_backward, start="for queries in", end="dq_BHTK[")
    lines = source.split("\n")
    assert lines[0].startswith("for queries in tiles_of")
    assert lines[-1].startswith("        dq_BHTK[")
    whole, _ = listing(attention.flash_backward)
    assert textwrap.indent(source, "    ") in whole


@pytest.mark.parametrize(("start", "end"), [("no such line", None), (None, "no such line")])
def test_a_line_that_is_not_there_is_named(start, end):
    with pytest.raises(ValueError, match="no line of the listing holds 'no such line'"):
        listing(ops.linear_backward, start=start, end=end)


def test_what_is_displayed_is_a_block_of_code_with_its_name(capsys):
    shown = []
    display = "IPython.display.display"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display, shown.append)
        assert show(ops.silu_gate_forward) is None
    (markdown,) = shown
    block, name = markdown.data.rsplit("\n\n", 1)
    assert block == f"```python\n{listing(ops.silu_gate_forward)[0]}\n```"
    assert name == "`llmcourse.model.ops.silu_gate_forward`"
    assert capsys.readouterr().out == ""
