"""A claim decided again: the explanation's own seed repeats its record, another draws other inputs, and refusals."""

from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import assert_same_document
from tests.explanations.induction_model import as_specimen, induction_model
from tests.report.explanations import frac_prevs
from vesalius.documents import ClaimRecord, Explanation, Retest
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


@pytest.fixture(scope="module")
def explained(specimen: Specimen) -> Explanation:
    return ves.explain(specimen, seed=1)


def decided(record: ClaimRecord) -> list[Any]:
    """The evidence of the engine; the search adds lines of its own."""
    return [one.as_data() for one in record.evidence if not one.experiment.startswith("fingerprints")]


def test_the_same_seed_repeats_every_record(specimen: Specimen, explained: Explanation) -> None:
    for part in explained.components:
        for number, record in enumerate(part.claims, 1):
            again = ves.retest(explained, part.id, number, seed=1, specimen=specimen)
            assert (again.same, again.before, again.before_seed) == (True, record, 1)
            assert_same_document(decided(again.after), decided(record))


def test_another_seed_draws_other_inputs_by_the_same_rule(specimen: Specimen, explained: Explanation) -> None:
    again = ves.retest(explained, "L1H2", "necessary", seed=5, specimen=specimen)
    seeds = {one.seed for one in again.before.evidence} | {one.seed for one in again.after.evidence}
    assert len(seeds) == 2
    assert [one.experiment for one in again.after.evidence] == [one.experiment for one in again.before.evidence]
    assert again.after.verdict == "supported"
    assert (again.after.kind, again.after.tried) == (again.before.kind, again.before.tried)


def test_a_false_claim_stays_refuted_on_another_seed(specimen: Specimen, explained: Explanation) -> None:
    """L0H0 is outside the circuit: that it is necessary was never claimed, and does not hold."""
    false = ClaimRecord(kind="necessary", text="L0H0 is necessary.", verdict="supported", evidence=())
    part = explained.components[0].model_copy(update={"id": "L0H0", "claims": (false,)})
    planted = explained.model_copy(update={"components": (part, *explained.components)})
    again = ves.retest(planted, "L0H0", seed=3, specimen=specimen)
    assert (again.same, again.after.verdict == "supported") == (False, False)


def test_files_are_read_and_the_result_is_written(explained: Explanation, tmp_path: Path) -> None:
    explained.save(tmp_path / "explained")
    first = ves.retest(tmp_path / "explained", "L0_MLP", "necessary", seed=2, out=tmp_path / "again")
    read = Retest.read(tmp_path / "again" / "retest.json")
    assert read.request.command_line() == (
        f"vesalius retest {tmp_path / 'explained'} --component L0_MLP --claim {first.claim} --seed 2"
    )
    assert_same_document(ves.rerun(read).as_data(), read.as_data(), leave_out=("seconds",))


def test_claims_about_programs_need_the_program_that_was_claimed(specimen: Specimen, explained: Explanation) -> None:
    assert explained.executable is not None
    carriers = dict.fromkeys(explained.executable.carriers, ())
    other = explained.executable.model_copy(update={"carriers": carriers})
    with pytest.raises(ves.BadInput, match="another program"):
        ves.retest(explained.model_copy(update={"executable": other}), "L0_MLP", "computes", specimen=specimen)
    with pytest.raises(ves.BadInput, match="another program"):
        ves.retest(explained.model_copy(update={"executable": None}), "L0_MLP", "computes", specimen=specimen)


def test_records_of_earlier_versions_are_decided_where_nothing_is_missing(
    specimen: Specimen, explained: Explanation
) -> None:
    part = explained.components[0]
    bare = part.model_copy(update={"claims": tuple(one.model_copy(update={"prediction": None}) for one in part.claims)})
    old = explained.model_copy(update={"components": (bare, *explained.components[1:])})
    for kind in ("computes", "necessary"):
        assert ves.retest(old, bare.id, kind, seed=1, specimen=specimen).same
    with pytest.raises(ves.BadInput, match="saved without its prediction"):
        ves.retest(old, bare.id, "depends_only_on", specimen=specimen)


@pytest.mark.parametrize(
    ("component", "claim", "message"),
    [
        ("L9H9", 1, "'L9H9': is not explained here"),
        ("L0_MLP", 99, "claim 99: there are 2 claims"),
        ("L0_MLP", 0, "claim 0"),
        ("L0_MLP", "banana", "none of this kind about L0_MLP; there are computes"),
        ("L1H2", "backup of", "saved without its prediction"),
    ],
)
def test_refusals(component: str, claim: int | str, message: str, specimen: Specimen) -> None:
    with pytest.raises(ves.BadInput, match=message):
        ves.retest(frac_prevs(), component, claim, specimen=specimen)


def test_claims_about_a_natural_model_are_repeated() -> None:
    natural = as_specimen(induction_model(word_tokenizer().size))
    explained = ves.explain(natural, ["L0H0", "L1H0"], n=8)
    typed = {
        record.kind: (part.id, number, record)
        for part in explained.components
        for number, record in enumerate(part.claims, 1)
        if record.prediction is not None
    }
    assert set(typed) >= {"necessary", "reads_from", "moves_role"}
    for component, number, record in typed.values():
        again = ves.retest(explained, component, number, seed=0, specimen=natural)
        assert_same_document(decided(again.after), decided(record))
        assert again.same
    attends = next(number for number, one in enumerate(explained.components[0].claims, 1) if one.kind == "attends")
    with pytest.raises(ves.BadInput, match="saved without its prediction"):
        ves.retest(explained, explained.components[0].id, attends, specimen=natural)


def test_what_is_no_explanation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ves.BadInput, match="int is none"):
        ves.retest(5, "L0_MLP")  # type: ignore[arg-type]
    with pytest.raises(ves.BadInput, match="nowhere"):
        ves.retest(tmp_path / "nowhere", "L0_MLP")
