"""Which language a text is in: naive Bayes on runs of one to three characters::

    log p(text | language) = sum over the runs g of the text of  log((n_g + 1) / (N + V))

n_g is how often the run stands in the language's sample, N how many runs the sample has, V how many
different runs all samples have together.

Source: McCallum and Nigam 1998, "A comparison of event models for naive Bayes text classification",
the multinomial model with Laplace's correction.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import regex

from llmcourse_labs.curation.step import Dropped

LONGEST_RUN = 3

MOST_CHARACTERS = 2_000
"""Of a text that are looked at: more change no verdict."""

_OTHER = regex.compile(r"[^\p{L}]+")


def runs(text: str) -> list[str]:
    """Return the runs of one to three letters of a text's beginning, a space between words."""
    letters = f" {_OTHER.sub(' ', text.lstrip()[:MOST_CHARACTERS].lower()).strip()} "
    return [
        letters[i : i + length]
        for length in range(1, LONGEST_RUN + 1)
        for i in range(len(letters) - length + 1)
    ]


class Guess(NamedTuple):
    """A language and how probable it is, as if runs were independent: too sure by far."""

    language: str
    probability: float


@dataclass(frozen=True)
class LanguageModel:
    """What is known of each language: the logarithm of every run's probability."""

    log_probability: Mapping[str, Mapping[str, float]]
    """Of each language, for the runs of its sample."""
    unseen: Mapping[str, float]
    """Of each language, for any other run."""

    @classmethod
    def train(cls, samples: Mapping[str, Sequence[str]]) -> "LanguageModel":
        """Count the runs of some texts of each language.

        Raises:
            ValueError: if there are fewer than two languages, or one has no letters.
        """
        if len(samples) < 2:
            raise ValueError(f"two languages or more are needed to tell apart, got {len(samples)}")
        counts = {}
        for language, texts in samples.items():
            counts[language] = Counter(
                run
                for text in texts
                for start in range(0, len(text), MOST_CHARACTERS)
                for run in runs(text[start : start + MOST_CHARACTERS])
            )
            if not counts[language]:
                raise ValueError(f"the sample of {language!r} has no text")
        num_different = len(set().union(*counts.values()))
        log_probability, unseen = {}, {}
        for language, counted in counts.items():
            total = math.log(counted.total() + num_different)
            log_probability[language] = {g: math.log(n + 1) - total for g, n in counted.items()}
            unseen[language] = -total
        return cls(log_probability, unseen)

    def log_probabilities(self, text: str) -> dict[str, float]:
        """Return log p(text | language) for each language, in nats."""
        found = runs(text)
        scores = {}
        for language, known in self.log_probability.items():
            unseen = self.unseen[language]
            scores[language] = math.fsum(known.get(run, unseen) for run in found)
        return scores

    def identify(self, text: str) -> Guess:
        """Return the likeliest language, all being equally likely before."""
        scores = self.log_probabilities(text)
        best = max(scores, key=scores.__getitem__)
        return Guess(best, 1 / sum(math.exp(score - scores[best]) for score in scores.values()))


@dataclass(frozen=True, kw_only=True)
class KeepLanguage:
    """Drop what is not in one language (a step of a funnel)."""

    model: LanguageModel
    language: str = "en"
    """One of the model's."""
    least: float = 0.5
    """Probability that a text must have."""
    least_known: float = 0.2
    """Share of its longest runs that the language's sample must have; a text in another script, or
    in a language that the model has never seen, could be anything to it."""

    def __post_init__(self) -> None:
        """Refuse a language that the model does not know."""
        if self.language not in self.model.unseen:
            known = ", ".join(self.model.unseen)
            raise ValueError(f"there is no language {self.language!r}: the model knows {known}")

    def __call__(self, text: str) -> str | Dropped:
        """Return the text, or that it is in another language."""
        if not _OTHER.sub("", text.lstrip()[:MOST_CHARACTERS]):
            return Dropped("no letters")
        found = self.model.identify(text)
        if found.language != self.language or found.probability < self.least:
            said = f"{found.language} with probability {found.probability:.2f}"
            return Dropped(f"not in {self.language}", said)
        longest = [run for run in runs(text) if len(run) == LONGEST_RUN]
        known = sum(run in self.model.log_probability[self.language] for run in longest)
        if known < self.least_known * len(longest):
            said = f"{known / len(longest):.2f} of its runs known, at least {self.least_known}"
            return Dropped("in no language that is known", said)
        return text


