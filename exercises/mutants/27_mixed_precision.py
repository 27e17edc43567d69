"""Typical wrong answers to the exercises of chapter 27, and what the checks say to them."""


# %% 27.1 cut_off
# says: you cut the lower bits off: 1 + 3/512 is nearer to 1 + 4/512, the next number of bf16,
# than to 1
def round_to_bf16(bits):
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return bits >> 16


# %% 27.1 half_up
# says: 257 lies in the middle between 256 and 258, and you went up: the last bit of 256 is 0
def round_to_bf16(bits):
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x8000) >> 16


# %% 27.1 half_down
# says: 259 lies in the middle between 258 and 260, and you went down: the last bit of 258 is 1
def round_to_bf16(bits):
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF) >> 16


# %% 27.1 carry_lost
# says: 511.5 became 256: a mantissa of ones that goes up becomes 0, and the carry has to raise
# the exponent
def round_to_bf16(bits):
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    last_kept = (bits >> 16) & 1
    mantissa = ((bits & 0x7FFFFF) + 0x7FFF + last_kept) >> 16
    return (bits >> 23) << 7 | mantissa & 0x7F


# %% 27.1 infinity_is_nan
# says: infinity is the highest exponent with a mantissa of 0: it stays, with its sign. Only with
# another mantissa is it NaN
def round_to_bf16(bits):
    if bits & 0x7FFFFFFF >= 0x7F800000:
        return (bits >> 16) | 0x40
    last_kept = (bits >> 16) & 1
    return (bits + 0x7FFF + last_kept) >> 16


# %% 27.1 nan_forgotten
# says: a NaN became a number or infinity: cut off, 0x7F800001 is infinity, and 0x7FFFFFFF with a
# carry is -0
def round_to_bf16(bits):
    last_kept = (bits >> 16) & 1
    return ((bits + 0x7FFF + last_kept) >> 16) & 0xFFFF


# %% 27.2 scaled_too_late
# says: you rounded to fp16 first and scaled then: it is the loss that is multiplied, so the
# gradient is scaled before fp16 can lose it
def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient.half().float() * scale).half()
        if delivered.isfinite().all():
            used.append(delivered.float() / scale)
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(None)
            scale, good_steps = scale / 2, 0
        scales.append(scale)
    return used, scales


# %% 27.2 unscaled_in_fp16
# says: your gradient is 0 in the end: you divided by the scale in fp16, which has no number for
# the result. Widen to float32 first
def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient * scale).half()
        if delivered.isfinite().all():
            used.append((delivered / scale).float())
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(None)
            scale, good_steps = scale / 2, 0
        scales.append(scale)
    return used, scales


# %% 27.2 tries_again
# says: you ran the step again with half of the scale: it is left out, and training goes on with
# the next batch
def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient * scale).half()
        while delivered.isinf().any() and not gradient.isinf().any() and scale > 2**-20:
            scale, good_steps = scale / 2, 0
            delivered = (gradient * scale).half()
        if delivered.isfinite().all():
            used.append(delivered.float() / scale)
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(None)
            scale, good_steps = scale / 2, 0
        scales.append(scale)
    return used, scales


# %% 27.2 healthy_part_used
# says: you used a step with an infinite gradient: put it to 0 or clip it, and the direction is
# another. The whole step is left out: None
import torch


def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient * scale).half()
        if delivered.isfinite().all():
            used.append(delivered.float() / scale)
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(torch.where(delivered.isfinite(), delivered, 0).float() / scale)
            scale, good_steps = scale / 2, 0
        scales.append(scale)
    return used, scales


# %% 27.2 infinity_alone
# says: NaN is not infinite, and spoils a step no less: leave that step out too, and halve
def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient * scale).half()
        if not delivered.isinf().any():
            used.append(delivered.float() / scale)
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(None)
            scale, good_steps = scale / 2, 0
        scales.append(scale)
    return used, scales


# %% 27.2 not_in_a_row
# says: good steps count in a row: an overflow takes those before it away
def scaled_steps(gradients, scale, growth_interval):
    used, scales, good_steps = [], [scale], 0
    for gradient in gradients:
        delivered = (gradient * scale).half()
        if delivered.isfinite().all():
            used.append(delivered.float() / scale)
            good_steps += 1
            if good_steps == growth_interval:
                scale, good_steps = scale * 2, 0
        else:
            used.append(None)
            scale = scale / 2
        scales.append(scale)
    return used, scales


