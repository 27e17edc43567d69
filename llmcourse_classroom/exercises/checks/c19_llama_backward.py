"""Checks of exercises 19: The backward pass of a Llama, by hand."""

import math

import torch
import torch.nn.functional as F


def check_1(t, linear_backward, *, by_autograd, same, several):
    """19.1 The linear layer"""
    draw = torch.Generator().manual_seed(19)

    def normal(*shape):
        """Return random numbers."""
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    # A square matrix, with which a missing transpose raises no error.
    x, w, dy = normal(2, 5, 3), normal(3, 3), normal(2, 5, 3)
    right_dx, right_dw = by_autograd(F.linear, dy, x, w)
    answer = linear_backward(dy, x, w)
    t(several(answer, 2), "return two tensors: (dx, dw)", "two gradients are returned")
    dx, dw = answer
    t(
        not same(dx, right_dw),
        "you returned the gradient of the weight first: the order is (dx, dw)",
        "dx comes first",
    )
    t(
        not same(dx, dy @ w.T),
        "dx is multiplied by W^T, which is what the forward pass did: the way back takes the other "
        "one, dy W. A square matrix hides that",
        "dx = dy W, without a transpose",
    )
    t.close(
        dx,
        right_dx,
        "dx_d is the sum over the outputs f of dy_f W_fd: each input feels every output",
        "each input feels every output",
        relative=1e-9,
    )
    t(
        not same(dw, right_dw.T),
        "dw is transposed: its row f belongs to output f, as in W itself",
        "dw has a row for each output",
    )
    t(
        not any(same(dw, right_dw / count) for count in (2, 3, 5, 10)),
        "you took a mean over the tokens: each token adds its own share, and any division is in dy "
        "already",
        "the shares of the tokens are added, not averaged",
    )
    t(
        isinstance(dw, torch.Tensor) and dw.dim() == 2,
        "dw has an axis too many: every sequence of the batch uses the same matrix, so their "
        "gradients are added up to one",
        "all sequences add to one gradient",
    )
    t(
        not same(dw, torch.outer(dy.sum((0, 1)), x.sum((0, 1)))),
        "you added up the tokens before you multiplied: dy of one token then meets x of another. "
        "Multiply within each token first",
        "each token's dy meets its own x only",
    )
    t.close(
        dw,
        right_dw,
        "dw_fd is the sum over all tokens of dy_f x_d",
        "dw is the sum over tokens of dy_f x_d",
        relative=1e-9,
    )
    for shape in ((), (1,), (4, 2, 3)):
        x, w, dy = normal(*shape, 7), normal(2, 7), normal(*shape, 2)
        t.close(
            linear_backward(dy, x, w),
            by_autograd(F.linear, dy, x, w),
            f"tokens in the shape {shape}, 7 inputs and 2 outputs do not come out right: put all "
            "tokens in rows first",
            f"tokens in the shape {shape}, 7 inputs and 2 outputs",
            relative=1e-9,
        )


