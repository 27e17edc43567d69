// Matrices in one piece of memory, and the multiplication that nearly all of the work is.

import { RELAXED_SIMD, SIMD } from "./kernel_bytes.js";

// The three ways in which matrices are multiplied, the fastest first.
export const ARITHMETICS = ["relaxed SIMD", "SIMD", "JavaScript"];
const BYTES = { "relaxed SIMD": RELAXED_SIMD, SIMD };
const PAGE = 65536; // bytes by which a memory grows

export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// Whether this browser has an arithmetic.
export function has(arithmetic) {
  if (arithmetic === "JavaScript") return true;
  return typeof WebAssembly === "object" && WebAssembly.validate(fromBase64(BYTES[arithmetic]));
}

export const fastest = () => ARITHMETICS.find(has);

// --- views

// A matrix is a view of numbers: an entry is `down` numbers from the one below it, `along` numbers from
// the one to its right.  A transpose is the same numbers, read the other way; a head is some columns.

export const transposed = ({ numbers, rows, columns, down, along }) =>
  ({ numbers, rows: columns, columns: rows, down: along, along: down });

export function part(a, { row = 0, rows = a.rows, column = 0, columns = a.columns }) {
  return { ...a, numbers: a.numbers.subarray(row * a.down + column * a.along), rows, columns };
}

// --- memory

// Memory for matrices of 32-bit numbers.  All are asked for first; `open` makes room, and then they
// have their numbers, 0 at first.
export class Space {
  constructor(arithmetic) {
    this.arithmetic = arithmetic;
    this.matrices = [];
    this.size = 0; // bytes
  }

  matrix(rows, columns) {
    const made = { numbers: null, rows, columns, down: columns, along: 1 };
    this.matrices.push([made, this.size]);
    this.size += 16 * Math.ceil((rows * columns) / 4); // whole vectors of 16 bytes
    return made;
  }

  open() {
    const largest = Math.max(...this.matrices.map(([{ rows, columns }]) => rows * columns + 8 * Math.max(rows, columns)));
    const scratch = this.matrix(1, largest);
    const pages = Math.ceil(this.size / PAGE);
    const bytes = BYTES[this.arithmetic];
    const memory = bytes ? new WebAssembly.Memory({ initial: pages }) : { buffer: new ArrayBuffer(pages * PAGE) };
    for (const [matrix, at] of this.matrices) {
      matrix.numbers = new Float32Array(memory.buffer, at, matrix.rows * matrix.columns);
    }
    this.scratch = scratch.numbers;
    this.kernel = bytes ? compiled(fromBase64(bytes), memory) : inJavaScript;
  }

  // out = a b, or out = out + a b where `add` is true.  Rows and columns of `out` are multiples of 4.
  multiply(out, a, b, { add = false } = {}) {
    const rows = b.along === 1 ? b : this.copy(b);
    // So many rows of b at a time, and of columns of a, as the processor's fastest memory holds.
    for (let k = 0; k < b.rows; k += 256) {
      const count = Math.min(256, b.rows - k);
      this.kernel.multiply(out, a, k * a.along, rows, k * rows.down, count, add || k > 0);
    }
  }

  // y = e^(times (x - from)) for `count` numbers of two matrices of one size, from place `at` on, a multiple
  // of 4; up to 3 after them change, too.  y may be x.
  exp(y, x, { at = 0, count = x.numbers.length, from = 0, times = 1 } = {}) {
    this.kernel.exp(y, x, at, count, from, times);
  }

  // The same matrix with its rows in one piece each, which the kernel reads.  Eight numbers between two rows
  // keep their distance from being a power of two, whose places crowd into a few lines of a processor's cache.
  copy(b) {
    const { rows, columns, down, along, numbers } = b;
    const apart = columns + 8;
    for (let column = 0; column < columns; column++) {
      for (let row = 0, from = column * along, to = column; row < rows; row++, from += down, to += apart) {
        this.scratch[to] = numbers[from];
      }
    }
    return { numbers: this.scratch, rows, columns, down: apart, along: 1 };
  }
}

// --- the kernels.  multiply: out = a b, or out + a b where `add` is true, for `count` columns of a and rows of b

function compiled(bytes, memory) {
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), { live: { memory } });
  const { multiply, exp } = instance.exports;
  const place = (matrix, at = 0) => matrix.numbers.byteOffset + 4 * at;
  return {
    multiply: (out, a, aAt, b, bAt, count, add) => multiply(
      out.rows, out.columns, count,
      place(a, aAt), 4 * a.down, 4 * a.along,
      place(b, bAt), 4 * b.down,
      place(out), 4 * out.down, add),
    exp: (y, x, at, count, from, times) => exp(place(y, at), place(x, at), 16 * Math.ceil(count / 4), from, times),
  };
}

const inJavaScript = {
  multiply: multiplyTiles,
  exp({ numbers: y }, { numbers: x }, at, count, from, times) {
    for (let i = at; i < at + count; i++) y[i] = Math.exp(times * (x[i] - from));
  },
};

// The same tiles of four rows, here by four columns, whose sums are 64-bit numbers.
function multiplyTiles(out, a, aAt, b, bAt, count, add) {
  const [A, B, C] = [a.numbers, b.numbers, out.numbers];
  for (let row = 0; !add && row < out.rows; row++) C.fill(0, row * out.down, row * out.down + out.columns);
  const { down, along } = a;
  for (let i = 0; i < out.rows; i += 4) {
    for (let j = 0; j < out.columns; j += 4) {
      let c00 = 0, c01 = 0, c02 = 0, c03 = 0, c10 = 0, c11 = 0, c12 = 0, c13 = 0;
      let c20 = 0, c21 = 0, c22 = 0, c23 = 0, c30 = 0, c31 = 0, c32 = 0, c33 = 0;
      let p = aAt + i * down;
      let q = bAt + j;
      for (let k = 0; k < count; k++, p += along, q += b.down) {
        const b0 = B[q], b1 = B[q + 1], b2 = B[q + 2], b3 = B[q + 3];
        const a0 = A[p], a1 = A[p + down], a2 = A[p + 2 * down], a3 = A[p + 3 * down];
        c00 += a0 * b0; c01 += a0 * b1; c02 += a0 * b2; c03 += a0 * b3;
        c10 += a1 * b0; c11 += a1 * b1; c12 += a1 * b2; c13 += a1 * b3;
        c20 += a2 * b0; c21 += a2 * b1; c22 += a2 * b2; c23 += a2 * b3;
        c30 += a3 * b0; c31 += a3 * b1; c32 += a3 * b2; c33 += a3 * b3;
      }
      let to = i * out.down + j;
      C[to] += c00; C[to + 1] += c01; C[to + 2] += c02; C[to + 3] += c03;
      to += out.down;
      C[to] += c10; C[to + 1] += c11; C[to + 2] += c12; C[to + 3] += c13;
      to += out.down;
      C[to] += c20; C[to + 1] += c21; C[to + 2] += c22; C[to + 3] += c23;
      to += out.down;
      C[to] += c30; C[to + 1] += c31; C[to + 2] += c32; C[to + 3] += c33;
    }
  }
}
