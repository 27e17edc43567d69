"""The matrices and exponentials of the live run: WebAssembly and JavaScript."""

import numpy as np
import pytest

from tests.browser.engine import ARITHMETICS, as_array, as_text

every_arithmetic = pytest.mark.parametrize("arithmetic", ARITHMETICS)


@every_arithmetic
def test_matrices_are_multiplied_as_numpy_does(engine, arithmetic):
    draws = np.random.default_rng(5)
    sizes = [(4, 4, 1), (8, 12, 7), (12, 20, 300), (20, 8, 513), (16, 24, 256)]
    matrices = [
        [draws.normal(size=(m, k)), draws.normal(size=(k, n)), draws.normal(size=(m, n))]
        for m, n, k in sizes
    ]
    found = engine(
        """return given.sizes.map(([M, N, K], at) => [0, 1, 2, 3, 4].map((how) => {
          const space = new Space(given.arithmetic);
          const [a, aT] = [space.matrix(M, K), space.matrix(K, M)];
          const [b, bT, wide] = [space.matrix(K, N), space.matrix(N, K), space.matrix(M, N + 8)];
          space.open();
          const [A, B, C] = given.matrices[at];
          for (let i = 0; i < M; i++) for (let k = 0; k < K; k++)
            a.numbers[i * K + k] = aT.numbers[k * M + i] = A[i][k];
          for (let k = 0; k < K; k++) for (let j = 0; j < N; j++)
            b.numbers[k * N + j] = bT.numbers[j * K + k] = B[k][j];
          wide.numbers.fill(9);
          const out = part(wide, { column: 4, columns: N });
          for (let i = 0; i < M; i++) for (let j = 0; j < N; j++)
            out.numbers[i * out.down + j] = C[i][j];
          space.multiply(out, how & 1 ? transposed(aT) : a, how & 2 ? transposed(bT) : b,
            { add: how === 4 });
          return [...wide.numbers];
        }));""",
        arithmetic=arithmetic,
        sizes=sizes,
        matrices=[[each.tolist() for each in group] for group in matrices],
    )
    for (m, n, _), (a, b, c), results in zip(sizes, matrices, found, strict=True):
        for how, result in enumerate(results):
            expected = np.full((m, n + 8), 9.0)
            expected[:, 4 : 4 + n] = a @ b + (c if how == 4 else 0)
            off = np.abs(np.reshape(result, (m, n + 8)) - expected)
            added = np.abs(a) @ np.abs(b) + np.abs(c)  # what a sum's rounding is measured against
            assert (off[:, 4 : 4 + n] < 2e-6 * added).all()
            assert (off[:, :4] == 0).all()
            assert (off[:, 4 + n :] == 0).all()


@every_arithmetic
def test_exponentials_are_exact_to_two_units_of_the_last_place(engine, arithmetic):
    x = np.concatenate([np.linspace(-87, 87, 4_001), [0.0, -1e-8, 0.3466]]).astype(np.float32)
    (found,) = engine(
        """const space = new Space(given.arithmetic);
        const x = space.matrix(1, given.count);
        space.open();
        x.numbers.set(numbersOf(given.x));
        space.exp(x, x);
        return [textOf(x.numbers)];""",
        arithmetic=arithmetic,
        count=len(x),
        x=as_text(x),
    )
    assert np.abs(as_array(found) / np.exp(x.astype(np.float64)) - 1).max() < 2.4e-7


def test_far_from_zero_exponentials_stop_at_the_range_of_their_numbers(engine):
    found = engine(
        """return ["SIMD", "relaxed SIMD"].map((arithmetic) => {
          const space = new Space(arithmetic);
          const x = space.matrix(1, 4);
          space.open();
          x.numbers.set([-1e30, -200, 88, 1e30]);
          space.exp(x, x);
          return [...x.numbers];
        });"""
    )
    for low, lower, high, higher in found:
        assert 0 < low == lower < 1e-37
        assert 1e37 < high == higher < 1e38


def test_the_fastest_arithmetic_that_there_is(engine):
    assert engine("return [fastest(), ARITHMETICS.filter(has)];") == [ARITHMETICS[0], ARITHMETICS]
    without = "const kept = globalThis.WebAssembly; delete globalThis.WebAssembly;"
    back = "globalThis.WebAssembly = kept;"
    assert engine(f"{without} const found = fastest(); {back} return found;") == "JavaScript"