_ENGLISH = """
The morning was cold and the streets were still empty when the first train came into the station. A
woman with a green coat stood at the door of the bakery and waited. She had walked all the way from
the river because the bridge was closed again, and nobody could tell her when it would be opened.
People who live near the water know that such things happen every year. The government has promised
to build another bridge, but there is never enough money for it, so they take the long road instead.
What do you think about it? I would rather stay at home than go out in this weather, he said, and
looked through the window at the trees. They have been there for a hundred years. Their leaves turn
yellow in October, and after the first storm they are gone. It is difficult to say which of the two
houses is older. One has a date above the door; the other one does not. You can use this machine for
any kind of work, if you read the instructions first and keep your hands away from the wheel.
"""
_GERMAN = """
Der Morgen war kalt, und die Straßen waren noch leer, als der erste Zug in den Bahnhof einfuhr. Eine
Frau mit einem grünen Mantel stand vor der Tür der Bäckerei und wartete. Sie war den ganzen Weg vom
Fluss zu Fuß gegangen, weil die Brücke wieder gesperrt war, und niemand konnte ihr sagen, wann sie
geöffnet würde. Wer in der Nähe des Wassers wohnt, weiß, dass so etwas jedes Jahr geschieht. Die
Regierung hat versprochen, eine andere Brücke zu bauen, aber dafür ist nie genug Geld da, und so
nehmen sie die lange Straße. Was halten Sie davon? Ich bleibe lieber zu Hause, als bei diesem Wetter
auszugehen, sagte er und sah durch das Fenster auf die Bäume. Sie stehen dort seit hundert Jahren.
Ihre Blätter werden im Oktober gelb, und nach dem ersten Sturm sind sie verschwunden. Es ist schwer
zu sagen, welches der beiden Häuser älter ist. Über der einen Tür steht eine Jahreszahl, über der
anderen nicht. Mit dieser Maschine können Sie jede Art von Arbeit erledigen, wenn Sie zuerst die
Anleitung lesen und die Hände vom Rad fernhalten.
"""
_SPANISH = """
La mañana era fría y las calles todavía estaban vacías cuando el primer tren entró en la estación.
Una mujer con un abrigo verde esperaba delante de la puerta de la panadería. Había caminado todo el
trayecto desde el río porque el puente estaba cerrado otra vez, y nadie podía decirle cuándo lo
abrirían. La gente que vive cerca del agua sabe que estas cosas pasan todos los años. El gobierno ha
prometido construir otro puente, pero nunca hay bastante dinero para eso, así que toman el camino
largo. ¿Qué piensa usted de ello? Prefiero quedarme en casa que salir con este tiempo, dijo él, y
miró los árboles por la ventana. Están allí desde hace cien años. Sus hojas se ponen amarillas en
octubre, y después de la primera tormenta ya no queda ninguna. Es difícil decir cuál de las dos
casas es más antigua. Una tiene una fecha sobre la puerta; la otra no. Puede usar esta máquina para
cualquier clase de trabajo, si lee primero las instrucciones y mantiene las manos lejos de la rueda.
"""


@cache
def default_model() -> LanguageModel:
    """Return a model that tells English, German and Spanish apart, from a page of each."""
    return LanguageModel.train({"en": [_ENGLISH], "de": [_GERMAN], "es": [_SPANISH]})
