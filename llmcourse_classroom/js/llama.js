// Counting a Llama, compared with llmcourse_labs.scale.cost by the tests of the widgets that use it.

export function parametersByPart(c) {
  const heads = 2 * c.num_heads + 2 * c.num_kv_heads;
  return {
    embedding: c.vocab_size * c.width,
    attention: c.num_layers * c.width * heads * c.head_size,
    feed_forward: c.num_layers * 3 * c.width * c.hidden,
    norms: (2 * c.num_layers + 1) * c.width,
    head: c.tied_head ? 0 : c.vocab_size * c.width,
  };
}

export const total = (parts) => Object.values(parts).reduce((sum, part) => sum + part, 0);

// The nearest number of key/value heads that divides the heads.
export function nearestDivisor(number, wanted) {
  let best = 1;
  for (let d = 1; d <= number; d++) {
    if (number % d === 0 && Math.abs(d - wanted) < Math.abs(best - wanted)) best = d;
  }
  return best;
}

// The next number above (direction 1) or below (-1) that divides the heads; `from` if there is none.
export function nextDivisor(number, from, direction) {
  for (let d = from + direction; d >= 1 && d <= number; d += direction) if (number % d === 0) return d;
  return from;
}
