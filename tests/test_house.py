"""What `scripts/count_house.py` counts, and the limits that it shows to be kept."""

import ast

from scripts.count_house import SOURCE, functions, room

#: No function has more; options of a method or a scientist beside a verb's own (`**options`) are not counted.
MOST_PARAMETERS = 10
#: How often the core says `Any`: where JSON enters, where foreign modules are wrapped, and in tables and widgets.
MOST_ANY = 390


def test_parameters_are_counted_without_the_object() -> None:
    tree = ast.parse("class A:\n    def b(self, x, /, y, *more, z=1, **options): ...\ndef c(): ...")
    assert sorted(functions(tree)) == [(0, "c"), (3, "b")]


def test_no_function_has_more_than_ten_parameters() -> None:
    wide = [
        f"{path.relative_to(SOURCE)}: {name} has {n}"
        for path in sorted(SOURCE.glob("vesalius*/**/*.py"))
        for n, name in functions(ast.parse(path.read_text(encoding="utf-8")))
        if n > MOST_PARAMETERS
    ]
    assert wide == []


def test_the_core_says_any_only_so_often() -> None:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted((SOURCE / "vesalius").rglob("*.py")))
    names = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"]
    assert 0 < len(names) <= MOST_ANY, f"{len(names)}: give what is only passed on the type `object`"


def test_a_file_belongs_to_its_floor_or_its_package() -> None:
    assert room(SOURCE / "vesalius" / "model" / "families" / "llama.py") == "model"
    assert room(SOURCE / "vesalius" / "options" / "records.py") == "ground"
    assert room(SOURCE / "vesalius_bench" / "mib" / "documents.py") == "vesalius_bench"
