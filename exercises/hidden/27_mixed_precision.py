"""Hidden tests of the exercises of chapter 27."""

import math

import torch


def check_1(t, call, rng):
    """Torch's own cast, on ties, their neighbours, carries, and bits at random."""
    upper = [rng.randrange(0x7F00) for _ in range(4)]
    given = [u << 16 | 0x8000 for n in upper[:2] for u in (n & ~1, n | 1)]
    given += [u << 16 | 0x8000 | 1 << 31 for n in upper[2:] for u in (n & ~1, n | 1)]
    given += [upper[0] << 16 | 0x7FFF, upper[1] << 16 | 0x8001, upper[2] << 16 | 0xFFFF]
    # All seven bits of the mantissa are ones: the carry goes into the exponent.
    given += [rng.randrange(255) << 23 | 0x7F0000 | rng.randrange(0x8000, 0x10000)]
    given += [rng.randrange(255) << 23 | 1 << 31 | 0x7F8000]
    given += [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F7F8000, 0xFF7F7FFF]
    given += [rng.randrange(0x7F800000) | rng.randrange(2) << 31 for _ in range(6)]
    for bits in given:
        signed = bits - (1 << 32) if bits >> 31 else bits
        number = torch.tensor(signed, dtype=torch.int32).view(torch.float32)
        right = int(number.bfloat16().view(torch.int16)) & 0xFFFF
        t.equal(call("round_to_bf16", bits), right, f"bits {bits:#010x}")
    some = rng.randrange(1, 0x8000)  # in the half that is dropped
    for bits in (0x7F800000 | some, 0xFF800000 | some, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000):
        code = call("round_to_bf16", bits)
        is_nan = isinstance(code, int) and 0 <= code <= 0xFFFF and code & 0x7FFF > 0x7F80
        t(is_nan, f"NaN {bits:#010x}")


def check_2(t, call, rng):
    """Gradients of all sizes; whether a step is good is told from its largest entry."""
    for case in range(6):
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        scale = float(2 ** rng.randrange(6, 20))
        interval = rng.randrange(2, 4)
        gradients, used, scales, good = [], [], [scale], 0
        # Good and bad steps in an order with a bad step between good ones, a NaN among them.
        order = ["good"] * (interval - 1) + ["bad"] + ["good"] * (2 * interval + 1)
        order += ["nan", *rng.choices(["good", "bad", "nan"], k=6)]
        for kind in order:
            size = torch.exp2(torch.randint(-20, 12, (8,), generator=generator).float())
            gradient = torch.randn(8, generator=generator).clamp(-8, 8) * size / scale
            gradient[rng.randrange(4)] = (0.5 + 2**-13) * 2.0**-24
            # Up to 65,520, numbers round to 65,504.
            largest = {"good": 65_519.0, "bad": 65_520.0 + rng.choice([0, 9_000]), "nan": math.nan}
            gradient[4 + rng.randrange(4)] = largest[kind] / scale * rng.choice([1, -1])
            gradients.append(gradient)
            if kind == "good":
                used.append((gradient * scale).half().float() / scale)
                good += 1
                scale, good = (2 * scale, 0) if good == interval else (scale, good)
            else:
                used.append(None)
                scale, good = scale / 2, 0
            scales.append(scale)
        answer = call("scaled_steps", gradients, scales[0], interval)
        t.equal(answer, (used, scales), f"case {case}: {len(order)} steps, interval {interval}")
    ones = [torch.ones(1)] * 3
    right = ([torch.ones(1)] * 3, [1.0, 2.0, 4.0, 8.0])
    t.equal(call("scaled_steps", ones, 1.0, 1), right, "interval 1")


def check_3(t, call, rng):
    """The scale by the number's own exponent, the nearest of fifteen numbers by sorting."""
    sizes = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    for case in range(8):
        size = rng.choice([1, 3, 16, 32])
        numbers = []
        for _ in range(rng.randrange(1, 5)):
            unit = 2.0 ** rng.randrange(-30, 30)
            some = [rng.uniform(-6, 6), rng.choice(sizes), 2.5, -1.75, 5.0, 0.25, -1.25, 0.75]
            numbers += [unit * rng.choice(some) for _ in range(size)]
        numbers += [0.0] * size + [rng.uniform(1, 9)] * rng.randrange(size)
        scales, rounded = [], []
        for start in range(0, len(numbers), size):
            block = numbers[start : start + size]
            # largest = m 2^e with m from 0.5 to 1, and 6 is 0.75 times 8
            m, e = math.frexp(max(map(abs, block)))
            scale = math.ldexp(1.0, e - 3 + (m > 0.75)) if m else 1.0
            scales.append(scale)
            for x in block:
                by_distance = sorted(
                    range(8),
                    key=lambda i, x=x, scale=scale: (abs(abs(x) - sizes[i] * scale), i % 2),
                )
                rounded.append(math.copysign(sizes[by_distance[0]] * scale, x))
        answer = call("in_blocks", numbers, size)
        t.equal(answer, (scales, rounded), f"case {case}: {len(numbers)} numbers, blocks of {size}")


LOWER = ("linear", "attention")
FULL = ("RMSNorm", "cross-entropy")
WIDEST = ("embedding", "residual sum", "silu gate", "rotation")
NUM_INPUTS = {"attention": 3, "linear": 2, "RMSNorm": 2, "residual sum": 2, "silu gate": 2}


def check_4(t, call, rng):
    """Programs at random, in which every operation meets inputs of both types."""
    for case in range(6):
        given = {f"w{i}": ("fp32", "bf16")[i % 2] for i in range(4)}
        operations = [*LOWER, *FULL, *WIDEST] * 2
        rng.shuffle(operations)
        program, right, casts = [], {}, 0
        for place, operation in enumerate(operations):
            known = given | right
            num_inputs = NUM_INPUTS.get(operation, 1)
            inputs = [rng.choice(sorted(known)) for _ in range(num_inputs)]
            wide = sum(known[name] == "fp32" for name in inputs)
            if operation in LOWER or (operation in WIDEST and wide == 0):
                answer, casts = "bf16", casts + wide
            else:
                answer, casts = "fp32", casts + num_inputs - wide
            program.append((f"r{place}", operation, inputs))
            right[f"r{place}"] = answer
        t.equal(call("under_autocast", program, given), (right, casts), f"program {case}")
    for operation in (*LOWER, *FULL, *WIDEST):
        for found in ("fp32", "bf16"):
            names = ["a"] * NUM_INPUTS.get(operation, 1)
            fixed = {**dict.fromkeys(LOWER, "bf16"), **dict.fromkeys(FULL, "fp32")}
            answer = fixed.get(operation, found)
            right = ({"b": answer}, len(names) * (answer != found))
            program = [("b", operation, names)]
            t.equal(call("under_autocast", program, {"a": found}), right, f"{operation} of {found}")
