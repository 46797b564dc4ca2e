"""Who is wired to whom, where several components hold the same value: exchanges of inputs, on weights made by hand."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vesalius.api as ves
from tests.explanations.redundant_model import write_redundant
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims import DependsOnlyOn, ReadsFrom, check
from vesalius.explanations.claims.wiring import NONE, READ, SEVERAL, Reader, read_alone, reader, wirings
from vesalius.explanations.laboratory import CircuitLab
from vesalius.explanations.laboratory.inputs import PathsInto
from vesalius.rasp import Aggregate, Select, SequenceMap, compile_program, indices, tokens

MLP = "L0_MLP"


def before(name: str):
    """The token before; a program may compute it twice."""
    route = Select(indices, indices, lambda key, query: key == max(0, query - 1) if query else False)
    return Aggregate(route, tokens, name=name)


@pytest.fixture(scope="module", params=[False, True], ids=["two", "majority"])
def lab(request, tmp_path_factory):
    directory = write_redundant(tmp_path_factory.mktemp("redundant"), majority=request.param)
    return CircuitLab(ves.load(directory), n=256)


def claimed(lab: CircuitLab, *variables: str, carriers: bool = True) -> DependsOnlyOn:
    """The MLP depends only on these values, in a program in which every head holds a value of its own."""
    heads = [str(part) for part in lab.model.components if part.is_head]
    values = [before(f"v{place}") for place in range(len(heads))]
    result = values[0]
    for place, value in enumerate(values[1:]):
        result = SequenceMap(lambda first, _: first, result, value, name=f"result{place}")
    program = compile_program(result, lab.vocabulary.tokens, lab.vocabulary.max_len, causal=True, name="before")
    last = program.name_of(result)
    inner = tuple(f"result{place}" for place in range(len(heads) - 1))
    held = {head: (f"v{place}",) for place, head in enumerate(heads)} | {MLP: inner}
    assert last == inner[-1]
    return DependsOnlyOn(
        component=MLP, program=program, variables=variables, carried=inner, carriers=held if carriers else {}
    )


def exchanged(lab: CircuitLab, senders: list[str]) -> torch.Tensor:
    """An independent twin of a path exchange: a hooked run in which the MLP reads other outputs of some heads."""
    model, values = lab.model, []
    for batch in (lab.batch, lab.source):
        _, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
        values.append(cache)
    both = (lab.batch.mask & lab.source.mask)[..., None]
    change = torch.zeros_like(values[0]["hook_embed"])
    for sender in senders:
        head = Component.parse(sender).head
        ours, theirs = (cache["blocks.0.attn.hook_z"][:, :, head] @ model.blocks[0].attn.W_O[head] for cache in values)
        change += (theirs - ours) * both

    with torch.no_grad():
        read = values[0]["blocks.0.hook_resid_mid"] + change
        block = model.blocks[0]
        written = torch.relu(read @ block.mlp.W_in + block.mlp.b_in) @ block.mlp.W_out + block.mlp.b_out
        logits = model.run_with_hooks(
            lab.batch.tokens,
            mask=lab.batch.mask,
            fwd_hooks=[("blocks.0.hook_mlp_out", lambda _, hook: written)],
        )
    return logits[:, 1:].argmax(-1).float()


def test_no_cut_refutes_what_a_head_reads_where_another_one_stands_in(lab):
    """Silenced, a head of `two` is not missed; given other values it is. One of `majority` shows in neither way."""
    verdicts = {offset: check(ReadsFrom(component="L0H0", offset=offset), lab) for offset in (0, 1, 2)}
    is_majority = len([part for part in lab.model.components if part.is_head]) == 3
    assert [verdicts[offset].verdict for offset in (0, 2)] == ["refuted", "refuted"]
    assert verdicts[1].verdict == ("refuted" if is_majority else "undecided")
    if not is_majority:
        effects = {one.experiment: one.value for one in verdicts[1].evidence}
        assert effects["all keys cut out of the attention"] == 0
        assert effects["resample replacement"] > 0.1


def test_a_path_exchange_is_that_of_a_hooked_run(lab):
    for senders in (["L0H1"], ["L0H0", "L0H1"]):
        answers = exchanged(lab, senders)
        changed = (~lab.same(answers, lab.clean) & lab.real).any(1)
        assert torch.equal(changed, PathsInto(lab, Component.parse(MLP)).changed(senders))


def test_swaps_of_equal_values_cannot_tell_which_head_is_read(lab):
    record = check(claimed(lab, "v0", carriers=False), lab)
    assert record.verdict == "supported"
    assert record.evidence[0].value == 1.0


def test_a_claim_that_leaves_out_a_head_that_is_read_is_refuted(lab):
    """One head alone is read by neither model: two are read together, or any two of three."""
    record = check(claimed(lab, "v0"), lab)
    together = record.evidence[-1]
    assert record.verdict == "refuted"
    assert together.value < 0.5
    if len(lab.model.components) == 3:
        assert together.controls["L0H1 and what it is made from"] < 0.5
        assert "tokens alone" in together.controls
        together_only = [name for name in together.controls if name.startswith("L0H1 ")]
        assert together_only == ["L0H1 and what it is made from"], "the token is varied with what is computed from it"


def test_wirings_are_all_listed_and_one_of_several_is_not_called_the_wiring(lab):
    claim = claimed(lab, "v0", "v1")
    found = {one.senders for one in wirings(lab, claim.part, claim.program, claim.carriers)}
    record = check(claim, lab)
    if len(lab.model.components) == 3:
        assert found == {("L0H0", "L0H1")}
        assert record.verdict == "supported"
    else:
        assert found == {("L0H0", "L0H1"), ("L0H0", "L0H2"), ("L0H1", "L0H2")}
        assert (record.verdict, record.evidence[-1].outcome) == ("undecided", SEVERAL)
        assert "L0H1 and L0H2" in record.evidence[-1].experiment


def test_strengths_say_what_breaks_if_a_sender_is_varied_too(lab):
    claim = claimed(lab, "v0", "v1")
    known = reader(lab, claim.part, claim.program, claim.carriers)
    for wiring in known.wirings():
        assert all(strength > 0.5 for strength in wiring.strengths.values())
        assert known.share(wiring.senders) == 0.0


def test_a_claim_without_power_is_undecided_not_refuted(lab):
    """Where no swap changes an answer, the model shows nothing of the component, and nothing against the claim."""
    silent = CircuitLab(lab.specimen, n=64)
    silent.interchange = lambda component, reads, *, rows=None: silent.clean if rows is None else silent.clean[rows]
    assert check(claimed(silent, "v0", carriers=False), silent).verdict == "undecided"


def test_what_a_variable_is_held_by(lab):
    known = reader(lab, Component.parse(MLP), claimed(lab, "v0").program, claimed(lab, "v0").carriers)
    assert known.holding(("v1",)) == ("L0H1",)
    assert known.holding(("tokens", "indices")) == ("tokens",)
    assert known.holding(("result0",)) is None  # its own


def test_whether_more_change_is_known_from_as_many_as_decide_it(lab):
    """At shares below, at and above the one of all pairs that changes."""
    whole = PathsInto(lab, Component.parse(MLP))
    for senders in (["L0H0"], ["tokens", "L0H1"], list(whole.senders)):
        changed = whole.changed(senders)
        n = int(changed.sum())
        for most in {0, n - 1, n, n + 1, len(changed)} - {-1}:
            some = PathsInto(lab, Component.parse(MLP))
            assert some.changes_more(most / len(changed), senders) == (n > most)
            assert torch.equal(some.changed(senders), changed)


class Invented(Reader):
    """A receiver that is unchanged exactly where the held senders satisfy a condition."""

    senders = ()  # type: ignore[assignment]

    def __init__(self, senders: str, fits: Callable[[set[str]], bool], held: str) -> None:
        self.senders, self.known, self.said = tuple(senders), fits, tuple(held)  # type: ignore[misc]
        self.receiver, self.carriers, self.program = None, {}, "invented"  # type: ignore[assignment]
        self.lab: Any = SimpleNamespace(outcomes={self.program: {("reader", None, ()): self}}, seed=0)

    def changed(self, exchanged: Collection[str], *, freely: bool = False) -> torch.Tensor:
        return torch.full((512,), not self.known(set(self.senders) - set(exchanged)))

    def breaks(self, exchanged: Collection[str], *, freely: bool) -> bool:
        return float(self.changed(exchanged, freely=freely).float().mean()) > READ

    def holding(self, variables: Any) -> tuple[str, ...]:
        return self.said

    def read_alone(self, level: float = 0.99) -> Any:
        return read_alone(self.lab, None, self.program, {}, ("v",), level=level)  # type: ignore[arg-type]


def test_a_smaller_set_beside_the_held_one_leaves_the_claim_undecided() -> None:
    """C alone fits, as A and B together do: the smallest set is listed, and it is not the held one."""
    either = Invented("ABC", lambda held: "C" in held or {"A", "B"} <= held, "AB")
    assert [one.senders for one in either.wirings()] == [("C",)]
    either.changed = lambda exchanged, *, freely=False: torch.full(  # type: ignore[method-assign]
        (512,), (freely and set(exchanged) == {"A", "B"}) or not either.known(set("ABC") - set(exchanged))
    )
    verdict, evidence = either.read_alone()
    assert (verdict, evidence[-1].outcome) == ("undecided", SEVERAL)
    assert evidence[-1].experiment.endswith("these fit as well: C")


def test_a_smaller_set_within_the_held_one_does_not_speak_against_it() -> None:
    verdict, evidence = Invented("ABC", lambda held: "A" in held, "AB").read_alone()
    assert (verdict, evidence[-1].outcome) == ("supported", None)


def test_where_no_tried_set_fits_there_is_no_wiring() -> None:
    """Of any four of six, none breaks anything by itself: the set of those that do is empty, and does not fit."""
    four = Invented("ABCDEF", lambda held: len(held) >= 4, "ABCD")
    assert not four.fits(())
    assert four.wirings() == ()
    verdict, evidence = four.read_alone()
    assert (verdict, evidence[-1].outcome) == ("undecided", NONE)
    needed = Invented("ABCDEF", lambda held: set("ABCD") <= held, "ABCD")
    assert [one.senders for one in needed.wirings()] == [tuple("ABCD")]
    assert needed.read_alone()[0] == "supported"


def test_the_worst_of_many_experiments_refutes_at_a_stricter_level() -> None:
    """One sender of twenty changes 5.3% of 512 inputs; two experiments would refute, twenty-one do not."""

    def few(senders: str) -> Invented:
        made = Invented(senders, lambda held: True, senders[0])
        changes = torch.arange(512) < 27
        made.changed = lambda exchanged, *, freely=False: changes & (senders[-1] in exchanged)  # type: ignore[method-assign]
        return made

    assert READ < 27 / 512
    assert few("AB").read_alone()[0] == "refuted"
    assert few("ABCDEFGHIJKLMNOPQRSTU").read_alone(level=0.99)[0] == "undecided"


def test_a_variable_that_the_program_lacks_is_refused(lab):
    claim = claimed(lab, "v0")
    known = Reader(lab, Component.parse(MLP), claim.program, {"L0H0": ("nope",)})
    with pytest.raises(BadInput, match="'nope' is not in program 'before'; it has "):
        known.with_sources("L0H0", ["tokens", "L0H0"])
