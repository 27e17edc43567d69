"""The steps in their order, each with what it took, kept and dropped.

Steps that look at one text at a time are judges.  Steps that find copies look at all texts that are
left before they drop one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from llmcourse_labs.curation.dedup import LineCounts, NearDuplicates, exact_key
from llmcourse_labs.curation.extract import extract
from llmcourse_labs.curation.language import KeepLanguage, default_model
from llmcourse_labs.curation.minhash import MinHash, bands_for
from llmcourse_labs.curation.pii import replace_personal
from llmcourse_labs.curation.rules import C4, Gopher, Repetition
from llmcourse_labs.curation.step import Document, Dropped, Filter, StepStats, filtered

Step = Callable[[Sequence[Document], StepStats], list[Document]]
"""What goes on of the documents, in their order; the tally counts all."""

EXTRACT, LANGUAGE, RULES = "extract", "language", "rules"
EXACT, NEAR, LINES = "exact copies", "near copies", "repeated lines"
QUALITY, TEST_ITEMS, PERSONAL = "quality", "test items", "personal data"
STEPS = (EXTRACT, LANGUAGE, RULES, EXACT, NEAR, LINES, QUALITY, TEST_ITEMS, PERSONAL)
"""The steps in their order."""
BEFORE_COPIES = (EXTRACT, LANGUAGE, RULES)
"""The judges that come before the search for copies; the others come after it."""


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """The settings of a funnel; calling it runs the steps on documents in memory."""

    language: Filter = field(default_factory=lambda: KeepLanguage(model=default_model()))
    """Of the texts that go on."""
    rules: tuple[Filter, ...] = (C4(), Gopher(), Repetition())
    similarity: float = 0.6
    """Of near copies, where half of the pairs are found."""
    signature: MinHash = field(default_factory=MinHash)
    """Of a document."""
    most_documents: int = 20
    """In which a line may stand."""
    quality: Filter | None = None
    """A classifier; without one the step is left out."""
    test_items: Filter | None = None
    """Finds items of tests; without any the step is left out."""
    without: Collection[str] = ()
    """Names of steps that are left out."""

    def __post_init__(self) -> None:
        """Refuse names of steps that there are not."""
        if strange := sorted(set(self.without) - set(STEPS)):
            raise ValueError(f"there is no step {strange[0]!r}: the steps are {', '.join(STEPS)}")

    def judges(self) -> dict[str, Filter]:
        """Return the steps that look at one text at a time, by name, in their order."""
        found: dict[str, Filter | None] = {
            EXTRACT: extract,
            LANGUAGE: self.language,
            RULES: Chain(self.rules),
            QUALITY: self.quality,
            TEST_ITEMS: self.test_items,
            PERSONAL: replace_personal,
        }
        return {n: j for n, j in found.items() if j is not None and n not in self.without}

    def near_duplicates(self) -> NearDuplicates:
        """Return what finds near copies, without a document yet."""
        return NearDuplicates(*bands_for(self.similarity, self.signature.num_hashes))

    def steps(self) -> dict[str, Step]:
        """Return the steps by name, in their order."""
        judges = self.judges()
        found: dict[str, Step] = {name: by_text(judge) for name, judge in judges.items()}
        found |= {
            EXACT: drop_exact_copies,
            NEAR: self._drop_near_copies,
            LINES: self._drop_repeated_lines,
        }
        return {n: found[n] for n in STEPS if n in found and n not in self.without}

    def __call__(self, documents: Iterable[Document]) -> "Curated":
        """Run the steps.

        Args:
            documents: with different ids.

        Returns:
            What is left at the end, and after each step.
        """
        left = list(documents)
        passed, tallies = {"": left}, []
        for name, step in self.steps().items():
            tallies.append(StepStats(name=name))
            left = step(left, tallies[-1])
            passed[name] = left
        return Curated(left, tallies, passed)

    def _drop_near_copies(self, documents: Sequence[Document], tally: StepStats) -> list[Document]:
        """Keep of every cluster of near copies the first."""
        began = perf_counter()
        near = self.near_duplicates()
        for document in documents:
            near.add(document.id, self.signature(document.text))
        copies = near.dropped()
        tally.seconds += perf_counter() - began
        return _first_of_copies(documents, copies, "near copy", tally)

    def _drop_repeated_lines(
        self, documents: Sequence[Document], tally: StepStats
    ) -> list[Document]:
        """Remove lines that many documents have."""
        began = perf_counter()
        lines = LineCounts()
        for document in documents:
            lines.add(document.text)
        judge = lines.repeated(self.most_documents)
        tally.seconds += perf_counter() - began
        return list(filtered(documents, judge, tally))


class Curated(NamedTuple):
    """What a funnel made of documents."""

    documents: list[Document]
    """What is left at the end."""
    tallies: list[StepStats]
    """Of the steps, in their order."""
    passed: dict[str, list[Document]]
    """What was left after each step, by its name; "" has what came."""


def by_text(judge: Filter) -> Step:
    """Return the step that asks a judge about every text."""

    def step(documents: Sequence[Document], tally: StepStats) -> list[Document]:
        return list(filtered(documents, judge, tally))

    return step


@dataclass(frozen=True)
class Chain:
    """A judge that asks several, each about what the one before it has returned."""

    judges: Sequence[Filter]

    def __call__(self, text: str) -> str | Dropped:
        """Return what the last judge returns, or the first that drops."""
        for judge in self.judges:
            outcome = judge(text)
            if isinstance(outcome, Dropped):
                return outcome
            text = outcome
        return text


def drop_exact_copies(documents: Sequence[Document], tally: StepStats) -> list[Document]:
    """Keep of documents that differ in nothing but white space the first."""
    began = perf_counter()
    first: dict[bytes, str] = {}
    copies = {}
    for document in documents:
        original = first.setdefault(exact_key(document.text), document.id)
        if original != document.id:
            copies[document.id] = original
    tally.seconds += perf_counter() - began
    return _first_of_copies(documents, copies, "exact copy", tally)


def _first_of_copies(
    documents: Sequence[Document], copies: Mapping[str, str], reason: str, tally: StepStats
) -> list[Document]:
    """Drop the copies, and count them."""
    kept = []
    for document in documents:
        if document.id in copies:
            tally.note(document, Dropped(reason, f"of {copies[document.id]}"))
        else:
            tally.note(document, document.text)
            kept.append(document)
    return kept


class Grades(NamedTuple):
    """How well a step chose what to drop; None where there was nothing to choose from."""

    dropped: int
    precision: float | None
    """Share of the dropped documents that are not wanted."""
    recall: float | None
    """Share of the documents that came and are not wanted that were dropped."""


def grades(
    came: Iterable[Document], left: Iterable[Document], wanted: Mapping[str, bool]
) -> Grades:
    """Grade a step by labels.

    Args:
        came: documents before the step.
        left: documents after it.
        wanted: of every id, whether a perfect funnel would keep it.
    """
    stayed = {document.id for document in left}
    bad = [d.id for d in came if not wanted[d.id]]
    dropped = [d.id for d in came if d.id not in stayed]
    right = sum(not wanted[i] for i in dropped)
    return Grades(
        len(dropped),
        right / len(dropped) if dropped else None,
        right / len(bad) if bad else None,
    )
