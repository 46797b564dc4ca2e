"""The atlas: heads set by hand, a slow twin with plain hooks, and properties of its figures and names."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vesalius as ves
from tests.behaviours.word_tokenizer import byte_tokenizer, word_tokenizer
from tests.explanations.induction_model import ANSWER, WIDTH, as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.behaviours import builtin as words
from vesalius.behaviours.natural import with_behaviour
from vesalius.components import Component
from vesalius.discovery.head_tests import NO_NAME, RULES, explained_by_position, names_of, repeated_tokens
from vesalius.documents.atlas import Atlas
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.documents.request import Request
from vesalius.explanations.atlas import atlas_of, standard_names
from vesalius.explanations.atlas.text import PASSAGES, class_of, passages
from vesalius.explanations.claims import Attends, check
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.explain import StudyPart, study_part
from vesalius.explanations.natural.selection import ChosenComponents, add_hypotheses
from vesalius.model import Transformer
from vesalius.model.hooks import Tap
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer
from vesalius.progress import silent


@pytest.fixture(scope="module")
def by_hand() -> Atlas:
    """L0H0 copies from the previous token; L1H0 does induction, and L1H1 the same against the token that it reads."""
    return ves.atlas(as_specimen(induction_model(word_tokenizer().size, strengths={0: 1.0, 1: -1.0})), progress=False)


def text_specimen(**changes: Any) -> Specimen:
    """A random model of two layers, grouped-query and rotary, that reads bytes."""
    size = byte_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=70, **changes))
    vocabulary = TextVocabulary(byte_tokenizer(), 70)
    return replace(as_specimen(model), vocabulary=vocabulary, draw=lambda n, seed: ["a"] * n)


@pytest.mark.parametrize("norm", ["none", "rms"])
def test_heads_set_by_hand_have_their_names(norm: str) -> None:
    model = induction_model(word_tokenizer().size, strengths={0: 1.0, 1: -1.0}, norm=norm)
    heads = {head.id: head for head in ves.atlas(as_specimen(model), progress=False).heads}
    assert heads["L0H0"].name == "previous-token head"
    assert heads["L0H0"].previous > 0.98
    assert heads["L1H0"].name == "induction head"
    assert heads["L1H1"].name == "copy-suppression head"
    for name, sign in (("L1H0", 1), ("L1H1", -1)):
        head = heads[name]
        assert head.induction > 0.95
        # The token that it reads is the one that it moves most: of all tokens none is raised (or lowered) more.
        assert head.copying is not None
        assert head.copying_in_run is not None
        assert sign * head.copying > 4
        assert sign * head.copying_in_run > 4
        assert head.copying_rank == pytest.approx(0.0 if sign > 0 else 1.0, abs=0.01)
    # What L0H0 writes is read by no token's logit.
    assert abs(heads["L0H0"].copying or 0.0) < 1e-3
    assert {head.name for name, head in heads.items() if name[3] in "23"} <= {NO_NAME, "positional head"}


def test_every_head_has_the_word_of_where_it_looks(by_hand: Atlas) -> None:
    """The induction heads follow tokens; the previous-token head needs none, and the others attend evenly."""
    looks = {head.id: head.looks for head in by_hand.heads}
    for head in ("L1H0", "L1H1"):
        assert looks[head].startswith("program: ")
        assert "after earlier copy" in looks[head]
    assert {where for head, where in looks.items() if head not in ("L1H0", "L1H1")} == {"position only"}
    assert by_hand.head("L0H0").attention.program == "1 back 1.00"  # type: ignore[union-attr]
    assert by_hand.words == {"program": 2, "position only": 6, "depends on context": 0}
    assert "2 program (25%), 6 position only (75%)" in str(by_hand)


def test_a_head_that_reads_the_previous_token_is_no_induction_head_where_copies_follow_each_other() -> None:
    """The probe's tokens do not repeat at once, so the previous token is never the one after an earlier copy."""
    heads = ves.atlas(as_specimen(induction_model(word_tokenizer().size)), progress=False).heads
    assert next(head.induction for head in heads if head.id == "L0H0") < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
def test_figures_are_those_of_a_slow_twin(norm: str) -> None:
    specimen = text_specimen(norm=norm)
    atlas = ves.atlas(specimen, words=["J"], progress=False)
    probe = repeated_tokens(specimen)
    model, rows = specimen.model, probe.batch.tokens
    _, cache = model.run_with_cache(rows, names=lambda name: name.endswith(("hook_pattern", "hook_result")))
    order = _sample(specimen)
    for layer in range(2):
        for head in range(4):
            own = atlas.head(Component(layer, head))
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
            assert own.previous == pytest.approx(_previous(pattern), abs=2e-4)
            assert own.induction == pytest.approx(_after_copies(rows, pattern), abs=2e-4)
            assert own.copying == pytest.approx(_copying(model, layer, head, order), abs=2e-3)
            results = cache[f"blocks.{layer}.attn.hook_result"][:, :, head]
            assert own.copying_in_run == pytest.approx(_in_run(model, rows, pattern, results, order), abs=2e-3)


