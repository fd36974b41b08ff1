"""The shipped passage corpus keeps its promises: size, breadth, lengths, valid text, and no borrowed or repeated phrasing."""

import json
import re
from collections import Counter
from importlib import resources

FIELDS = {"id", "domain", "title", "text"}


def load_passages() -> list[dict[str, str]]:
    raw = resources.files("spade_actors").joinpath("memory", "corpus", "passages.jsonl").read_bytes()
    assert raw.endswith(b"\n")
    return [json.loads(line) for line in raw.decode("utf-8").splitlines()]


PASSAGES = load_passages()


def ngrams(text: str, size: int) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def test_every_line_has_exactly_the_documented_string_fields() -> None:
    for passage in PASSAGES:
        assert set(passage) == FIELDS, passage
        assert all(isinstance(value, str) and value == value.strip() and value for value in passage.values()), passage


def test_at_least_two_hundred_passages_over_twenty_domains_of_ten() -> None:
    domains = Counter(passage["domain"] for passage in PASSAGES)
    assert len(PASSAGES) >= 200
    assert len(domains) >= 20
    assert min(domains.values()) >= 10, domains


def test_ids_number_the_passages_of_each_domain_in_order() -> None:
    seen: Counter[str] = Counter()
    for passage in PASSAGES:
        seen[passage["domain"]] += 1
        assert passage["id"] == f"{passage['domain'].replace(' ', '-')}-{seen[passage['domain']]:02d}"


def test_titles_are_unique_short_lower_case_ascii() -> None:
    for passage in PASSAGES:
        assert re.fullmatch(r"[a-z0-9]+( [a-z0-9]+){1,4}", passage["title"]), passage["id"]
    assert max(Counter(passage["title"] for passage in PASSAGES).values()) == 1


def test_texts_have_60_to_140_words_of_plain_ascii() -> None:
    for passage in PASSAGES:
        text = passage["text"]
        assert 60 <= len(text.split()) <= 140, passage["id"]
        assert text.isascii(), passage["id"]
        assert text.isprintable(), passage["id"]
        assert "  " not in text, passage["id"]
        assert text[-1] == ".", passage["id"]


def test_no_two_passages_share_an_eight_gram() -> None:
    owner: dict[tuple[str, ...], str] = {}
    for passage in PASSAGES:
        for gram in ngrams(passage["text"], 8):
            assert owner.setdefault(gram, passage["id"]) == passage["id"], (owner[gram], passage["id"], gram)


def test_openings_differ() -> None:
    openings = Counter(" ".join(passage["text"].split()[:3]).lower() for passage in PASSAGES)
    assert max(openings.values()) == 1, openings.most_common(3)