def check_2(t, rmsnorm_backward, *, by_autograd, same, several):
    """19.2 RMSNorm"""
    draw = torch.Generator().manual_seed(19)

    def normal(*shape):
        """Return random numbers."""
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def expected(dy, x, gain, eps):
        """Return what autograd finds."""
        return by_autograd(lambda x, g: F.rms_norm(x, x.shape[-1:], g, eps), dy, x, gain)

    tiny = 1e-12
    x, gain, dy = 2 * normal(2, 3, 4) + 1, normal(4) + 2, normal(2, 3, 4)
    answer = rmsnorm_backward(dy, x, gain, tiny)
    t(several(answer, 2), "return two tensors: (dx, dgain)", "two gradients are returned")
    dx, dgain = answer
    inv_rms = (x.square().mean(-1, keepdim=True) + tiny).rsqrt()
    n, dn = x * inv_rms, dy * gain
    t(
        not same(dx, dn * inv_rms),
        "you held the root mean square still: each x_d moves it, too, and through it every channel "
        "of the token. The second term is missing",
        "dx flows through the root mean square, too",
    )
    t(
        not same(dx, (dn + n * (dn * n).mean(-1, keepdim=True)) * inv_rms),
        "the sign of the second term is turned: a larger x_d makes r larger, and every n smaller",
        "the way through r is subtracted",
    )
    inner = dy - n * (dy * n).mean(-1, keepdim=True)
    t(
        not same(dx, inner * inv_rms),
        "you left out the gain: what reaches n is dn = gain x dy",
        "dy is multiplied by the gain first",
    )
    t(
        not same(dx, gain * inner * inv_rms),
        "you multiplied by the gain at the end: it belongs to dn, before the mean is taken, since "
        "each channel has its own gain",
        "the gain comes before the mean over the channels",
    )
    t(
        not same(dx, (dn - n * (dn * n).sum(-1, keepdim=True)) * inv_rms),
        "you subtracted D times too much: r is the root of a mean, so its slope is n_d / D, and "
        "the sum becomes a mean",
        "the second term holds a mean, not a sum",
    )
    right_dx, right_dgain = expected(dy, x, gain, tiny)
    t.close(
        dx,
        right_dx,
        "with dn = gain x dy, dx is (dn - n mean(dn n)) / r, the mean over the channels of each "
        "token",
        "dx is autograd's",
        relative=1e-8,
    )
    t(
        not same(dgain, (dy * x).sum((0, 1))),
        "the gain multiplies n, not x: its gradient is dy x n",
        "the gradient of the gain holds the normalised n",
    )
    t(
        isinstance(dgain, torch.Tensor) and dgain.shape == (4,),
        "dgain has to have the shape of the gain: add up over all tokens",
        "one number for each gain",
    )
    t.close(
        dgain,
        right_dgain,
        "dgain_d is the sum over all tokens of dy_d n_d: a sum, not a mean",
        "the tokens add to the gradient of the gain",
        relative=1e-8,
    )
    t.close(
        rmsnorm_backward(dy, x, gain, 2.0),
        expected(dy, x, gain, 2.0),
        "with eps = 2 you are off: eps stands under the root wherever 1/r does",
        "eps = 2 is under the root",
        relative=1e-8,
    )
    blank = torch.zeros(3, 4, dtype=torch.float64)
    t.close(
        rmsnorm_backward(dy[0], blank, gain, 0.25),
        (2 * dy[0] * gain, torch.zeros(4, dtype=torch.float64)),
        "tokens of zeros with eps = 0.25 have r = 0.5 and n = 0: dx is 2 gain dy, and dgain 0",
        "tokens of zeros are fine",
        relative=1e-8,
    )


def check_3(t, gate_backward, *, by_autograd, same, several):
    """19.3 The gate of SwiGLU"""
    draw = torch.Generator().manual_seed(19)
    gate, up, dy = (3 * torch.randn(3, 2, 5, generator=draw, dtype=torch.float64)).unbind()
    right_gate, right_up = by_autograd(lambda g, u: F.silu(g) * u, dy, gate, up)
    answer = gate_backward(dy, gate, up)
    t(several(answer, 2), "return two tensors: (dgate, dup)", "two gradients are returned")
    dgate, dup = answer
    s = torch.sigmoid(gate)
    t(
        not same(dgate, right_up),
        "you returned dup first: the order is (dgate, dup)",
        "dgate comes first",
    )
    t(
        not same(dup, gate * s),
        "you left out dy: what comes from above is multiplied by the slope",
        "dy is a factor of both gradients",
    )
    t(
        not same(dup, dy * gate),
        "up is multiplied by silu(gate), not by the gate itself, and so is its gradient",
        "up gets dy times silu(gate)",
    )
    t.close(
        dup,
        right_up,
        "dup is dy times the other factor, silu(gate) = gate x sigmoid(gate)",
        "dup is autograd's",
        relative=1e-9,
    )
    t(
        not same(dgate, dy * (s + gate * s * (1 - s))),
        "you left out up: the gate's part of the product gets dy times the other factor, times the "
        "slope of SiLU",
        "the gate gets dy times up",
    )
    t(
        not same(dgate, dy * up * s),
        "you held sigmoid(gate) still: in gate x sigmoid(gate) both factors move, and the second "
        "part of the slope is gate x s (1 - s)",
        "the gate moves both factors of SiLU",
    )
    t(
        not same(dgate, dy * up * s * (1 - s)),
        "that is the slope of the sigmoid alone: SiLU is gate x sigmoid(gate), and its slope "
        "s + gate x s (1 - s)",
        "the slope is SiLU's, not the sigmoid's",
    )
    t(
        not same(dgate, dy * up * (s - gate * s * (1 - s))),
        "a sign is turned: the sigmoid rises, so its part of the slope is added",
        "both parts of the slope are added",
    )
    t.close(
        dgate,
        right_gate,
        "dgate is dy x up x (s + gate x s (1 - s)) with s = sigmoid(gate)",
        "dgate is autograd's",
        relative=1e-9,
    )
    far = torch.tensor([-1000, -40, 0, 40, 1000], dtype=torch.float64)
    two = torch.full_like(far, 2.0)
    t.close(
        gate_backward(two, far, two),
        by_autograd(lambda g, u: F.silu(g) * u, two, far, two),
        "at a gate of 1,000 or -1,000 your gradient is no number, or not the right one: exp(1000) "
        "is infinite, and torch.sigmoid avoids it",
        "gates of 1,000 are fine",
        relative=1e-9,
    )