def _previous(pattern: torch.Tensor) -> float:
    return float(torch.stack([row[q, q - 1] for row in pattern for q in range(2, len(row))]).mean())


def _after_copies(rows: torch.Tensor, pattern: torch.Tensor) -> float:
    found = []
    for tokens, attention in zip(rows.tolist(), pattern, strict=True):
        for query in range(1, len(tokens)):
            keys = [key for key in range(2, query) if tokens[key - 1] == tokens[query] and key - 1 >= 1]
            if keys:
                found.append(sum(float(attention[query, key]) for key in keys))
    return sum(found) / len(found)


def _sample(specimen: Specimen) -> list[int]:
    """Every ordinary token: the vocabulary of bytes is smaller than the sample."""
    assert isinstance(specimen.vocabulary, TextVocabulary)
    return [i for i in specimen.vocabulary.tokenizer.ordinary_ids if i != specimen.vocabulary.tokenizer.bos]


def _logits(model: Transformer, written: torch.Tensor, order: list[int]) -> torch.Tensor:
    """What a vector does to the logits, standardised: the last norm's own scale changes nothing."""
    kind = model.ln_final.kind
    centred = written - written.mean() if kind == "layer" else written
    folded = centred if model.ln_final.w is None else centred * model.ln_final.w
    logits = model.unembed_weight[order] @ folded
    return (logits - logits.mean()) / logits.std()


