"""The page of benchmarks begins with the rows that matter, and says what the table says."""

import re

import pytest

from bench import __main__ as bench

TEXT = bench.README.read_text(encoding="utf8")


def committed():
    rows = []
    for line in re.findall(r"^\| (?!what|--)(.+) \|$", TEXT, flags=re.MULTILINE):
        what, ours, peer_name, peer, unit, ratio, aim = map(str.strip, f"{line} ".split("|"))
        ours, peer, ratio = (float(number.replace(",", "")) for number in (ours, peer, ratio))
        row = {"what": what, "peer_name": peer_name, "unit": unit, "aim": aim}
        rows.append(row | {"ours": ours, "peer": peer, "ratio": ratio})
    return rows


def test_the_page_begins_with_ten_sentences_from_its_table():
    machine = re.search(r"^Measured (.+)\.$", TEXT, flags=re.MULTILINE)[1]
    head, mark, rest = TEXT.partition(bench.MARK)
    assert head.startswith("# Benchmarks")
    assert mark
    assert rest == f"\n\n{bench.page(committed(), machine)}"
    assert len(re.findall(r"^[0-9]+\. .+\.$", rest, flags=re.MULTILINE)) == 10
    rows = [row for row in committed() if row["what"] != "split by tp, 2 ranks"]
    with pytest.raises(ValueError, match="no row 'split by tp, 2 ranks' against 'torch's'"):
        bench.opening(rows)


@pytest.mark.parametrize(
    ("ratio", "aim", "who", "numbers"),
    [
        (1.5, "", "faster than", "1.50 times its 2,000"),
        (10.25, ">= 1.5", "faster than", "10.25 times its 2,000; the aim of 1.5 is reached"),
        (0.899, "at least 0.9", "slower than", "0.90 times its 2,000; the aim of 0.9 is reached"),
        (0.5, "at least 0.7", "slower than", "0.50 times its 2,000; the aim of 0.7 is missed"),
        (0.999, "1", "as fast as", "1.00 times its 2,000; the aim of 1 is reached"),
    ],
)
def test_a_comparison_says_who_is_faster_and_whether_the_aim_is_reached(ratio, aim, who, numbers):
    row = {"ours": 2000 * ratio, "peer": 2000.0, "ratio": ratio, "aim": aim}
    assert bench.compared(row, "gloo") == f"{who} gloo ({numbers})"
