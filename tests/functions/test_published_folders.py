"""Where the folder of a category is found, and what is said where it is not."""

from pathlib import Path

import pytest

from vesalius.errors import BadInput
from vesalius_functions.published import Unusable, folder_of, name_in, read_records


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset with all four folders inside what a download was unpacked into."""
    dataset = tmp_path / "download" / "find-dataset"
    for name in ("numeric", "strings", "neurons_entities", "neurons_relations"):
        (dataset / name / "f00000").mkdir(parents=True)
        (dataset / name / "data.json").write_text("[]")
    return dataset


@pytest.mark.parametrize(
    "given",
    [".", "numeric", "numeric/f00000", "neurons_entities", "..", "../..", "../find-dataset/strings"],
)
def test_the_folder_is_found_from_wherever_one_points(dataset: Path, given: str) -> None:
    assert folder_of(dataset / given, "numeric", holding=["data.json"]) == dataset / "numeric"


def test_a_folder_of_any_name_may_hold_the_files(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("[]")
    assert folder_of(tmp_path, "numeric", holding=["other.json", "data.json"]) == tmp_path


def test_a_folder_of_another_category_is_never_taken(tmp_path: Path) -> None:
    (tmp_path / "neurons_entities").mkdir()
    (tmp_path / "neurons_entities" / "data.json").write_text("[]")
    for given in (tmp_path, tmp_path / "neurons_entities"):
        with pytest.raises(BadInput, match=r"there is no numeric/data\.json in it; give the folder"):
            folder_of(given, "numeric", holding=["data.json"])


def test_where_there_are_several_one_must_be_chosen(dataset: Path) -> None:
    again = dataset.with_name("again") / "numeric"
    again.mkdir(parents=True)
    (again / "data.json").write_text("[]")
    with pytest.raises(BadInput, match=r"download: holds several, .*again/numeric, .*find-dataset/numeric; give one"):
        folder_of(dataset.parent, "numeric", holding=["data.json"])
    assert folder_of(dataset, "numeric", holding=["data.json"]) == dataset / "numeric"


def test_archives_and_files_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "find.zip"
    archive.write_bytes(b"PK")
    with pytest.raises(BadInput, match=r"find\.zip: is a file; unpack it and give the folder"):
        folder_of(archive, "numeric", holding=["data.json"])
    with pytest.raises(BadInput, match=r"unpack find\.zip first"):
        folder_of(tmp_path, "numeric", holding=["data.json"])
    with pytest.raises(BadInput, match="no such directory"):
        folder_of(tmp_path / "nowhere", "numeric", holding=["data.json"])


@pytest.mark.parametrize(
    "place", ["f00003", "f00003/", "/data/x/f00003", "/data/x/f00003/", "D:\\x\\f00003", " f00003 "]
)
def test_names_of_any_machine(place: str) -> None:
    assert name_in(place) == "f00003"


@pytest.mark.parametrize("place", ["", "/", "..", None, 3])
def test_names_that_name_nothing(place: object) -> None:
    with pytest.raises(Unusable):
        name_in(place)


def test_a_file_that_is_no_list_of_records(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    wrong = {
        "[" * 100_000: "not readable as JSON",
        "{}": "not a dict",
        "[]": "is empty",
        "\xff": "not readable as JSON",
    }
    for content, said in wrong.items():
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(BadInput, match=said):
            read_records(path)