def _copying(model: Transformer, layer: int, head: int, order: list[int]) -> float:
    block, own = model.blocks[layer], []
    for place, token in enumerate(order):
        stream = model.W_E[token]
        if layer:
            first = model.blocks[0]
            stream = stream + first.mlp(first.ln2(stream[None, None].clone(), Tap()), Tap())[0, 0]
        read = block.ln1(stream[None, None].clone(), Tap())[0, 0]
        written = read @ block.attn.W_V[head // 2] @ block.attn.W_O[head]
        own.append(float(_logits(model, written, order)[place]))
    return sum(own) / len(own)


def _in_run(
    model: Transformer, rows: torch.Tensor, pattern: torch.Tensor, results: torch.Tensor, order: list[int]
) -> float:
    total = weight = 0.0
    place = {token: number for number, token in enumerate(order)}
    for tokens, attention, result in zip(rows.tolist(), pattern.tolist(), results, strict=True):
        for query in range(len(tokens)):
            logits = _logits(model, result[query], order).tolist()
            for key in range(1, query + 1):
                total += attention[query][key] * logits[place[tokens[key]]]
                weight += attention[query][key]
    return total / weight


def test_the_scale_of_what_a_head_writes_changes_nothing_and_its_sign_turns_copying_round() -> None:
    specimen = text_specimen()
    before = ves.atlas(specimen, progress=False)
    with torch.no_grad():
        specimen.model.blocks[1].attn.W_O[0].mul_(3.0)
        specimen.model.blocks[1].attn.W_O[1].mul_(-1.0)
    after = ves.atlas(specimen, progress=False)
    assert after.model != before.model
    assert after.head("L1H0").copying == pytest.approx(before.head("L1H0").copying, abs=1e-3)
    assert after.head("L1H1").copying == pytest.approx(-(before.head("L1H1").copying or 0.0), abs=1e-3)


def test_uniform_attention_is_at_chance_on_random_tokens_and_on_text() -> None:
    specimen = text_specimen()
    with torch.no_grad():
        for block in specimen.model.blocks:
            block.attn.qkv[:, : block.attn.ends[1]].zero_()
            block.attn.b_qkv.zero_()
    atlas = ves.atlas(specimen, progress=False)
    assert atlas.text_rows == len(PASSAGES)
    for head in atlas.heads:
        assert head.positional == pytest.approx(1.0, abs=1e-3)
        for name in ("previous", "duplicate", "induction", "current", "bos"):
            assert getattr(head, name) == pytest.approx(atlas.chance[name], abs=2e-4)
            assert getattr(head.text, name) == pytest.approx(atlas.chance_on_text[name], abs=2e-4)
        assert head.text is not None
        assert sum(head.text.classes.values()) + head.text.bos == pytest.approx(1.0, abs=1e-3)
        for kind, mass in head.text.classes.items():
            assert mass == pytest.approx(atlas.chance_on_text[kind], abs=2e-4)


def test_position_explains_all_of_a_pattern_that_no_token_changes_and_nothing_of_one_that_never_repeats() -> None:
    same = torch.rand(1, 2, 5, 5).softmax(-1).expand(3, 2, 5, 5)
    assert torch.allclose(explained_by_position(same), torch.ones(2))
    apart = torch.zeros(3, 1, 4, 4)
    for prompt, key in enumerate((1, 2, 3)):
        apart[prompt, 0, 3, key] = 1.0
    assert float(explained_by_position(apart)) == 0.0
    first = torch.zeros(3, 1, 4, 4)
    first[..., 0] = 1.0  # looks at the first position only, which says nothing about the rest
    assert float(explained_by_position(first)) == 0.0


figures = st.dictionaries(
    st.sampled_from(sorted({figure for rule in RULES for figure, _, _ in rule.bars})),
    st.one_of(st.none(), st.floats(-5, 5)),
)


@pytest.mark.slow
@given(figures)
@settings(max_examples=200)
def test_a_name_holds_where_its_figures_are_beyond_their_bars_and_only_there(given: dict[str, float | None]) -> None:
    names = names_of(given)
    for rule in RULES:
        beyond = [
            (value := given.get(figure)) is not None and ((value > bar) if side == ">" else (value < bar))
            for figure, side, bar in rule.bars
        ]
        told = rule.name in names or (rule.name == "prefix-matching head" and "induction head" in names)
        assert not all(beyond) or told
        assert all(beyond) or rule.name not in names
    assert names == tuple(rule.name for rule in RULES if rule.name in names)


def test_classes_of_tokens() -> None:
    pieces = {
        " Anna": "capitalised word",
        " river": "word",
        "ing": "part of a word",
        " 1784": "number",
        ",": "punctuation",
    }
    assert {piece: class_of(piece) for piece in pieces} == pieces
    assert [class_of(" "), class_of("\n")] == ["space", "line break"]


def test_what_a_head_and_a_neuron_write_in_tokens() -> None:
    """L1H0 raises the token that it reads, L1H1 lowers it; a neuron that writes one token's direction raises that."""
    size = word_tokenizer().size
    model = induction_model(size, strengths={0: 1.0, 1: -1.0})
    chosen = 40
    with torch.no_grad():
        model.blocks[1].mlp.W_out[0, ANSWER] = 10 * model.unembed_weight[chosen, ANSWER]
        model.blocks[1].mlp.W_in[:WIDTH, 0] = model.W_E[chosen, :WIDTH]
    specimen = as_specimen(model)
    piece = specimen.pieces(torch.tensor([chosen]))[0]
    atlas = ves.atlas(specimen, words=[" John", "not one token of it"], progress=False)
    raises, lowers = ((atlas.head(name).writes[0]) for name in ("L1H0", "L1H1"))
    assert (raises.token, raises.raises[0]) == (" John", " John")
    assert (lowers.token, lowers.lowers[0]) == (" John", " John")
    neuron = atlas.mlps[1].outputs[0]
    assert (neuron.id, neuron.raises[0], neuron.tokens[0]) == ("L1_N0", piece, piece) or neuron.raises[0] == piece
    assert atlas.notes == (
        "Its vocabulary cannot say plain text: figures are of random tokens alone.",
        "1 of 2 words are not one token here and were left out.",
    )


def test_an_atlas_is_measured_once_for_the_same_weights(tmp_path: Path) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    first = ves.atlas(specimen, out=tmp_path / "atlas", progress=False)
    written = (tmp_path / "atlas" / "atlas.json").read_text()
    steps: list[str] = []
    again = ves.atlas(specimen, out=tmp_path / "atlas", progress=lambda step, *_: steps.append(step))
    assert steps == ["comparing the weights"]
    assert (again.heads, again.seconds) == (first.heads, first.seconds)
    assert (tmp_path / "atlas" / "atlas.json").read_text() == written
    with torch.no_grad():
        specimen.model.blocks[1].attn.W_O[0].mul_(-1.0)
    other = ves.atlas(specimen, out=tmp_path / "atlas", progress=False)
    assert [one.head("L1H0").name for one in (first, other)] == ["induction head", "copy-suppression head"]
    assert [one["component"] for one in ves.diff(first, other).as_data()["components_moved"]] == ["L1H0"]


def test_each_component_has_its_part_in_explanations_that_lie_beside(tmp_path: Path) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    part = ComponentExplanation(
        id="L1H0", tag="ROUTER", tag_by_experiment=None, note="", verdict="supported", role="primary mover of B"
    )
    fields = {"scientist": "builtin", "information_flow": "", "task_description": "", "seconds": 1.0, "seed": 0}
    for name, model in (("here", "by_hand"), ("there", "another")):
        Explanation.model_validate({"specimen": model, "behaviour": "ioi", "components": (part,), **fields}).save(
            tmp_path / name
        )
    atlas = ves.atlas(specimen, out=tmp_path / "atlas", progress=False)
    assert [(one.behaviour, one.role) for one in atlas.head("L1H0").parts] == [("ioi", "primary mover of B")]
    assert not atlas.head("L0H0").parts
    page = (tmp_path / "atlas" / "atlas.html").read_text()
    assert page.count('<a href="#component-L1H0">') >= 6  # four maps and two tables
    assert 'id="component-L1H0"' in page
    assert "primary mover of B" in page


def test_a_circuit_with_a_listed_vocabulary_is_measured_by_attention_alone() -> None:
    atlas = ves.atlas("frac_prevs", progress=False)
    assert len(atlas.heads) == 8
    assert {head.copying for head in atlas.heads} == {None}
    assert not atlas.mlps
    assert atlas.notes[0].startswith("Only attention was measured")
    plan = ves.plan("atlas", "frac_prevs", progress=False)
    assert (plan.forwards, plan.n) == (1.0, 8)


def test_a_plan_measures_nothing() -> None:
    specimen = text_specimen()
    plan = ves.plan("atlas", specimen, progress=False)
    assert plan.command == "atlas"
    assert plan.n == 16
    assert plan.forwards > 1
    assert plan.peak_bytes > plan.weight_bytes


def test_names_for_explanations_are_those_of_the_atlas(by_hand: Atlas) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size, strengths={0: 1.0, 1: -1.0}))
    assert standard_names(specimen) == {head.id: head.names for head in by_hand.heads if head.names}