def check_4(t, logits_gradient, *, by_autograd, same):
    """19.4 Softmax and cross-entropy, with a mask"""
    draw = torch.Generator().manual_seed(19)
    logits = 2 * torch.randn(5, 128, generator=draw, dtype=torch.float64)
    kept = logits.clone()
    targets = torch.tensor([7, 0, 7, 127, 50])
    hidden = torch.tensor([7, -100, 7, -100, 50])

    def expected(logits, targets, num_tokens):
        """Return what autograd finds."""

        def loss(logits):
            return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100) / num_tokens

        return by_autograd(loss, torch.ones((), dtype=torch.float64), logits)[0]

    right = expected(logits, targets, 5)
    answer = logits_gradient(logits, targets, 5)
    t(isinstance(answer, torch.Tensor), "your answer is no tensor: is there a return?", "a tensor")
    t(torch.equal(logits, kept), "you changed the logits themselves: work on a copy", "logits stay")
    t(
        not same(answer, torch.softmax(logits, -1) / 5),
        "the 1 at the target is missing: that is softmax alone, and the loss knows nothing of the "
        "targets",
        "the targets take part",
    )
    t(
        not same(answer, -right),
        "the sign is turned: softmax minus one-hot. A step against the gradient then lifts the "
        "logit of the target",
        "softmax minus one-hot",
    )
    t(
        not same(answer, 5 * right),
        "you did not divide by num_tokens: the loss is a mean over tokens",
        "the gradient is divided by num_tokens",
    )
    everywhere = torch.softmax(logits, -1)
    everywhere[:, targets] -= 1
    t(
        not same(answer, everywhere / 5),
        "you subtracted 1 in every row at the targets of all rows: [:, targets] takes whole "
        "columns. A row has one target, its own",
        "each row loses 1 at its own target only",
    )
    t.close(
        answer,
        right,
        "where every row counts, the gradient is (softmax - one-hot) / num_tokens, and each row "
        "adds up to 0",
        "where every row counts, it is autograd's",
        relative=1e-9,
    )
    masked = logits_gradient(logits, hidden, 3)
    t(
        isinstance(masked, torch.Tensor) and masked.shape == logits.shape,
        "rows that do not count are missing from your answer: it has a row for each token, and "
        "theirs is 0",
        "there is a row for each token",
    )
    silent = masked[[1, 3]]
    t(
        not ((silent[:, 28] < -0.1).all() and (silent > 0).any()),
        "a target of -100 was used as an index, and the hundredth entry from the end became a "
        "target: entry 28 of 128. No error tells you",
        "-100 is no index",
    )
    t(
        not (silent > 0).any(),
        "a row that does not count has a gradient: nothing of it may stay, neither the 1 nor "
        "softmax",
        "a row that does not count has gradient 0",
    )
    t.equal(
        silent,
        torch.zeros_like(silent),
        "a row that does not count has entries that are not 0. Perhaps -100 was used as an index: "
        "the hundredth entry from the end",
        "masked rows are all 0",
    )
    t.close(
        masked,
        expected(logits, hidden, 3),
        "three rows of five count and num_tokens is 3: divide by num_tokens, not by the number of "
        "rows",
        "rows that do not count leave the divisor alone",
        relative=1e-9,
    )
    t.close(
        logits_gradient(logits, hidden, 40),
        expected(logits, hidden, 40),
        "here 40 tokens count in the whole batch, and only three of them are in these rows: you "
        "divided by a count of your own, not by num_tokens",
        "the divisor is that of the whole batch",
        relative=1e-9,
    )
    nobody = torch.full((5,), -100)
    t.equal(
        logits_gradient(logits, nobody, 40),
        torch.zeros_like(logits),
        "a micro-batch in which no token counts has gradient 0, and not NaN",
        "no counted row: all zeros",
    )
    steep = torch.tensor([[1000.0, -1000.0, 998.0]], dtype=torch.float64)
    t.close(
        logits_gradient(steep, torch.tensor([1]), 1),
        expected(steep, torch.tensor([1]), 1),
        "logits of 1,000 give no number: exp(1000) is infinite. torch.softmax subtracts the "
        "largest logit first",
        "logits of 1,000 are fine",
        relative=1e-9,
    )


