import pytest

from remit.errors import PolicyError
from remit.policy.document import MAX_BYTES, MAX_DEPTH, parse
from tests.unit.policy.remits import HEAD, load_text, problems


def data(text):
    return parse(text, "f").data


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "1:30", "1_000", "0b1", ".inf", ".nan", "1e999", "2024-01-01"]
)
def test_a_word_that_older_yaml_took_for_something_else_is_a_string(word):
    assert data(f"a: {word}") == {"a": word}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 17),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ('"12"', "12"),
        ("'true'", "true"),
    ],
)
def test_scalars_are_read_by_the_core_schema_of_yaml_1_2(text, value):
    found = data(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_each_value_and_key_remembers_its_place():
    document = parse("a: 1\nb:\n  - x\n  - {c: d}\n", "f")
    assert document.places[("b", 1, "c")] == (4, 9)
    assert document.keys[("b", 1, "c")] == (4, 6)


def test_columns_count_characters_and_not_bytes():
    assert problems(HEAD + "description: 'ü😀'\nlabels: ['ü', x]\n") == ["4:10:E_VALUE", "4:15:E_VALUE"]


def test_a_byte_order_mark_and_windows_line_ends_are_read():
    assert load_text("\ufeff" + HEAD.replace("\n", "\r\n")).remit.agent == "a"
    assert load_text(("\ufeff" + HEAD).encode()).remit.agent == "a"


def test_a_document_marker_alone_is_no_second_document():
    assert load_text("---\n" + HEAD + "...\n").remit.agent == "a"


def test_json_is_read_too():
    assert load_text('{"apiVersion": "remit/v1", "agent": "a"}').remit.agent == "a"


def test_the_deepest_allowed_nesting_is_read_and_one_more_is_not():
    deep = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert data(f"a: {deep}")
    with pytest.raises(PolicyError) as caught:
        data(f"a: [{deep}]")
    assert caught.value.code == "E_TOO_DEEP"


@pytest.mark.parametrize("bracket", ["[", "{", "- ", "? ", "[{a: "])
def test_a_megabyte_of_brackets_is_refused_at_once(bracket):
    with pytest.raises(PolicyError) as caught:
        data(bracket * (MAX_BYTES // len(bracket)))
    # The parser's own limit may speak first; what counts is that it ends.
    assert caught.value.code in ("E_TOO_DEEP", "E_SYNTAX", "E_KEY")


def test_a_file_above_the_size_limit_is_refused_before_it_is_parsed():
    with pytest.raises(PolicyError) as caught:
        data("a" * (MAX_BYTES + 1))
    assert caught.value.code == "E_TOO_LARGE"


def test_every_duplicate_is_told_at_once_with_the_first_ones_line():
    with pytest.raises(PolicyError) as caught:
        data("a: 1\nb: 2\na: 3\nb: 4\n")
    assert [(p.line, p.message) for p in caught.value.problems] == [
        (3, "the key 'a' stands twice (first in line 1)"),
        (4, "the key 'b' stands twice (first in line 2)"),
    ]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\u202e", "\u2066", "\ufeff", "\x1b", "\x7f"])
def test_a_character_that_shows_a_reviewer_something_else_is_refused_even_in_a_comment(mark):
    assert problems(f"{HEAD}# harmless{mark}process: {{memfd: true}}\n") == ["3:11:E_CONTROL"]
    assert problems(f"{HEAD}# harmless process\n") == []


def test_an_escape_can_not_bring_in_what_the_text_may_not_hold():
    assert problems(HEAD + 'description: "a\\0b"\n') == ["3:14:E_CONTROL"]
    assert problems(HEAD + 'description: "a\\nb\\tc"\n') == []
