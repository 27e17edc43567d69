"""`show` displays the source of the installed package, and nothing else."""

import ast
import importlib
import inspect
import pkgutil
import textwrap

import pytest

import llmcourse
from llmcourse.data import Batches
from llmcourse.model import FeedForward, attention, ops
from llmcourse.optim import AdamW
from llmcourse_classroom import show
from llmcourse_classroom.listing import listing


@pytest.mark.parametrize("thing", [ops.rmsnorm_backward, AdamW, AdamW._update])
def test_what_is_shown_is_the_source(thing):
    source, name = listing(thing)
    assert source == textwrap.dedent(inspect.getsource(thing)).rstrip("\n")
    assert ast.parse(source).body[0].name == thing.__name__
    assert name == f"{thing.__module__}.{thing.__qualname__}"


def test_a_property_is_shown_by_its_function_and_a_part_from_line_to_line():
    source, name = listing(Batches.num_windows)
    assert source.startswith("@property\ndef num_windows(")
    assert name == "llmcourse.data.order.Batches.num_windows"
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("IPython.display.display", shown.append)
        assert show(ops.silu_gate_forward) is None
    (markdown,) = shown
    block, name = markdown.data.rsplit("\n\n", 1)
    assert block == f"```python\n{listing(ops.silu_gate_forward)[0]}\n```"
    assert (name, capsys.readouterr().out) == ("`llmcourse.model.ops.silu_gate_forward`", "")


class Plainly(ast.NodeTransformer):
    """What `plain` leaves out, written down once more: on the tree, not on the text."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        body = [each for each in node.body if not is_docstring(each)]
        while body and refuses(body[0]):
            del body[0]
        node.body = body or node.body
        return self.generic_visit(node)

    def visit_ClassDef(self, node):
        node.body = [each for each in node.body if not is_docstring(each)] or node.body
        return self.generic_visit(node)


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def refuses(node):
    match node:
        case ast.Raise():
            return True
        case ast.If() | ast.For():
            return all(refuses(each) for each in [*node.body, *node.orelse])
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name.startswith("require")
    return False


def all_functions(*packages):
    found = {}
    for module in pkgutil.walk_packages(llmcourse.__path__, "llmcourse."):
        if module.name.split(".")[1] not in packages or module.name.endswith("__main__"):
            continue
        things = vars(importlib.import_module(module.name)).values()
        own = [each for each in things if getattr(each, "__module__", None) == module.name]
        methods = [each for thing in own if inspect.isclass(thing) for each in vars(thing).values()]
        for each in map(inspect.unwrap, filter(inspect.isfunction, [*own, *methods])):
            if each.__module__ == module.name and "<" not in each.__code__.co_filename:
                found[f"{module.name}.{each.__qualname__}"] = each
    return found


def test_plain_leaves_out_docstrings_annotations_and_checks_and_keeps_comments_and_parts():
    """Of each function and method of the rooms that chapters show most."""
    things = all_functions("model", "loss", "optim", "backward", "parallel")
    assert len(things) > 300
    for name, thing in things.items():
        whole, plain = listing(thing)[0], listing(thing, plain=True)[0]
        assert ast.dump(ast.parse(plain)) == ast.dump(Plainly().visit(ast.parse(whole))), name
    first = listing(ops.rmsnorm_forward, plain=True)[0].split("\n")[0]
    assert first == "def rmsnorm_forward(x_BTD, gain_D, eps=1e-5):"
    both = (listing(attention.flash_backward, plain=plain)[0] for plain in (False, True))
    whole, plain = ([line for line in text.split("\n") if "#" in line] for text in both)
    assert whole == plain != []
    assert "def forward(self, x_BTD):\n" in listing(FeedForward, plain=True)[0]
    part, _ = listing(attention.flash_backward, start="def", end="def", plain=True)
    assert part.startswith("def flash_backward(")
    assert "Float" not in part
