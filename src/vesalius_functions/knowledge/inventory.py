"""All relations that the fact tables cover."""

from functools import lru_cache

from vesalius_functions.knowledge import geography
from vesalius_functions.knowledge.tables import Relation, Table, inverse, read_table

OPERAS = {
    "relations": {"composer": "the composer of that opera", "language": "the language of that opera"},
    "phrases": {
        "language": "the input opera is in {}",
        "composer": "the input opera is by {}",
        "year": "the input opera is from a year {}",
    },
    "bounds": {"year": (1800, 1850, 1900)},
}
BOOKS = {
    "relations": {
        "author": "the author of that book",
        "language": "the language in which that book was written",
    },
    "phrases": {
        "language": "the input book was written in {}",
        "author": "the input book is by {}",
        "year": "the input book is from a year {}",
    },
    "bounds": {"year": (1850, 1900, 1930)},
}
ANIMALS = {
    "relations": {
        "class": "the class of that animal, such as bird",
        "young": "the word for the young of that animal",
    },
    "phrases": {"class": "the input animal is of the class {}"},
}
PAINTINGS = {
    "relations": {"painter": "the painter of that painting"},
    "phrases": {
        "painter": "the input painting is by {}",
        "born": "the painter of the input painting was born in a year {}",
    },
    "bounds": {"born": (1600, 1800, 1850)},
}
ELEMENTS = {
    "relations": {
        "symbol": "the chemical symbol of that element",
        "number": "the atomic number of that element",
        "period": "the period of that element in the periodic table",
        "family": "the family of that element, such as halogen",
    },
    "phrases": {
        "family": "the input element is of the family {}",
        "period": "the input element is in period {}",
        "number": "the atomic number of the input element is {}",
    },
    "bounds": {"number": (20, 50, 90)},
}


@lru_cache(maxsize=1)
def tables() -> tuple[Table, ...]:
    """Every table, the kinds with many members first."""
    elements = read_table("elements", **ELEMENTS)
    symbols = inverse(
        elements, "symbol", "chemical symbol", {"period": "the element of the input is in period {}"}, "that element"
    )
    return (
        geography.countries(),
        geography.cities(),
        geography.american_cities(),
        geography.states(),
        *geography.inverses(),
        elements,
        symbols,
        read_table("operas", **OPERAS),
        read_table("books", **BOOKS),
        read_table("animals", **ANIMALS),
        read_table("paintings", **PAINTINGS),
    )


@lru_cache(maxsize=1)
def inventory() -> tuple[Relation, ...]:
    """Every relation of every table."""
    return tuple(Relation(table, attribute) for table in tables() for attribute in table.relations)
