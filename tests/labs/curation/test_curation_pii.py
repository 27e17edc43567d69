"""curation.pii: what is an address, what only looks like one, and no text takes long."""

import pytest

from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.pii import replace_personal, replaced


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to anna.b+news@mail.example.org, please.", "Write to <EMAIL>, please."),
        ("(ben@example.com)", "(<EMAIL>)"),
        ("ANNA@EXAMPLE.COM", "<EMAIL>"),
        ("ben@müller.de", "<EMAIL>"),
        ("a@x.b.c.d.ee.org", "<EMAIL>"),
        ("Call +1 202 555 0134 today.", "Call <PHONE> today."),
        ("Call (202) 555-0134.", "Call <PHONE>."),
        ("Ring +49 30 1234567 now", "Ring <PHONE> now"),
        ("She lives at 12 Old Oak Street.", "She lives at <ADDRESS>."),
        ("from 192.168.10.255 at noon", "from <IP> at noon"),
    ],
)
def test_addresses_become_marks(text, expected):
    assert replace_personal(text) == replace_personal(expected) == expected
    assert replaced(text)[1].total() == 1


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3.4.5 of 2024-05-12",
        "It costs 1,299.00 and weighs 12 345 678 grams.",
        "ISBN 978-3-16-148410-0",
        "300.1.2.3 is no address, and 1.2.3 is none",
        "a @ b, user@localhost, @name",
        "from 1990 to 2024, 100 200 300",
        "In 12 Days the Street was empty.",
    ],
)
def test_what_only_looks_like_one_stays(text):
    assert replace_personal(text) == text


def test_all_that_was_planted_is_found_and_nothing_else_changes():
    planted = 0
    for label in Crawl(500, seed=8).labels():
        text, counts = replaced(label.main_text)
        planted += len(label.personal)
        assert not any(each in text for each in label.personal)
        assert counts.total() == len(label.personal) or label.copy_of
        assert label.personal or text == label.main_text
    assert planted > 10


PIECES = ["a@", "1-", "a.b.", "1", "+1 ", "1.1.", "12 Oak ", "A", "(", "1 ", "1 Ab Ab ", "a@b."]


@pytest.mark.parametrize("piece", [*PIECES, "\ud800"])
def test_no_text_takes_more_than_linear_time(piece):
    text = piece * (400_000 // len(piece))  # quadratic time would be minutes
    assert replaced(text)[0] == text