def check_5(t, attention_backward, *, by_autograd, same, several):
    """19.5 Attention"""
    draw = torch.Generator().manual_seed(19)

    def normal(*shape):
        """Return random numbers."""
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def causal(q, k, v):
        """Return what torch's own attention computes."""
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

    # As many tokens as channels: a missing transpose raises no error.
    q, k, v, dout = (normal(4, 4) for _ in range(4))
    right_dq, right_dk, right_dv = by_autograd(causal, dout, q, k, v)
    answer = attention_backward(dout, q, k, v)
    t(several(answer, 3), "return three tensors: (dq, dk, dv)", "three gradients are returned")
    dq, dk, dv = answer
    ahead = torch.ones(4, 4, dtype=torch.bool).triu(1)
    t(
        not same(dq, right_dv),
        "you returned dv first: the order is (dq, dk, dv)",
        "dq comes first and dv last",
    )
    t(
        not dv.isnan().any(),
        "there are NaNs: does some token look at nothing? Every token may look at itself",
        "every token may look at itself",
    )
    t(
        not any(
            same(dv, torch.softmax((q @ k.T / c).masked_fill(ahead, -torch.inf), -1).T @ dout)
            for c in (1, 4)
        ),
        "the weights are not those of the forward pass: the scores are q k / sqrt(K), and K is 4 "
        "here, so they are halved",
        "the scores are divided by sqrt(K)",
    )
    open_p = torch.softmax(q @ k.T / 2, -1)
    p = torch.softmax((q @ k.T / 2).masked_fill(ahead, -torch.inf), -1)
    dp = dout @ v.T
    t(
        not same(dv, open_p.T @ dout),
        "you forgot the causal mask when you computed the weights anew: the backward pass has to "
        "run through the weights that the forward pass used",
        "the weights are those of the causal forward pass",
    )
    t(
        not same(dv, open_p.masked_fill(ahead, 0).T @ dout),
        "you set weights to 0 after the softmax: what is left of a row no longer adds up to 1. Put "
        "-inf into the scores, before the softmax",
        "each row of the weights adds up to 1",
    )
    t(
        not same(dv, p @ dout),
        "dv lacks a transpose: value j gets from every query i that looked at it, so P^T stands "
        "before dO",
        "dv = P^T dO",
    )
    t.close(
        dv,
        right_dv,
        "dv is P^T dO, with P the softmax over each row of Q K^T / sqrt(K), -inf where j > i: "
        "value j gathers dO_i from all queries i, in proportion to P_ij",
        "dv is autograd's",
        relative=1e-9,
    )
    t(
        not same(dq, p * dp @ k / 2),
        "you took the softmax for a row of independent numbers, dS = P dP: if one weight of a row "
        "grows, the others shrink. The sum over the row is missing",
        "the weights of a row push each other",
    )
    t(
        not same(dq, p * (dp - (dp * p).sum(0, keepdim=True)) @ k / 2),
        "you summed over the columns: each row of the weights adds up to 1, so the sum runs over "
        "the keys of one query",
        "the sum in the softmax's gradient runs over a row",
    )
    t(
        not same(dq, p * (dp + (dp * p).sum(-1, keepdim=True)) @ k / 2),
        "the sign of the sum over the row is turned: a weight that grows takes from the others",
        "the sum over the row is subtracted",
    )
    t(
        not same(dq, 2 * right_dq),
        "1/sqrt(K) is missing: the scores were scaled on the way up, and what flows back through "
        "them is scaled as well",
        "1/sqrt(K) stands on the way back, too",
    )
    t.close(
        dq,
        right_dq,
        "dq is dS K / sqrt(K), with dS_ij = P_ij (dP_ij - sum over c of dP_ic P_ic)",
        "dq is autograd's",
        relative=1e-9,
    )
    t(
        not same(dk, right_dk * 2),
        "1/sqrt(K) is missing in dk: it stands between the scores and the keys, too",
        "1/sqrt(K) is in dk as in dq",
    )
    ds = p * (dp - (dp * p).sum(-1, keepdim=True))
    t(
        not same(dk, ds @ q / 2),
        "dk lacks a transpose: key j gets from every query i that looked at it, so it is dS^T Q",
        "dk = dS^T Q / sqrt(K)",
    )
    t.close(dk, right_dk, "dk is dS^T Q / sqrt(K)", "dk is autograd's", relative=1e-9)
    for num_tokens, head_size in ((6, 2), (3, 5), (1, 4)):
        q, k, v, dout = (normal(num_tokens, head_size) for _ in range(4))
        t.close(
            attention_backward(dout, q, k, v),
            by_autograd(causal, dout, q, k, v),
            f"{num_tokens} tokens with {head_size} channels do not come out right: take T and K "
            "from the shapes. A single token has weight 1, whatever its score",
            f"{num_tokens} tokens with {head_size} channels",
            relative=1e-9,
            absolute=1e-12,
        )


