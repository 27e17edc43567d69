"""A grammar that is read three ways: it writes texts, it parses them, and it knows their entropy.

A grammar is data.  A *plot* is a list of *beats*, a beat a list of *templates*, and a template one
sentence with slots: "{hero} found {toy.a} {spot}."  A text is made from the top down:

* one plot is drawn, then one template for each of its beats; every draw is uniform;
* the empty template says nothing, so that a beat can be left out;
* a slot names a variable and one *form* of its value ("{hero.he}" is "he" or "she").  A variable is
  drawn at its first mention, uniformly among those values of its class that no other variable of
  the text has taken, and is kept to the end of the text: what was lost is what is found;
* sentences are joined by one space, and a slot that opens a sentence gets a capital letter.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import log2

from llmcourse.data.corpus.templates import Slot, Value, capitalise, split_template

Plot = tuple[tuple[str, ...], ...]
"""The templates of each beat."""


@dataclass(frozen=True)
class Derivation:
    """One way in which a grammar makes a text."""

    log2_probability: float
    """Base-2 logarithm of the product of the probabilities of its draws, in bits, at most 0."""
    templates: tuple[str, ...]
    """The templates that were spoken, in order."""
    values: Mapping[str, int]
    """For every variable that was drawn, the index of its value in its class."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Grammar:
    """A probabilistic grammar of short texts; see the module's docstring for its meaning."""

    classes: Mapping[str, tuple[Value, ...]]
    """The values that a variable can take, by class."""
    variables: Mapping[str, str]
    """The class of every variable."""
    plots: tuple[Plot, ...]
    """What can happen."""

    def __post_init__(self):
        for variable, kind in self.variables.items():
            if kind not in self.classes:
                raise ValueError(f"variable {variable!r} has class {kind!r}, which is not defined")
        for kind, count in Counter(self.variables.values()).items():
            if count > len(self.classes[kind]):
                raise ValueError(f"class {kind!r} has fewer values than its {count} variables")
        for plot in self.plots:
            self._check_plot(plot)

    def _check_plot(self, plot: Plot) -> None:
        if not plot or "" in plot[0]:
            raise ValueError("the first beat of a plot must always be spoken")
        for beat in plot:
            if len(set(beat)) != len(beat):
                raise ValueError(f"a beat has the same template twice: {beat}")
            for template in beat:
                self._check_template(template)

    def _check_template(self, template: str) -> None:
        for piece in split_template(template):
            if isinstance(piece, str):
                texts = [piece]
            elif piece.variable not in self.variables:
                raise ValueError(f"{template!r} names an unknown variable {piece.variable!r}")
            else:
                texts = [value.get(piece.form, "") for value in self._values(piece.variable)]
            if not all(text and text.isascii() and not set(text) & set("{}") for text in texts):
                raise ValueError(f"{template!r} has an unknown form or text that is not ASCII")

    def _values(self, variable: str) -> tuple[Value, ...]:
        return self.classes[self.variables[variable]]

    def _free(self, variable: str, taken: Mapping[str, int]) -> list[int]:
        """Indices that `variable` can still take, given the values that are already taken."""
        kind = self.variables[variable]
        used = {index for other, index in taken.items() if self.variables[other] == kind}
        return [index for index in range(len(self.classes[kind])) if index not in used]

    def _text(self, slot: Slot, index: int, opens: bool) -> str:
        text = self._values(slot.variable)[index][slot.form]
        return capitalise(text) if opens else text

    # Writing

    def sample(self, rng: random.Random) -> tuple[str, Derivation]:
        """Draw a text.

        Only `rng.random()` is called: of the methods of `random.Random` it is the one whose
        sequence for a seed is promised not to change between versions of Python.

        Args:
            rng: the source of randomness; its state moves on.

        Returns:
            The text, and how it was made.

        Source:
            https://docs.python.org/3/library/random.html#notes-on-reproducibility
        """
        plot = self.plots[_uniform(rng, len(self.plots))]
        bits, spoken, sentences = log2(len(self.plots)), [], []
        values: dict[str, int] = {}
        for beat in plot:
            template = beat[_uniform(rng, len(beat))]
            bits += log2(len(beat))
            if not template:
                continue
            sentence = ""
            for piece in split_template(template):
                if isinstance(piece, str):
                    sentence += piece
                    continue
                if piece.variable not in values:
                    free = self._free(piece.variable, values)
                    values[piece.variable] = free[_uniform(rng, len(free))]
                    bits += log2(len(free))
                sentence += self._text(piece, values[piece.variable], opens=not sentence)
            spoken.append(template)
            sentences.append(sentence)
        return " ".join(sentences), Derivation(-bits, tuple(spoken), values)

    # Parsing

    def derivations(self, text: str) -> Iterator[Derivation]:
        """Every way in which this grammar makes exactly `text`; none if it cannot."""
        bits = log2(len(self.plots))
        for plot in self.plots:
            yield from self._parse(plot, text, 0, Derivation(-bits, (), {}))

    def _parse(self, plot: Plot, text: str, start: int, sofar: Derivation) -> Iterator[Derivation]:
        """Ways to continue at `start` with the beats of `plot`, after what `sofar` has said."""
        if not plot:
            if start == len(text):
                yield sofar
            return
        beat, rest = plot[0], plot[1:]
        before_beat = sofar.log2_probability - log2(len(beat))
        for template in beat:
            if not template:
                silent = Derivation(before_beat, sofar.templates, sofar.values)
                yield from self._parse(rest, text, start, silent)
                continue
            gap = " " if sofar.templates else ""
            if not text.startswith(gap, start):
                continue
            for end, values, bits in self._match(template, text, start + len(gap), sofar.values):
                spoken = (*sofar.templates, template)
                yield from self._parse(
                    rest, text, end, Derivation(before_beat - bits, spoken, values)
                )

    def _match(
        self, template: str, text: str, start: int, values: Mapping[str, int]
    ) -> list[tuple[int, Mapping[str, int], float]]:
        """Ways to read `template` at `start`: (end, all values so far, bits of the new draws)."""
        states = [(start, values, 0.0)]
        for piece in split_template(template):
            states = [
                after for state in states for after in self._advance(piece, start, text, state)
            ]
        return states

    def _advance(self, piece, start, text, state):
        """States after reading one piece of a template; `start` is where its sentence begins."""
        at, values, bits = state
        if isinstance(piece, str):
            if text.startswith(piece, at):
                yield at + len(piece), values, bits
            return
        known = piece.variable in values
        free = [values[piece.variable]] if known else self._free(piece.variable, values)
        for index in free:
            form = self._text(piece, index, opens=at == start)
            if text.startswith(form, at):
                yield at + len(form), {**values, piece.variable: index}, bits + log2(len(free))

    def readings(self, sentence: str) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Every (template, values) that makes exactly this sentence, whatever came before it."""
        for template, shape in self._shapes:
            if shape.fullmatch(sentence):  # spares nearly all of the parsing
                for end, values, _ in self._match(template, sentence, 0, {}):
                    if end == len(sentence):
                        yield template, values

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """All different templates that say something, in the order of the plots."""
        beats = (beat for plot in self.plots for beat in plot)
        return tuple(dict.fromkeys(template for beat in beats for template in beat if template))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Every piece of text that the templates can contribute, in the order of the templates."""
        found: dict[str, None] = {}
        for piece in (piece for template in self.templates for piece in split_template(template)):
            if isinstance(piece, str):
                found[piece] = None
            else:
                found.update((value[piece.form], None) for value in self._values(piece.variable))
        return tuple(found)

    @cached_property
    def _shapes(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """Each template and what all its sentences match, whether or not their slots agree."""
        return tuple((template, re.compile(self._shape(template))) for template in self.templates)

    def _shape(self, template: str) -> str:
        shape = ""
        for piece in split_template(template):
            if isinstance(piece, str):
                shape += re.escape(piece)
            else:
                values = self._values(piece.variable)
                texts = {capitalise(v[piece.form]) if not shape else v[piece.form] for v in values}
                shape += f"(?:{'|'.join(map(re.escape, sorted(texts)))})"
        return shape

    # Measuring

    def expected_bits_and_bytes(self) -> tuple[float, float]:
        """Entropy of the draws behind one text, and its expected length, exactly.

            H = log2(plots) + E[sum over beats (log2(templates) + sum over draws log2(values left))]

        by the chain rule: every draw is uniform, so its entropy is the logarithm of the number of
        its outcomes, and that number depends only on which variables were drawn before, not on
        their values.  The recursion therefore runs over (beat, set of drawn variables).

        The length is a sum over pieces.  A drawn value is uniform over its whole class: given any
        values already taken the next is uniform over the rest, and averaged over those this is
        uniform over all, since the values of a class are exchangeable and no choice of template
        looks at a value.  So a slot's expected length is the plain mean over its class.

        If every text has one derivation (`derivations` yields one), H is the entropy of the text.

        Returns:
            The expectation of -log2 probability in bits, and of the length in bytes, of one text.
        """
        totals = [self._plot_totals(plot) for plot in self.plots]
        bits = log2(len(self.plots)) + sum(b for b, _ in totals) / len(totals)
        return bits, sum(n for _, n in totals) / len(totals)

    def _plot_totals(self, plot: Plot) -> tuple[float, float]:
        @cache
        def rest(beat: int, drawn: frozenset[str]) -> tuple[float, float]:
            if beat == len(plot):
                return 0.0, 0.0
            bits, length = log2(len(plot[beat])), 0.0
            for template in plot[beat]:
                new = self._new_variables(template, drawn)
                after_bits, after_length = rest(beat + 1, drawn.union(new))
                share = 1 / len(plot[beat])
                bits += share * (self._draw_bits(new, drawn) + after_bits)
                length += share * (self._mean_bytes(template) + after_length)
            return bits, length

        bits, length = rest(0, frozenset())
        return bits, length - 1  # one space fewer than sentences

    def _new_variables(self, template: str, drawn: frozenset[str]) -> list[str]:
        slots = [piece for piece in split_template(template) if isinstance(piece, Slot)]
        return [v for v in dict.fromkeys(slot.variable for slot in slots) if v not in drawn]

    def _draw_bits(self, new: list[str], drawn: frozenset[str]) -> float:
        taken = Counter(self.variables[variable] for variable in drawn)
        bits = 0.0
        for kind in (self.variables[variable] for variable in new):
            bits += log2(len(self.classes[kind]) - taken[kind])
            taken[kind] += 1
        return bits

    def _mean_bytes(self, template: str) -> float:
        """Expected length of a template's sentence and of the space that follows it."""
        length = 1.0 if template else 0.0
        for piece in split_template(template):
            if isinstance(piece, str):
                length += len(piece)
            else:
                values = self._values(piece.variable)
                length += sum(len(value[piece.form]) for value in values) / len(values)
        return length


def _uniform(rng: random.Random, count: int) -> int:
    """An integer in [0, count); for small counts its bias is below 2^-48."""
    return int(rng.random() * count)
