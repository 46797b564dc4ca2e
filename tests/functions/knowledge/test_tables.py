"""Fact tables: facts anybody can check, conditions worked by hand, and what every table must keep."""

import pytest

from tests.functions.needs import needs_facts
from vesalius.errors import BadInput
from vesalius_functions.knowledge.geography import inventory, tables
from vesalius_functions.knowledge.tables import (
    UNDEFINED,
    WELL_KNOWN,
    Condition,
    Relation,
    Table,
    by_name,
    inverse,
    same,
)

FRUIT = Table(
    "fruit",
    {
        "Apple": {"color": "green", "grams": 150.0},
        "Açaí": {"color": "purple", "grams": 2.0},
        "Plum": {"color": "purple", "grams": 60.0},
        "Pear": {"grams": 160.0},
    },
    {"color": "the color of that fruit", "grams": "its weight"},
    {"color": "the input fruit is {}", "grams": "the input fruit weighs {} grams"},
    "hand",
    {"Pomme": "Apple"},
    {"grams": (100.0,)},
)


def test_a_relation_forgives_case_accents_and_articles() -> None:
    color = Relation(FRUIT, "color")
    assert [color.value(text) for text in ("the apple", " ACAI ", "Pomme", "Pear", "stone")] == [
        "green",
        "purple",
        "green",
        UNDEFINED,
        UNDEFINED,
    ]
    assert Relation(FRUIT, "grams").value("plum") == "60"
    assert color.phrases == ("a fruit", "the color of that fruit")


def test_conditions_by_hand() -> None:
    cases = {
        Condition("is", "purple", "color"): (["Açaí", "Plum"], "the input fruit is purple"),
        Condition("above", 100.0, "grams"): (["Apple", "Pear"], "the input fruit weighs more than 100 grams"),
        Condition("below", 100.0, "grams"): (["Açaí", "Plum"], "the input fruit weighs less than 100 grams"),
        Condition("begins", "a"): (["Apple", "Açaí"], "the input begins with A"),
        Condition("member", "Plum"): (["Plum"], "the input is Plum"),
    }
    for condition, (members, phrase) in cases.items():
        assert condition.members(FRUIT) == members
        assert FRUIT.conditions[condition] == set(members)
        assert condition.phrase(FRUIT) == phrase
        assert Condition.read(condition.data()) == condition
    assert Condition.read({"test": "sounds", "value": 1}) is None
    assert Condition.read("Asia") is None
    assert Relation(FRUIT, "color").value("plum", Condition("is", "purple", "color")) == UNDEFINED


def test_the_way_back_leaves_out_what_two_share() -> None:
    back = inverse(FRUIT, "color", "color", {"grams": "its fruit weighs {}"}, "the fruit")
    assert dict(back.rows) == {"green": {"fruit": "Apple", "grams": 150.0}}


def test_a_first_dot_counts() -> None:
    assert same(".fr", ".FR")
    assert not same(".fr", "fr")
    assert same(' "The Hague." ', "the hague")


@needs_facts
@pytest.mark.parametrize(
    ("relation", "item", "fact"),
    [
        ("country -> capital", "France", "Paris"),
        ("country -> capital", "Kazakhstan", "Astana"),
        ("country -> continent", "Kenya", "Africa"),
        ("country -> currency", "Japan", "Yen"),
        ("country -> currency code", "Switzerland", "CHF"),
        ("country -> language", "Brazil", "Portuguese"),
        ("country -> three-letter code", "the Netherlands", "NLD"),
        ("country -> calling code", "UK", "44"),
        ("country -> domain", "Germany", ".de"),
        ("country -> largest city", "Canada", "Toronto"),
        ("country -> largest neighbour", "Portugal", "Spain"),
        ("country -> nationality", "Denmark", "Danish"),
        ("country -> highest point", "France", "Mont Blanc"),
        ("country -> elevation", "Japan", "3776"),
        ("city -> country", "Lagos", "Nigeria"),
        ("city -> time zone", "Paris", "Europe/Paris"),
        ("city -> hemisphere", "Sydney", "southern"),
        ("city in the United States -> state", "Chicago", "Illinois"),
        ("state of the United States -> capital", "Texas", "Austin"),
        ("capital city -> country", "Oslo", "Norway"),
        ("internet country domain -> country", ".ch", "Switzerland"),
        ("element -> symbol", "gold", "Au"),
        ("element -> number", "Uranium", "92"),
        ("element -> period", "Iron", "4"),
        ("chemical symbol -> element", "W", "Tungsten"),
        ("opera -> composer", "Carmen", "Georges Bizet"),
        ("book -> author", "Moby Dick", "Herman Melville"),
        ("animal -> young", "swan", "cygnet"),
        ("painting -> painter", "Guernica", "Pablo Picasso"),
    ],
)
def test_facts(relation: str, item: str, fact: str) -> None:
    assert by_name(inventory(), relation).value(item) == fact


@needs_facts
def test_every_relation_has_enough_members_and_every_table_keeps_some_for_tests() -> None:
    assert len({relation.name for relation in inventory()}) == len(inventory()) >= 25
    for relation in inventory():
        assert len(relation.values) >= 40
        assert all(value.strip() == value and value and value != UNDEFINED for value in relation.values.values())
    for table in tables():
        assert not table.kept & set(list(table.rows)[:WELL_KNOWN])
        assert 0.1 < len(table.kept) / len(table.rows) < 0.4
        assert len({table.member(member) for member in table.rows}) == len(table.rows), table.kind


@needs_facts
def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(BadInput, match="'country -> anthem' is in no fact table"):
        by_name(inventory(), "country -> anthem")