def check_6(t, keys_backward, *, by_autograd, same):
    """19.6 Back through RoPE and the shared heads"""
    draw = torch.Generator().manual_seed(19)

    def forward(k_SGK, positions_S, theta, num_heads):
        """Rotate and copy, with complex numbers."""
        pairs = k_SGK.shape[-1] // 2
        angles = torch.outer(positions_S, theta ** (-torch.arange(pairs).double() / pairs))
        turns = torch.polar(torch.ones_like(angles), angles)[:, None]
        turned = torch.view_as_complex(k_SGK.unflatten(-1, (-1, 2))) * turns
        copies = num_heads // k_SGK.shape[1]
        return torch.view_as_real(turned).flatten(-2).repeat_interleave(copies, 1)

    def expected(dk_SHK, positions_S, theta, num_kv_heads):
        """Return what autograd finds; the keys themselves do not matter."""
        k_SGK = torch.zeros(len(dk_SHK), num_kv_heads, dk_SHK.shape[2], dtype=torch.float64)
        return by_autograd(
            lambda k: forward(k, positions_S, theta, dk_SHK.shape[1]), dk_SHK, k_SGK
        )[0]

    # At position 0 nothing is turned: four query heads share two key heads.
    copies = torch.randn(1, 4, 2, generator=draw, dtype=torch.float64)
    zeros = torch.zeros(1, dtype=torch.float64)
    summed = keys_backward(copies, zeros, 100.0, 2)
    right = expected(copies, zeros, 100.0, 2)
    t(isinstance(summed, torch.Tensor), "your answer is no tensor: is there a return?", "a tensor")
    t(
        not same(summed, copies),
        "there is still a gradient for each query head: H heads read G keys, so the gradients of "
        "the copies have to be added up",
        "one gradient for each key head",
    )
    t(
        not same(summed, right / 2),
        "you took the mean over the copies: a value that is used several times gets the sum of the "
        "gradients of its uses",
        "the copies' gradients are added, not averaged",
    )
    t(
        not any(same(summed, copies[:, start::2]) for start in (0, 1)),
        "you kept one query head of each group and dropped the others: every copy was used, and "
        "every copy's gradient counts",
        "no copy's gradient is dropped",
    )
    t(
        not same(summed, copies[:, :2] + copies[:, 2:]),
        "you added heads 0 and 2, and 1 and 3: query head h reads key head h // 2, so the copies "
        "stand side by side, 0 and 1, 2 and 3",
        "neighbouring query heads share a key head",
    )
    t.close(
        summed,
        right,
        "at position 0 only the sum over the copies is left: heads 0 and 1, and heads 2 and 3",
        "at position 0 the copies are added up",
        relative=1e-9,
    )
    # One pair and one head: a quarter turn at position pi/2.
    one = torch.tensor([[[3.0, 4.0]]] * 2, dtype=torch.float64)
    quarter = torch.tensor([math.pi / 2, 0.0], dtype=torch.float64)
    turned = keys_backward(one, quarter, 100.0, 1)
    t(
        not same(turned[0], one[0]),
        "you did not turn the gradient back, or took the row's number for its position: row 0 "
        "stands at position pi/2 here",
        "the gradient is turned where the key was",
    )
    t(
        not same(turned[0], torch.tensor([[-4.0, 3.0]], dtype=torch.float64)),
        "you turned forward once more: the gradient of a rotation is the rotation back, by the "
        "negative angle (the transposed matrix)",
        "the gradient is turned back",
    )
    t.close(
        turned,
        torch.tensor([[[4.0, -3.0]], [[3.0, 4.0]]], dtype=torch.float64),
        "a quarter turn back takes (3, 4) to (4, -3); at position 0 nothing is turned",
        "a quarter turn back takes (3, 4) to (4, -3)",
        relative=1e-9,
    )
    for num_heads, num_kv_heads, head_size in ((6, 2, 8), (3, 3, 4), (4, 1, 6)):
        copies = torch.randn(5, num_heads, head_size, generator=draw, dtype=torch.float64)
        places = torch.tensor([3.0, 0.0, 1.0, 250.0, 17.0], dtype=torch.float64)
        t.close(
            keys_backward(copies, places, 500.0, num_kv_heads),
            expected(copies, places, 500.0, num_kv_heads),
            f"{num_heads} query heads, {num_kv_heads} key heads and {head_size} channels do not "
            "come out right: pair j is channels 2j and 2j + 1, and turns by position x "
            "theta^(-2j/K)",
            f"{num_heads} query heads on {num_kv_heads} key heads, {head_size} channels",
            relative=1e-9,
        )