# %% 27.3 one_mean
# says: you counted one running mean: AdamW keeps two for every weight, the mean of the gradient
# and that of its square
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 4 * -(-num_parameters // 128)
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = row[means] + (row["fp32"] if master else 0)
    return optimizer, optimizer + row[weights] + row[gradients]


# %% 27.3 master_beside_the_weights
# says: you counted the master copy with the weights: it belongs to the optimizer state, for it is
# what the optimizer updates
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 4 * -(-num_parameters // 128)
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = 2 * row[means]
    return optimizer, optimizer + (row["fp32"] if master else 0) + row[weights] + row[gradients]


# %% 27.3 gradients_forgotten
# says: you left the gradients out of the whole state, or the weights: both stay beside what the
# optimizer keeps
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 4 * -(-num_parameters // 128)
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = 2 * row[means] + (row["fp32"] if master else 0)
    return optimizer, optimizer + row[weights]


# %% 27.3 master_by_format
# says: you added a master copy because the weights are bf16: `master` says that there is none.
# Updates will be lost, but bytes are counted here
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 4 * -(-num_parameters // 128)
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = 2 * row[means] + (row["fp32"] if weights != "fp32" else 0)
    return optimizer, optimizer + row[weights] + row[gradients]


# %% 27.3 scales_forgotten
# says: you left out the scales: 1,280 numbers in fp8 are ten blocks, and have ten scales of 4
# bytes
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 0
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = 2 * row[means] + (row["fp32"] if master else 0)
    return optimizer, optimizer + row[weights] + row[gradients]


# %% 27.3 whole_blocks_alone
# says: 100 numbers are a block, though not a whole one: it has a scale. Round up
def state_bytes(num_parameters, weights, gradients, means, master):
    scales = 4 * (num_parameters // 128)
    row = {"fp32": 4 * num_parameters, "bf16": 2 * num_parameters, "fp8": num_parameters + scales}
    optimizer = 2 * row[means] + (row["fp32"] if master else 0)
    return optimizer, optimizer + row[weights] + row[gradients]


# %% 27.4 norm_in_bf16
# says: your RMSNorm answers in bf16: it divides a whole row by one sum, which stays in float32
def under_autocast(program, given):
    always = {"linear": "bf16", "attention": "bf16", "RMSNorm": "bf16", "cross-entropy": "fp32"}
    known, casts = dict(given), 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "fp32" if "fp32" in types else "bf16")
        casts += sum(found != answer for found in types)
        known[result] = answer
    return {result: known[result] for result, _, _ in program}, casts


# %% 27.4 gate_in_float32
# says: your silu gate answers in float32: there is an exponential in it, but of one number at a
# time, and torch takes both inputs as they come
def under_autocast(program, given):
    always = {
        "linear": "bf16",
        "attention": "bf16",
        "RMSNorm": "fp32",
        "silu gate": "fp32",
        "cross-entropy": "fp32",
    }
    known, casts = dict(given), 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "fp32" if "fp32" in types else "bf16")
        casts += sum(found != answer for found in types)
        known[result] = answer
    return {result: known[result] for result, _, _ in program}, casts


# %% 27.4 stream_in_bf16
# says: your residual sum is bf16: the stream x is float32, and the wider of the two types
# decides. In bf16 the stream would lose small terms, as weights lose small updates
def under_autocast(program, given):
    always = {"linear": "bf16", "attention": "bf16", "RMSNorm": "fp32", "cross-entropy": "fp32"}
    known, casts = dict(given), 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "bf16" if "bf16" in types else "fp32")
        casts += sum(found != answer for found in types)
        known[result] = answer
    return {result: known[result] for result, _, _ in program}, casts


# %% 27.4 loss_like_its_logits
# says: logits are bf16, and the loss, a sum of exponentials, is computed in float32: two casts
# for the product and one for the loss
def under_autocast(program, given):
    always = {"linear": "bf16", "attention": "bf16", "RMSNorm": "fp32"}
    known, casts = dict(given), 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "fp32" if "fp32" in types else "bf16")
        casts += sum(found != answer for found in types)
        known[result] = answer
    return {result: known[result] for result, _, _ in program}, casts


# %% 27.4 narrowing_alone
# says: you counted casts to bf16 alone: `down` is widened for the residual sum, and that is a
# cast as well
def under_autocast(program, given):
    always = {"linear": "bf16", "attention": "bf16", "RMSNorm": "fp32", "cross-entropy": "fp32"}
    known, casts = dict(given), 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "fp32" if "fp32" in types else "bf16")
        casts += sum(found == "fp32" != answer for found in types)
        known[result] = answer
    return {result: known[result] for result, _, _ in program}, casts


# %% 27.4 cast_for_good
# says: you cast `normed` once, for `gate`: a cast is made for one use, so `normed` is still
# float32 when `up` needs it
def under_autocast(program, given):
    always = {"linear": "bf16", "attention": "bf16", "RMSNorm": "fp32", "cross-entropy": "fp32"}
    known, answers, casts = dict(given), {}, 0
    for result, operation, inputs in program:
        types = [known[name] for name in inputs]
        answer = always.get(operation, "fp32" if "fp32" in types else "bf16")
        answers[result] = answer
        casts += sum(found != answer for found in types)
        known.update(dict.fromkeys(inputs, answer) if answer == "bf16" else {})
        known[result] = answer
    return {result: answers[result] for result, _, _ in program}, casts
