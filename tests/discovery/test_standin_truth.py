"""What the heads of a stand-in do: the rules on figures worked by hand, and a model whose heads were set by hand."""

from dataclasses import replace

import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.trial import trial
from vesalius_mechrl.standin.truth import INDUCTION, ROLES, _backups, _says, role_attention


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ([(0.6, 0.2, 1.0), (0.5, 0.1, 0.9)], "matters alone"),
        ([(0.6, 0.2, 1.0), (0.4, 0.1, 0.9)], "nothing alone"),  # less than a twentieth by one of both
        ([(0.6, -0.1, 1.0), (0.9, 0.1, 0.9)], "nothing alone"),  # not distinguished from 0 by one of both
        ([(-0.6, -1.0, -0.2), (-0.5, -0.9, -0.1)], "works against"),
        ([(-0.6, -1.0, -0.2), (0.5, 0.1, 0.9)], "nothing alone"),
    ],
)
def test_a_head_matters_by_both_ways_of_replacing_it(figures: list, said: str) -> None:
    assert _says(figures, clean=10.0) == said


def test_a_backup_costs_more_beside_its_partner_than_alone() -> None:
    """Clean score 10. L0H1 alone costs nothing, beside L0H0 it costs 3; L0H2 adds what it costs alone."""
    heads = ("L0H0", "L0H1", "L0H2")
    pairs = [("L0H0", "L0H1"), ("L0H0", "L0H2"), ("L0H1", "L0H2")]
    costs = torch.tensor([2.0, 0.0, 0.3, 5.0, 2.3, 0.3])  # the heads, then the pairs
    matrix = costs + 0.01 * torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
    rows = {head: {"says": says} for head, says in zip(heads, ("matters alone", *["nothing alone"] * 2), strict=True)}
    (backup,) = _backups(heads, pairs, matrix, rows, 10.0)
    assert (backup["head"], backup["of"]) == ("L0H1", "L0H0")
    assert backup["adds"] == pytest.approx(3.0, abs=0.05)
    assert backup["synergy low"] > 2.5


def test_attention_of_a_role_is_found_where_it_was_put() -> None:
    """L1H0 was set by hand to attend to what came after an earlier copy, L0H0 to the token before."""
    specimen = replace(as_specimen(induction_model(word_tokenizer().size)), behaviour="induction")
    drawn = trial(specimen, 4, seed=0)
    assert drawn.prompts is not None
    by_name = {role.name: role for role in ROLES}
    induction = replace(by_name["induction head"], target=next(r for r in drawn.prompts.roles if "B" in r))
    attention = role_attention(specimen, drawn, induction)
    heads = [str(component) for component in specimen.model.components if component.is_head]
    assert heads[int(attention.argmax())] == "L1H0"
    assert {role.task for role in ROLES if role.name.startswith(("induction", "previous"))} == {INDUCTION}
