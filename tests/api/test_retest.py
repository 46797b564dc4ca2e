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
from vesalius.documents.base import FrozenDict
from vesalius.explanations.retesting import why_not_again
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


@pytest.fixture(scope="module")
def natural() -> tuple[Specimen, Explanation]:
    """An induction head, one that covers for it a little and one that works against both."""
    strengths = {0: 2.0, 1: 0.2, 2: -0.5}
    specimen = as_specimen(induction_model(word_tokenizer().size, strengths=strengths, norm="rms"))
    return specimen, ves.explain(specimen, ["L0H0", "L1H0", "L1H1", "L1H2", "L1H3"], n=8, no_ladder=True)


def first_of_each_kind(explained: Explanation) -> dict[str, tuple[str, int, ClaimRecord]]:
    found: dict[str, tuple[str, int, ClaimRecord]] = {}
    for part in explained.components:
        for number, record in enumerate(part.claims, 1):
            found.setdefault(record.kind, (part.id, number, record))
    return found


MEASURED = {"attends", "uses", "composes", "feeds", "hinders", "inhibits", "writes_answer"}


def test_claims_about_a_natural_model_are_repeated(natural: tuple[Specimen, Explanation]) -> None:
    """Every kind that the built-in scientist wrote: the same seed repeats the record, another has other prompts."""
    specimen, explained = natural
    claims = first_of_each_kind(explained)
    assert set(claims) >= MEASURED | {"acts_at_answer", "acts_directly", "necessary", "moves_role"}
    for kind, (component, number, record) in claims.items():
        assert why_not_again(explained, component, record) is None
        again = ves.retest(explained, component, number, seed=0, specimen=specimen)
        assert_same_document(again.after.as_data(), record.as_data())
        if kind in MEASURED:
            other = ves.retest(explained, component, number, seed=3, specimen=specimen).after
            assert (other.kind, other.text, other.prediction) == (kind, record.text, record.prediction)
            assert {one.seed for one in other.evidence}.isdisjoint({one.seed for one in record.evidence})


def test_that_a_component_is_not_needed_is_decided_again(natural: tuple[Specimen, Explanation]) -> None:
    """The MLP writes next to nothing, which too few prompts show of right answers; without the head before it nothing
    is left of the behaviour.
    """
    for component, verdict in (("L1_MLP", "undecided"), ("L0H0", "refuted")):
        assert planted(natural, component, "not_needed_alone", {"replacement": "zero"}).after.verdict == verdict


def planted(natural: tuple[Specimen, Explanation], component: str, kind: str, said: Any) -> Retest:
    """A claim that nobody made, decided on other prompts."""
    specimen, explained = natural
    claim = ClaimRecord(kind=kind, text="", verdict="untested", evidence=(), prediction=FrozenDict(said))
    part = explained.components[0].model_copy(update={"id": component, "claims": (claim,)})
    others = tuple(one for one in explained.components if one.id != component)
    return ves.retest(
        explained.model_copy(update={"components": (part, *others)}), component, seed=2, specimen=specimen
    )


def test_a_claim_that_is_false_is_refuted_again(natural: tuple[Specimen, Explanation]) -> None:
    """L1H0 attends to what follows earlier copies, not to the previous token."""
    assert planted(natural, "L1H0", "attends", {"role": "induction"}).after.verdict == "supported"
    assert planted(natural, "L1H0", "attends", {"role": "previous"}).after.verdict == "refuted"


@pytest.mark.parametrize(
    ("kind", "said", "message"),
    [
        ("attends", {"role": "banana"}, "'banana': is none of this behaviour's"),
        ("composes", {"role": "induction", "port": "v", "sender": "L0H0"}, "cannot be read"),
        ("composes", {"role": "induction", "port": "k", "sender": "L9H9"}, "L9H9 is not in this model"),
        ("feeds", {"receiver": "L0H0"}, "name a later receiver"),
        ("redundant", {"others": []}, "name one or more other components"),
        ("not_needed_alone", {"replacement": "rm"}, "cannot be read"),
        ("computes", {}, "about a circuit of a finite vocabulary"),
        ("uses", {"role": 5}, "cannot be read"),
        ("uses", {"measured": {"role": "induction"}}, "cannot be read"),
    ],
)
def test_claims_that_cannot_be_read_get_one_line(
    kind: str, said: Any, message: str, natural: tuple[Specimen, Explanation]
) -> None:
    with pytest.raises(ves.BadInput, match=message):
        planted(natural, "L1H0", kind, said)


def test_records_without_a_prediction_say_why(natural: tuple[Specimen, Explanation]) -> None:
    specimen, explained = natural
    part = explained.components[0]
    bare = part.claims[0].model_copy(update={"prediction": None})
    for scientist, line in (("builtin", "explain again with this version"), ("hyve", "rests on code")):
        old = explained.model_copy(
            update={"scientist": scientist, "components": (part.model_copy(update={"claims": (bare,)}),)}
        )
        assert line in (why_not_again(old, part.id, bare) or "")
        with pytest.raises(ves.BadInput, match=line):
            ves.retest(old, part.id, specimen=specimen)


def test_what_is_no_explanation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ves.BadInput, match="int is none"):
        ves.retest(5, "L0_MLP")  # type: ignore[arg-type]
    with pytest.raises(ves.BadInput, match="nowhere"):
        ves.retest(tmp_path / "nowhere", "L0_MLP")