def test_passages_are_cut_to_one_length_and_need_a_tokenizer_that_can_say_them() -> None:
    probe = passages(text_specimen())
    assert probe is not None
    assert probe.batch.tokens.shape == (len(PASSAGES), 64)
    assert passages(as_specimen(induction_model(word_tokenizer().size))) is None


@pytest.fixture(scope="module")
def reader(smollm: tuple[Transformer, Tokenizer]) -> Specimen:
    model, tokenizer = smollm
    return replace(as_specimen(model), vocabulary=TextVocabulary(tokenizer, model.config.n_ctx))


@pytest.fixture(scope="module")
def of_smollm(reader: Specimen) -> Atlas:
    """Without the programs of its 270 heads, which take most of the time."""
    return atlas_of(reader, Request(command="atlas"), model="", words=[" John"])


@pytest.mark.smollm
def test_smollm2_has_its_suppressors_and_previous_token_heads(of_smollm: Atlas) -> None:
    """As measured apart from this code, with the modules of transformers and plain hooks."""
    ranked = sorted(of_smollm.heads, key=lambda head: head.copying or 0.0)
    assert {head.id for head in ranked[:2]} == {"L23H3", "L24H4"}
    assert {head.id for head in of_smollm.heads if head.name == "copy-suppression head"} == {"L23H3", "L24H4"}
    assert all(" John" in head.writes[0].lowers[:2] for head in ranked[:2])
    for name in ("L16H0", "L11H1", "L2H1"):
        head = of_smollm.head(name)
        assert head.name == "previous-token head"
        assert head.previous > 0.7
        assert head.induction < 0.01


@pytest.mark.slow
@pytest.mark.smollm
def test_an_explanation_of_induction_in_smollm2_has_that_name_too(
    reader: Specimen, of_smollm: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study of one head on held-out prompts; the names are those that are measured above."""
    names = {head.id: head.names for head in of_smollm.heads if head.names}
    monkeypatch.setattr(NaturalLab, "standard_names", names)
    specimen, head = with_behaviour(reader, "induction"), Component.parse("L16H0")
    chosen = ChosenComponents()
    chosen.add(head, "named by the user")
    add_hypotheses(NaturalLab.draw(specimen, 8, seed=0, split="train"), chosen, extend=False, progress=silent)
    assert chosen.looks_at[head] == "previous"
    ((studied,), _) = study_part(specimen, StudyPart(chosen, (head,), 4, 0, True, {}))
    assert (studied.written.role or "").startswith("previous-token head")


def test_where_every_counterfactual_keeps_the_copies_they_are_exchanged_for_the_control() -> None:
    """Else nothing could refute that the head looks for copies."""
    names = itertools.islice(itertools.permutations(words.NAMES[:6], 4), 0, 320, 5)
    rows = [
        {
            "prompt": f"{a} {b} {c} {a}",
            "answer": f" {b}",
            "wrong": f" {c}",
            "counterfactual": f"{a} {other} {c} {a}",
        }
        for a, b, c, other in ((" " + a, b, c, other) for a, b, c, other in names)
    ]
    specimen = with_behaviour(as_specimen(induction_model(word_tokenizer().size)), rows)
    record = check(Attends(component="L1H0", role="induction"), NaturalLab.draw(specimen, 8, seed=0))
    assert record.verdict == "supported"
    assert "no prompt has a place for the control" not in record.evidence[0].rule
    assert "same places, no copy there" in str(record.evidence[0].controls)
    assert (record.evidence[0].value or 0.0) > 0.9
