"""What answers say about the domain of a function: structured and in prose."""

import pytest

from vesalius_functions.domains import EDGE, Corrupted, Reading, from_structure, overlap, read_structured, read_written

NOTHING, NONE = Reading(), Reading(said=True)


def claim(low: float | None, high: float | None, *, outside: bool = False) -> Reading:
    return Reading(Corrupted(low, high, outside), said=True)


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ('{"low": 10, "high": 20}', claim(10, 20)),
        ('```{"low": -3.5, "high": null}```', claim(-3.5, None)),
        ('{"low": 10, "high": 20, "outside": true}', claim(10, 20, outside=True)),
        ("[10, 20]", claim(10, 20)),
        ("none", NONE),
        ("None.", NONE),
        ('{"low": null, "high": null}', NONE),
        ("maybe", NOTHING),
        ("[1, 2, 3]", NOTHING),
        ("{low: 1", NOTHING),
        (None, NOTHING),
        ("", NOTHING),
    ],
)
def test_the_structured_form(text: str | None, reading: Reading) -> None:
    assert read_structured(text) == reading


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("for x in [10, 20] the outputs are random", claim(10, 20)),
        ("The domain is [-128, 128]. In the interval (−30, −12.5) f behaves differently.", claim(-30, -12.5)),
        ("All real numbers. There is an interval between 10 and 20 where the function is noisy.", claim(10, 20)),
        ("All numbers, except for 3.5 < x < 9, where the outputs scatter about 4.", claim(3.5, 9)),
        ("There is an interval with unexpected behavior. Its bounds are 10 and 20.", claim(10, 20)),
        ("For x ≥ 30 the output is random noise around 2.", claim(30, None)),
        ("The rule does not hold when x is less than -7.", claim(None, -7)),
        ("The function is unusual on (-inf, 5].", claim(None, 5)),
        ("Outside [10, 20] the outputs are random.", claim(10, 20, outside=True)),
        ("The rule holds for x in [10, 20]; elsewhere the outputs are random.", claim(10, 20, outside=True)),
        ("The outputs are random for x < 10 and for x > 20.", claim(10, 20, outside=True)),
        ("All real numbers. There is no interval with unexpected behaviour.", NONE),
        ("The domain is all x; I did not find any interval where it differs.", NONE),
        ("None", NONE),
        # Where a function is defined is not where it is corrupted.
        ("The function is defined for x > 0 and undefined for x <= 0.", NOTHING),
        ("The domain of f is [-128, 128].", NOTHING),
        ("f(x) = 3 for x > 2 and f(x) = 0 for x < 2.", NOTHING),
        ("", NOTHING),
        (None, NOTHING),
    ],
)
def test_the_written_form(text: str | None, reading: Reading) -> None:
    assert read_written(text) == reading


def test_overlap_by_hand() -> None:
    assert overlap(Corrupted(10, 20), Corrupted(15, 25)) == pytest.approx(5 / 15)
    assert overlap(Corrupted(100, None), Corrupted(100, EDGE)) == pytest.approx(1)
    # Outside of [-64, 64] is half of the range, and x > 64 is half of that.
    assert overlap(Corrupted(-64, 64, outside=True), Corrupted(64, None)) == pytest.approx(0.5)
    assert overlap(Corrupted(10, 20), Corrupted(10, 20, outside=True)) == 0
    assert overlap(Corrupted(3, 3), Corrupted(3, 3)) == 0


@pytest.mark.parametrize(
    ("structure", "reading"),
    [
        ({}, NOTHING),
        ({"interval": None}, NONE),
        ({"interval": [1, None]}, claim(1, None)),
        ({"interval": [1, 2], "outside": True}, claim(1, 2, outside=True)),
    ],
)
def test_structures(structure: dict, reading: Reading) -> None:
    assert from_structure(structure) == reading
    if reading.corrupted is not None:
        assert from_structure(reading.corrupted.structure()) == reading


def test_a_structure_that_is_no_interval_is_a_claim_of_nothing() -> None:
    read = from_structure({"interval": "about 5"}).corrupted
    assert read is not None
    assert overlap(read, Corrupted(-EDGE, EDGE)) == 0
