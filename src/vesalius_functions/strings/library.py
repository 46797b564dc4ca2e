"""All operations by name, with their parameters and groups, in two editions: `fixed` and `published`.

The published edition has 67 operations. The fixed one has 64: the two random ones are gone, because nothing
deterministic can be said of them, and so is `count_substring`, which for one letter is `count_character_repetitions`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

from vesalius.errors import BadInput, choices
from vesalius_functions.answer import Mode
from vesalius_functions.strings import faulty, operations
from vesalius_functions.strings.parameters import (
    ALPHABET,
    DIGIT,
    INDEXES,
    LETTER,
    NOTHING,
    REAL_SHIFT,
    REPLACEMENT,
    SHIFT,
    SUFFIX,
    Kind,
    Parameters,
)

RANDOM = ("add_order_to_inx", "sub_order_to_inx")
#: In the published edition only.
PUBLISHED_ONLY = (*RANDOM, "count_substring")
#: Faulty in the published code, but hardly in the published pairs: of the ten functions in the half of the second
#: generation at hand that count consonants, seven agree with no program that has the fault, three with one that also
#: changes to upper case, and eight with a right count.
RIGHT_IN_THE_DATA = ("count_consonants",)

GROUPS = {
    "case": "convert_to_lowercase convert_to_uppercase capitalize_string capitalize_alternating_letters",
    "order": """reverse_string reverse_string_first_half reverse_string_last_half reverse_words reverse_vowels
        swap_first_last swap_rand""",
    "removal": """remove_digits extract_uppers remove_whitespace remove_duplicates remove_substring split_string
        string_strip string_lstrip string_rstrip get_first_character get_last_character get_mid_character""",
    "words": """extract_digits get_string_length get_digit_indexes get_alpha_indexes count_vowels count_consonants
        count_uppercase count_lowercase count_character_repetitions count_substring find_string
        get_first_character_ordinality get_last_character_ordinality get_mid_character_ordinality""",
    "replacement": """replace_substring replace_vowels_with_character replace_vowels_with_first
        replace_vowels_with_last replace_vowels_with_mid replace_vowels_with_ind_of_count map_string""",
    "addition": """string_concatenate add_letter_if_needed insert_letter insert_number duplicate_first_letter
        duplicate_last_letter duplicate_mid_letter""",
    "shift": """add_number_to_string subtract_number_to_string add_len_to_string add_len_to_middle
        add_number_to_middle subtract_middle_character advance_by_character_order substract_by_character_order
        add_order_of_inx1_to_inx2 sub_order_of_inx1_to_inx2 shift_first_letter_rand shift_last_letter_rand
        shift_first_letter_predecessor_rand shift_last_letter_predecessor_rand add_order_to_inx sub_order_to_inx""",
}
KINDS: dict[str, tuple[Kind, str]] = {
    "digits": (
        DIGIT,
        """add_number_to_string subtract_number_to_string insert_number add_number_to_middle
        subtract_middle_character advance_by_character_order substract_by_character_order""",
    ),
    "letters": (
        LETTER,
        """add_letter_if_needed insert_letter count_character_repetitions count_substring split_string find_string
        remove_substring replace_vowels_with_character""",
    ),
    "indexes": (INDEXES, "swap_rand add_order_of_inx1_to_inx2 sub_order_of_inx1_to_inx2"),
    "shifts": (
        SHIFT,
        """shift_first_letter_rand shift_last_letter_rand shift_first_letter_predecessor_rand
        shift_last_letter_predecessor_rand""",
    ),
    "suffixes": (SUFFIX, "string_concatenate"),
    "replacements": (REPLACEMENT, "replace_substring"),
    "alphabets": (ALPHABET, "map_string"),
}


@dataclass(frozen=True)
class Operation:
    """One operation: its function takes the string and then the parameters."""

    name: str
    apply: Callable[..., str]
    kind: Kind
    group: str

    @property
    def random(self) -> bool:
        """Whether it draws an index at every call; its function then takes the draw as its parameter."""
        return self.name in RANDOM

    def says(self, parameters: Parameters) -> str:
        """What it does, in words."""
        words = inspect.getdoc(self.apply) or self.name
        for name, value in zip(self.parameter_names, parameters, strict=False):
            words = words.replace(f"`{name}`", repr(value))
        return words

    @property
    def parameter_names(self) -> list[str]:
        """The names of its parameters, after the string."""
        return list(inspect.signature(self.apply).parameters)[1:]


@cache
def library(mode: Mode) -> dict[str, Operation]:
    """The operations of an edition by name, in a fixed order."""
    kind_of = {name: kind for kind, names in KINDS.values() for name in names.split()}
    available = [
        Operation(name, _function(name, mode), kind_of.get(name, NOTHING), group)
        for group, names in GROUPS.items()
        for name in names.split()
        if mode == "published" or name not in PUBLISHED_ONLY
    ]
    if mode == "fixed":
        available = [replace(op, kind=REAL_SHIFT) if op.kind is SHIFT else op for op in available]
    return {operation.name: operation for operation in available}


def operation(name: str, mode: Mode) -> Operation:
    """The operation of that name."""
    if name not in library(mode):
        raise BadInput(
            f"operation {name!r} does not exist in the {mode} library; choose one of {choices(library(mode))}"
        )
    return library(mode)[name]


def _function(name: str, mode: Mode) -> Callable[..., str]:
    modules: list[ModuleType] = [faulty, operations] if mode == "published" else [operations]
    return next(getattr(module, name) for module in modules if hasattr(module, name))