def check_7(t, final_losses, verdicts, *, train_letters):
    """19.7 Put a fault in and see"""
    faulty = {
        "none": {},
        "ten times": {
            "linear": lambda dY, X, W: (dY @ W, 10 * dY.T @ X),
        },
        "no message": {
            "linear": lambda dY, X, W: (torch.zeros_like(X), dY.T @ X),
        },
        "short slope": {
            "gate": lambda dh, g, u: (dh * u * g.sigmoid(), dh * g * g.sigmoid()),
        },
        "no target": {
            "loss": lambda logits, targets: logits.softmax(-1) / len(targets),
        },
    }
    answers = {fault: final_losses(fault) for fault in faulty}
    t(
        all(isinstance(each, list) and len(each) == 4 for each in answers.values()),
        "return a list of four losses, one for each of the seeds 0 to 3: is there a return?",
        "four losses are returned",
    )
    t(
        len(set(answers["none"])) == 4,
        "the four losses are equal: does the seed reach train_letters?",
        "each seed has a run of its own",
    )
    hints = {
        "none": "without a fault the losses are those of train_letters({}, seed)",
        "ten times": "ten times too large are all dW of linear layers, and dX stays as it is",
        "no message": "it is dX that is zero, so that nothing below learns; dW stays as it is",
        "short slope": "dg is dh u sigmoid(g), and du stays as it is",
        "no target": "the gradient of the logits is p / N: nothing is subtracted",
    }
    for fault, hint in hints.items():
        t.close(
            answers[fault][:2],
            [train_letters(faulty[fault], seed) for seed in (0, 1)],
            f'with the fault "{fault}" the losses are others: {hint}',
            f"the losses with the fault: {fault}",
            # What grows without end takes every rounding along: any order of p / N will do.
            relative=0.5 if fault == "no target" else 0.01,
        )
    means = {fault: sum(values) / 4 for fault, values in answers.items()}
    told = verdicts()
    t(
        isinstance(told, dict) and set(told) == set(faulty) - {"none"},
        "return a dictionary with a verdict on each of the four faults",
        "each fault has a verdict",
    )
    t.equal(
        told["ten times"],
        "hidden" if abs(means["ten times"] - means["none"]) < 0.05 else "worse",
        "Adam divides a gradient by its usual size, so a factor cancels. With plain gradient "
        "descent the same fault would be a learning rate ten times too high",
        "ten times too large: Adam cancels it",
    )
    t.equal(
        told["short slope"],
        "hidden" if abs(means["short slope"] - means["none"]) < 0.05 else "worse",
        "a gradient that is somewhat wrong still points downhill: compare the means of four seeds, "
        "with and without the fault",
        "a short slope: the loss does not tell",
    )
    t.equal(
        told["no message"],
        "rises" if means["no message"] > math.log(27) else "worse",
        "without dX only the last matrix learns. It does, so the loss falls, and stays far above "
        "that without the fault",
        "no message: the last matrix learns alone",
    )
    t.equal(
        told["no target"],
        "rises" if means["no target"] > math.log(27) else "worse",
        "without the targets nothing says which logit should rise: every step lowers all logits in "
        "proportion to p, and the loss grows without bound",
        "no target: the loss rises",
    )
