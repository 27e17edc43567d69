// The stories of llmcourse.data.corpus, word by word: the same seed tells the same stories.
//
// A grammar has plots; a plot is a list of beats, a beat a list of templates, and a template a sentence
// with slots: "{hero} found {toy.a} {spot}."  A slot names a variable and a form of its value.

import { Random } from "./random.js";

export const END_OF_TEXT = "<|endoftext|>";
const SLOT = /\{(\w+)(?:\.(\w+))?\}/g;

// Draw a story: a plot, a template for every beat, and a value for every variable at its first mention.
export function story({ classes, variables, plots }, chance) {
  const plot = plots[chance.below(plots.length)];
  const values = {};
  const sentences = [];
  for (const beat of plot) {
    const template = beat[chance.below(beat.length)];
    if (template) sentences.push(template.replace(SLOT, (_, variable, form, at) => {
      const known = classes[variables[variable]];
      if (!(variable in values)) {
        const free = freeValues(variable, values, { classes, variables });
        values[variable] = free[chance.below(free.length)];
      }
      const text = known[values[variable]][form ?? ""];
      return at === 0 ? text[0].toUpperCase() + text.slice(1) : text;
    }));
  }
  return sentences.join(" ");
}

// The values of a variable's class that no other variable of the story has taken.
function freeValues(variable, values, { classes, variables }) {
  const kind = variables[variable];
  const taken = Object.keys(values).filter((other) => variables[other] === kind).map((other) => values[other]);
  return classes[kind].map((_, i) => i).filter((i) => !taken.includes(i));
}

// An endless text of stories as tokens, from which batches are cut one after the other: no token is
// seen twice.
export class Stories {
  constructor(grammar, tokenizer, seed) {
    [this.grammar, this.tokenizer, this.chance] = [grammar, tokenizer, new Random(seed)];
    this.tokens = []; // written, and not yet taken
  }

  // `batch_size` sequences of `context_length` tokens, and the tokens that follow each.
  batch({ batch_size: B, context_length: T }) {
    const needed = B * (T + 1);
    while (this.tokens.length < needed) {
      this.tokens.push(...this.tokenizer.encode(story(this.grammar, this.chance) + END_OF_TEXT));
    }
    const [ids, targets] = [new Uint16Array(B * T), new Uint16Array(B * T)];
    for (let b = 0; b < B; b++) {
      const row = this.tokens.slice(b * (T + 1), (b + 1) * (T + 1));
      ids.set(row.slice(0, T), b * T);
      targets.set(row.slice(1), b * T);
    }
    this.tokens.splice(0, needed);
    return { ids, targets };
  }

  state() {
    return { chance: this.chance.state(), tokens: [...this.tokens] };
  }

  restore({ chance, tokens }) {
    this.chance.restore(chance);
    this.tokens = [...tokens];
  }
}
