"""Typical wrong answers to the exercises of chapter 18, and what the checks say to them."""


# %% 18.1 both_plus_one
# says: a - b falls when b grows: the slopes are 1 and -1
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, 1.0]
    if operation == "div":
        return a / b, [1 / b, -a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [share, 1 - share]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [s * (1 - s)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [s]
    return a * s, [s + a * s * (1 - s)]


# %% 18.1 divisor_helps
# says: 6 / 2 has the slopes 1/b = 0.5 and -a/b^2 = -1.5: a quotient falls when its divisor grows,
# and the faster the larger a is
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, -1.0]
    if operation == "div":
        return a / b, [1 / b, a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [share, 1 - share]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [s * (1 - s)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [s]
    return a * s, [s + a * s * (1 - s)]


# %% 18.1 max_gives_to_both
# says: max passes the larger input on as it is: slope 1 for that one, and 0 for the other, which
# may move a little without any effect
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, -1.0]
    if operation == "div":
        return a / b, [1 / b, -a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [1.0, 1.0]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [s * (1 - s)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [s]
    return a * s, [s + a * s * (1 - s)]


# %% 18.1 slope_by_the_input
# says: the slope of the sigmoid is s (1 - s) with s = sigmoid(a), the result and not the input
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, -1.0]
    if operation == "div":
        return a / b, [1 / b, -a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [share, 1 - share]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [a * (1 - a)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [s]
    return a * s, [s + a * s * (1 - s)]


# %% 18.1 inner_slope_forgotten
# says: 1 / (1 + e^a) is the slope of the logarithm alone: what stands in it moves, too, with a
# slope of e^a, and the two are multiplied
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, -1.0]
    if operation == "div":
        return a / b, [1 / b, -a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [share, 1 - share]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [s * (1 - s)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [1 / (1 + math.exp(a))]
    return a * s, [s + a * s * (1 - s)]


# %% 18.1 gate_held_still
# says: you held sigmoid(a) still: in a x sigmoid(a) both factors move with a, so the slope has
# two parts
import math


def local_slopes(operation, inputs):
    a, b = inputs[0], inputs[-1]
    if operation == "sub":
        return a - b, [1.0, -1.0]
    if operation == "div":
        return a / b, [1 / b, -a / b**2]
    if operation == "max":
        share = 0.5 if a == b else float(a > b)
        return max(a, b), [share, 1 - share]

    s = 1 / (1 + math.exp(-a))
    if operation == "sigmoid":
        return s, [s * (1 - s)]
    if operation == "softplus":
        return math.log(1 + math.exp(a)), [s]
    return a * s, [s]


# %% 18.2 forward_order
# says: your list is the order of the forward pass: backward starts at the root, so c comes first
def backward_order(arrows, root):
    inputs_of = {}
    for x, y in arrows:
        inputs_of.setdefault(y, []).append(x)

    uses, found = {root: 0}, [root]
    for node in found:
        for x in inputs_of.get(node, []):
            if x not in uses:
                uses[x] = 0
                found.append(x)
            uses[x] += 1

    order = [root]
    for node in order:
        for x in inputs_of.get(node, []):
            uses[x] -= 1
            if uses[x] == 0:
                order.append(x)
    return order[::-1]


# %% 18.2 by_distance
# says: you listed nodes by their distance from the root: a is used by the loss and by b, and it
# has to wait for b, however near the loss it is
def backward_order(arrows, root):
    order = [root]
    for node in order:
        for x, y in arrows:
            if y == node and x not in order:
                order.append(x)
    return order


# %% 18.2 one_branch_first
# says: you followed one branch to its end before the other had its turn: a is used by p and by q,
# and it has to wait for both
def backward_order(arrows, root):
    order, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if node not in order:
            order.append(node)
            waiting += [x for x, y in arrows if y == node]
    return order


# %% 18.2 waits_for_everybody
# says: a node is missing: did it wait for a user that never has a turn, since the loss does not
# depend on that user?
def backward_order(arrows, root):
    inputs_of, uses = {}, {}
    for x, y in arrows:
        inputs_of.setdefault(y, []).append(x)
        uses[x] = uses.get(x, 0) + 1
    order = [root]
    for node in order:
        for x in inputs_of.get(node, []):
            uses[x] -= 1
            if uses[x] == 0:
                order.append(x)
    return order


# %% 18.2 the_whole_graph
# says: a root that depends on nothing is listed all the same, and what is computed from it is not
def backward_order(arrows, root):
    inputs_of, uses = {}, {root: 0}
    for x, y in arrows:
        inputs_of.setdefault(y, []).append(x)
        uses[x] = uses.get(x, 0) + 1
        uses.setdefault(y, 0)
    order = [node for node in uses if uses[node] == 0]
    for node in order:
        for x in inputs_of.get(node, []):
            uses[x] -= 1
            if uses[x] == 0:
                order.append(x)
    return order


# %% 18.2 recursion
# says: a chain of 5,000 nodes exceeds Python's limit of nested calls: keep a list of your own
# instead of calling yourself
def backward_order(arrows, root):
    inputs_of, seen, order = {}, set(), []
    for x, y in arrows:
        inputs_of.setdefault(y, []).append(x)

    def visit(node):
        seen.add(node)
        for x in inputs_of.get(node, []):
            if x not in seen:
                visit(x)
        order.append(node)

    visit(root)
    return order[::-1]


# %% 18.3 overwrites
# says: a reaches the result by two paths, 2 x 10 and 3 x 100, and their sum is 320: add to the
# gradient that is there, or the last path overwrites the first
def gradients(tape, result):
    grads = {}
    for output, inputs in tape:
        grads[output] = 0.0
        for name, _ in inputs:
            grads.setdefault(name, 0.0)
    grads[result] = 1.0
    for output, inputs in reversed(tape):
        for name, slope in inputs:
            grads[name] = slope * grads[output]
    return grads


# %% 18.3 forwards
# says: a got no gradient: you walked along the tape in the order of the forward pass, and passed
# zeros on before the gradient of the result arrived
def gradients(tape, result):
    grads = {}
    for output, inputs in tape:
        grads[output] = 0.0
        for name, _ in inputs:
            grads.setdefault(name, 0.0)
    grads[result] = 1.0
    for output, inputs in tape:
        for name, slope in inputs:
            grads[name] += slope * grads[output]
    return grads


# %% 18.3 adds_along_the_path
# says: slopes of 3, 2 and 5 one after the other make 3 x 2 x 5 = 30: along a path they are
# multiplied, each with the gradient of its output
def gradients(tape, result):
    grads = {}
    for output, inputs in tape:
        grads[output] = 0.0
        for name, _ in inputs:
            grads.setdefault(name, 0.0)
    grads[result] = 1.0
    for output, inputs in reversed(tape):
        for name, slope in inputs:
            grads[name] += slope + grads[output]
    return grads


# %% 18.3 one_entry_for_each_input
# says: b = a + a; c = b + b: c is 4 a, so the gradient is 4. An input that stands twice in an
# operation counts twice; a dictionary of the inputs would keep one
def gradients(tape, result):
    grads = {}
    for output, inputs in tape:
        grads[output] = 0.0
        for name, _ in inputs:
            grads.setdefault(name, 0.0)
    grads[result] = 1.0
    for output, inputs in reversed(tape):
        for name, slope in dict(inputs).items():
            grads[name] += slope * grads[output]
    return grads


# %% 18.3 from_the_last_operation
# says: the gradient is asked for d, and not for the last operation of the tape: what ran after d
# has no influence on it, and gets 0
def gradients(tape, result):
    grads = {}
    for output, inputs in tape:
        grads[output] = 0.0
        for name, _ in inputs:
            grads.setdefault(name, 0.0)
    grads[tape[-1][0]] = 1.0
    for output, inputs in reversed(tape):
        for name, slope in inputs:
            grads[name] += slope * grads[output]
    return grads


# %% 18.3 a_turn_for_each_use
# says: b = a + a; c = b + b gives 6 or 8 with you, but c is 4 a: b had two turns, and passed on
# all that it had each time. An operation has one turn, when its gradient is complete
def gradients(tape, result):
    inputs_of = dict(tape)
    grads = {name: 0.0 for output, inputs in tape for name in (output, *dict(inputs))}
    grads[result] = 1.0
    waiting = [result]
    while waiting:
        output = waiting.pop(0)
        for name, slope in inputs_of.get(output, []):
            grads[name] += slope * grads[output]
            waiting.append(name)
    return grads


# %% 18.4 divides_by_one_step
# says: your slopes are twice what they should be: from x - h to x + h it is 2h
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    for d in range(len(x_D)):
        step = 1e-5 * max(1.0, abs(x_D[d].item()))
        ahead_D, behind_D = x_D.clone(), x_D.clone()
        ahead_D[d] += step
        behind_D[d] -= step
        slopes_D[d] = (loss(ahead_D) - loss(behind_D)) / step
    allowed = 1e-8 * slopes_D.abs().max()
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]


# %% 18.4 one_sided
# says: you differ from the exact gradient of a parabola: there central differences are exact, but
# one-sided ones are off by h. Take (f(x + h) - f(x - h)) / 2h
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    for d in range(len(x_D)):
        step = 1e-6 * max(1.0, abs(x_D[d].item()))
        ahead_D = x_D.clone()
        ahead_D[d] += step
        slopes_D[d] = (loss(ahead_D) - loss(x_D)) / step
    allowed = 1e-8 * slopes_D.abs().max()
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]


# %% 18.4 the_smaller_the_better
# says: on a straight line every step is exact but for rounding, and yet you err: is your step too
# small? At h = 1e-12 rounding is one part in ten thousand
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    for d in range(len(x_D)):
        step = 1e-12 * max(1.0, abs(x_D[d].item()))
        ahead_D, behind_D = x_D.clone(), x_D.clone()
        ahead_D[d] += step
        behind_D[d] -= step
        slopes_D[d] = (loss(ahead_D) - loss(behind_D)) / (2 * step)
    allowed = 1e-8 * slopes_D.abs().max()
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]


# %% 18.4 not_put_back
# says: the slope of one entry depends on the others here, and you convict the right claim: was
# the entry put back to where it was before you moved the next? Work on a copy
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    x_D = x_D.clone()
    for d in range(len(x_D)):
        step = 1e-5 * max(1.0, abs(x_D[d].item()))

        x_D[d] += step
        ahead = loss(x_D)
        x_D[d] -= 2 * step
        behind = loss(x_D)
        slopes_D[d] = (ahead - behind) / (2 * step)
    allowed = 1e-8 * slopes_D.abs().max()
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]


# %% 18.4 fixed_step
# says: at x of a million a step of fixed size drowns in the rounding of x + h: let the step grow
# with |x|
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    for d in range(len(x_D)):
        step = 1e-5
        ahead_D, behind_D = x_D.clone(), x_D.clone()
        ahead_D[d] += step
        behind_D[d] -= step
        slopes_D[d] = (loss(ahead_D) - loss(behind_D)) / (2 * step)
    allowed = 1e-8 * slopes_D.abs().max()
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]


# %% 18.4 fixed_tolerance
# says: a gradient of a billionth may be twice what it should be, and you let it pass: a fixed
# tolerance does not fit, take 1e-8 of the largest entry
import torch


def wrong_claims(name, x_D, claims):
    loss, slopes_D = LOSSES[name], torch.zeros_like(x_D)
    for d in range(len(x_D)):
        step = 1e-5 * max(1.0, abs(x_D[d].item()))
        ahead_D, behind_D = x_D.clone(), x_D.clone()
        ahead_D[d] += step
        behind_D[d] -= step
        slopes_D[d] = (loss(ahead_D) - loss(behind_D)) / (2 * step)
    allowed = 1e-8
    off = {label: (claim_D - slopes_D).abs().max() for label, claim_D in claims.items()}
    return [label for label, deviation in off.items() if deviation > allowed]
