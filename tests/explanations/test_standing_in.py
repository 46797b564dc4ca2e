"""Components that do nothing alone, on weights made by hand: a backup, and three heads of which any two suffice."""

from dataclasses import replace

import pytest

import vesalius.api as ves
from tests.explanations.backup_model import write_backup
from tests.explanations.redundant_model import write_redundant
from vesalius.components import Component
from vesalius.explanations.claims import BackupOf, ReadsFrom, Redundant, check
from vesalius.explanations.laboratory import CircuitLab
from vesalius.intervene.silencing import silenced
from vesalius_programs.explain import explain_specimen
from vesalius_programs.standing_in import standing_in

PRIMARY, BACKUP = Component.parse("L0H0"), Component.parse("L1H0")


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    return ves.load(write_backup(tmp_path_factory.mktemp("backup")))


def test_the_model_is_what_its_docstring_says(backup):
    inputs, shifted = [["b", "c", "d", "a"]], [["a", "b", "c", "d"]]
    assert backup.predict(inputs) == shifted

    def without(*parts: Component):
        return replace(backup, model=silenced(backup.model, parts)).predict(inputs)

    assert without(BACKUP) == shifted
    assert without(PRIMARY)[0][1:] == shifted[0][1:]
    both = without(PRIMARY, BACKUP)
    assert len(set(both[0])) == 1
    assert backup.predict(inputs) == shifted  # a copy was silenced


def test_a_backup_is_proposed_and_supported_and_what_acts_is_none(backup):
    lab = CircuitLab(backup, circuit=[PRIMARY, BACKUP], n=256)
    claim = standing_in(lab, BACKUP, [BACKUP])
    assert claim == BackupOf(component="L1H0", of=("L0H0",), replacement="zero")
    assert check(claim, lab).verdict == "supported"
    assert check(BackupOf(component="L0H0", of=("L1H0",), replacement="zero"), lab).verdict == "refuted"
    assert standing_in(CircuitLab(backup, circuit=[BACKUP], n=256), BACKUP, [BACKUP]) is None


def test_no_cut_refutes_what_a_head_with_a_backup_reads(backup):
    lab = CircuitLab(backup, circuit=[PRIMARY, BACKUP], n=256)
    assert check(ReadsFrom(component="L0H0", offset=1), lab).verdict == "undecided"
    assert check(ReadsFrom(component="L0H0", offset=2), lab).verdict == "refuted"


def test_what_a_backup_does_is_told_with_the_condition(backup):
    explanation = explain_specimen(backup, components=["L0H0", "L1H0"])
    _, part = explanation.components
    assert [claim.kind for claim in part.claims if claim.verdict == "supported"] == ["backup_of"]
    assert "L1H0 does nothing alone" in part.note
    assert "With L0H0 zeroed: L1H0 computes the token at the p" in part.note
    assert "L1H0 stands in for L0H0." in explanation.information_flow
    assert explanation.formula == "return token at position position - 1 else 'a'"


@pytest.mark.slow
def test_three_heads_of_which_two_suffice_are_redundant(tmp_path):
    specimen = ves.load(write_redundant(tmp_path, majority=True))
    heads = [Component.parse(f"L0H{head}") for head in range(3)]
    lab = CircuitLab(specimen, n=256)
    claims = [standing_in(lab, head, heads) for head in heads]
    assert all(isinstance(claim, Redundant) for claim in claims)
    explanation = explain_specimen(specimen)
    for part in explanation.components[:3]:
        assert f"zeroed: {part.id} computes the token at the previous position." in part.note
