"""Explanations of natural models: a hand-written model whose roles are known, and a random one that has none."""

import itertools

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.closeness import assert_same_document
from tests.devices import LogicalDevices
from tests.explanations.induction_model import ANSWER, POSITION, PREVIOUS, SWITCH, WIDTH, as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.behaviours import builtin as words
from vesalius.behaviours.natural import with_behaviour
from vesalius.components import Component
from vesalius.documents.claims import NOT_DEFINED
from vesalius.documents.explanation import (
    ClaimRecord,
    ComponentExplanation,
    Evidence,
    Explanation,
    Verdict,
    draw_profile,
    why_it_attends,
)
from vesalius.errors import BadInput
from vesalius.explanations.claims.joint import GAIN
from vesalius.explanations.laboratory import FIRST_LOOK, REPORTED
from vesalius.explanations.natural.ideas import Reading
from vesalius.explanations.natural.roles import NO_ROLE, NOT_FOUND, Findings
from vesalius.explanations.natural.sentences import group_sentence, note
from vesalius.model.devices import spread
from vesalius.report.charts import bars_of

SIZE = word_tokenizer().size


def parts(explanation: Explanation) -> dict[str, ComponentExplanation]:
    return {part.id: part for part in explanation.components}


@pytest.fixture(scope="module")
def by_hand() -> Explanation:
    return ves.explain(as_specimen(induction_model(SIZE)))


def test_the_two_heads_get_their_names(by_hand: Explanation) -> None:
    components = parts(by_hand)
    assert components["L0H0"].role == "previous-token head, necessary at B, feeds L1H0"
    assert components["L1H0"].role == "induction head, primary mover"
    assert {name: part.verdict for name, part in components.items()} == {"L0H0": "supported", "L1H0": "supported"}
    assert {part.tag for part in components.values()} == {"ROUTER"}


@pytest.mark.parametrize(
    ("general", "names", "verdict", "role"),
    [
        ("duplicate", ("duplicate-token head",), "supported", "duplicate-token head, necessary at S2"),
        ("duplicate", ("positional head",), "supported", "reads S1 from S2, necessary at S2"),
        (None, ("duplicate-token head",), "supported", "reads S1 from S2, necessary at S2"),
        ("duplicate", ("duplicate-token head",), "refuted", "BOS sink, necessary at S2"),
    ],
)
def test_a_head_is_named_by_what_it_reads_where_it_acts(
    general: str | None, names: tuple[str, ...], verdict: Verdict, role: str
) -> None:
    """It attends to BOS from the answer position, where it does nothing."""
    reads = claim("reads_role", verdict).model_copy(update={"prediction": {"role": "S1", "query": "S2"}})
    acts = claim("acts_at", "supported").model_copy(update={"prediction": {"role": "S2"}})
    own = (claim("attends", "supported"), claim("necessary", "supported"), acts, reads)
    reading = Reading("S1", general, clear=True)
    assert Findings(Component(1, 2), "BOS", own, names=names, reading=reading).role == role


def test_a_head_that_matters_with_others_is_named_so_where_nothing_more_was_shown() -> None:
    together = claim("together", "supported").model_copy(update={"prediction": {"others": ["L0H1", "L0H4"]}})
    small = claim("small_part", "supported")
    assert Findings(Component(0, 9), None, (together, small)).role == "matters together with L0H1 and L0H4"
    moving = (("S2", claim("moves_role", "supported")), ("S2", together))
    assert Findings(Component(0, 9), None, (small,), grouped=moving).role == "mover of S2"
    undecided = together.model_copy(update={"verdict": "undecided"})
    assert Findings(Component(0, 9), None, (undecided, small)).role == "a small part"


@pytest.mark.slow
def test_a_model_without_a_token_that_begins_a_text_is_explained_too(by_hand: Explanation) -> None:
    model = induction_model(SIZE)
    model.config = model.config.model_copy(update={"bos_token": None})
    without = ves.explain(as_specimen(model), n=16, no_ladder=True)
    assert {part.id: part.role for part in without.components} == {part.id: part.role for part in by_hand.components}


def test_the_set_is_the_circuit_and_the_answer_says_so(by_hand: Explanation) -> None:
    """Two heads of ten components do everything: no other one is described to fill a number."""
    account = by_hand.account
    assert account is not None
    assert by_hand.answer is not None
    assert by_hand.answer["verdict"] == "yes"
    assert by_hand.answer["text"].startswith("2 of 10 components keep 1.00 [1.00, 1.00] of induction on 32 prompts")
    assert "replaced from the counterfactual prompts" in by_hand.answer["text"]
    assert (account.kept.value, account.left.value) == (pytest.approx(1.0, abs=0.01), pytest.approx(0.0, abs=0.01))
    assert (account.omitted, account.not_described, account.beside) == ((), (), ())
    assert [part.name for part in account.layers] == ["layer 0 (1 head)", "layer 1 (1 head)"]
    places = {part.name: part.effect.value or 0.0 for part in account.positions}
    assert {name for name, cost in places.items() if cost > 0.9} == {"B", "second A"}
    assert str(by_hand).splitlines()[0] == f"Yes: {by_hand.answer['text']}"
    assert (
        str(by_hand).splitlines()[1].startswith("in words: programs in the place of the attention of 2 heads keep 1.00")
    )
    assert account.lines()[0][1].startswith("1.00 [1.00, 1.00]")


@pytest.mark.slow
def test_what_is_left_out_is_named_with_its_cost() -> None:
    """L1H0 alone cannot find B: it keeps nothing, and the head that tells it where to look is what is left out."""
    explanation = ves.explain(as_specimen(induction_model(SIZE)), ["L1H0"], n=4, no_ladder=True)
    account = explanation.account
    assert account is not None
    assert explanation.answer is not None
    assert explanation.answer["verdict"] == "no"
    assert "the 1 of 10 components given for induction keep" in explanation.answer["text"]
    assert account.kept.value == pytest.approx(0.0, abs=0.02)
    assert [one.id for one in account.omitted] == ["L0H0"]
    assert account.omitted[0].effect == pytest.approx(1.0, abs=0.05)
    (part,) = explanation.components
    assert part.effect is not None
    assert part.effect_right is not None
    assert part.effect_wrong is not None
    # The head writes the answer and nothing else: the right token's logit falls, the wrong one's stays but for a prompt
    # whose counterfactual brings it.
    assert abs(part.effect_wrong) < 0.25 * part.effect_right


@pytest.mark.slow
def test_the_set_has_at_most_as_many_as_are_asked_for() -> None:
    explanation = ves.explain(as_specimen(induction_model(SIZE)), n=4, top=1, no_ladder=True)
    assert explanation.account is not None
    assert explanation.answer is not None
    assert len(explanation.account.members) == 1
    assert explanation.answer["verdict"] == "no"
    assert "no circuit of up to 1 of 10 components keeps 0.8 of induction" in explanation.answer["text"]


@pytest.mark.slow
def test_a_tag_by_experiment_is_one_or_null(by_hand: Explanation) -> None:
    """Attention that was shown to lie on one role settles ROUTER; a default by kind is no experiment."""
    assert {part.tag_by_experiment for part in by_hand.components} == {"ROUTER"}
    (other,) = ves.explain(as_specimen(induction_model(SIZE)), ["L0_MLP"], n=4, no_ladder=True).components
    assert (other.role, other.tag, other.tag_by_experiment) == ("no effect alone", "MAPPER", None)
    for part in (*by_hand.components, other):
        assert ("by default" in part.note) == (part.tag_by_experiment is None)


def test_an_entry_says_why_a_head_attends(by_hand: Explanation) -> None:
    """By hand the key of L1H0 is what L0H0 wrote and its query 60 times the token, with heads of 64 dimensions: where
    the two are the same unit vector the score is 60 / 8, elsewhere about 0. Without L0H0's path no attention stays.
    """
    induction = parts(by_hand)["L1H0"]
    why = (induction.profile or {})["why"]
    assert (why["role"], why["score"]) == ("induction", pytest.approx(60 / 8, rel=0.15))
    assert [why[side][0]["source"] for side in ("at_key", "at_query")] == ["L0H0", "token"]
    assert why["at_key"][0]["adds"] == pytest.approx(why["score"], rel=0.1)
    assert why["at_key"][0]["attention_lost"] > 0.9
    assert (why["pairs"][0]["query"], why["pairs"][0]["key"]) == ("token", "L0H0")
    assert "the largest parts are what L0H0 (+" in induction.note
    (composes,) = (claim for claim in induction.claims if claim.kind == "composes")
    (cited,) = (one for one in composes.evidence if one.measure == "what L0H0 adds beyond other keys")
    assert cited.value == pytest.approx(why["at_key"][0]["adds"], abs=1e-3)
    assert next(iter(cited.controls)) == "L0H0 adds"
    previous = parts(by_hand)["L0H0"]
    (reads,) = (claim for claim in previous.claims if claim.kind == "reads_from")
    (cited,) = (one for one in reads.evidence if one.measure == "score beyond other keys")
    why_previous = (previous.profile or {})["why"]
    assert cited.value == pytest.approx(why_previous["score"], abs=1e-3)
    assert next(iter(cited.controls)) == f"{why_previous['at_key'][0]['source']} at the key adds"
    sheet = why_it_attends(induction.profile or {})
    assert sheet is not None
    assert (sheet.title, sheet.rows[0][:2]) == ("Why it attends to induction", ("at the key", "L0H0"))


def test_every_claim_behind_a_role_is_supported(by_hand: Explanation) -> None:
    induction, previous = parts(by_hand)["L1H0"], parts(by_hand)["L0H0"]
    refuted = [claim.text for claim in induction.claims if claim.verdict != "supported"]
    assert refuted == ["L1H0 moves first A to end."]  # it is the key by which B is found
    assert "B reaches the answer position through L1H0." in by_hand.information_flow
    assert "First A reaches" not in by_hand.information_flow
    assert {claim.kind for claim in induction.claims} == {
        "attends",
        "necessary",
        "acts_at_answer",
        "acts_directly",
        "writes_answer",
        "uses",
        "moves_role",
        "composes",
    }
    supported = {claim.kind for claim in previous.claims if claim.verdict == "supported"}
    assert supported == {"attends", "necessary", "acts_at", "uses", "reads_from", "feeds"}
    refuted = {claim.kind for claim in previous.claims if claim.verdict == "refuted"}
    assert refuted == {"acts_at_answer", "acts_directly", "writes_answer"}


def test_the_flow_is_composition_through_the_keys(by_hand: Explanation) -> None:
    assert by_hand.information_flow.startswith("Previous-token head L0H0 makes the keys of induction head L1H0")
    # The counterfactual changes the first A: only the previous-token head reads it from the embedding.
    assert {edge[:2] for edge in by_hand.edges} == {("tokens", "L0H0"), ("L0H0", "L1H0"), ("L1H0", "logits")}
    assert [(link.sender, link.receiver, link.port) for link in by_hand.compositions] == [("L0H0", "L1H0", "keys")]
    assert by_hand.in_short().main_path == "tokens -> L0H0 -> keys of L1H0 -> logits"
    (feeds,) = [claim for claim in parts(by_hand)["L0H0"].claims if claim.kind == "feeds"]
    whole, *inputs = feeds.evidence
    queries, keys, values = (evidence.value for evidence in inputs)
    # The inputs are figures of eight prompts, the whole path is one of all.
    assert {evidence.n for evidence in inputs} == {REPORTED}
    assert whole.low is not None
    assert whole.high is not None
    assert keys is not None
    assert whole.low <= keys <= whole.high
    assert (queries, values) == (pytest.approx(0.0, abs=0.02), pytest.approx(0.0, abs=0.02))
    assert "mainly by its keys" in parts(by_hand)["L0H0"].note


def test_the_profile_holds_plain_numbers(by_hand: Explanation) -> None:
    profile = parts(by_hand)["L1H0"].profile
    assert profile is not None
    assert profile["attention"]["answer"]["B"][0] > 0.95
    assert profile["attention"]["everywhere"]["induction"][0] > 0.95
    assert profile["effects"]["solo"] == profile["effects"]["at_answer"]
    assert profile["effects"]["lens"][0] == pytest.approx(1.0, abs=0.05)
    assert profile["request"] == {"n": 128, "top": None, "selection": 8, "force": False}
    assert profile["n"] == {"solo": 16, "at_answer": 16, "direct": 16, "lens": 16, "restored": REPORTED}
    (worth,) = [table for table in draw_profile(profile) if table.title == "What it is worth"]
    assert "what it alone restores, on 8 of 16 prompts" in [bar.label for bar in bars_of(worth).rows]
    assert "replaced alone" in [bar.label for bar in bars_of(worth).rows]
    assert Explanation.model_validate_json(by_hand.model_dump_json()) == by_hand


@pytest.mark.slow
def test_the_same_seed_gives_the_same_explanation() -> None:
    steps: list[str] = []
    specimen = as_specimen(induction_model(SIZE))
    first, again, other = (
        ves.explain(specimen, ["L0H0", "L1H0"], n=4, seed=seed, progress=lambda step, done, total: steps.append(step))
        for seed in (5, 5, 6)
    )
    assert_same_document(again.model_dump(mode="json"), first.model_dump(mode="json"))
    assert other.components != first.components
    assert any("L1H0" in message for message in steps)


@pytest.mark.slow
def test_two_heads_of_which_either_fills_the_stream_are_redundant_and_neither_is_a_backup() -> None:
    model = induction_model(SIZE, strengths={0: 80.0, 2: 50.0}, norm="rms")
    components = parts(ves.explain(as_specimen(model), ["L0H0", "L1H0", "L1H2"], no_ladder=True))
    assert components["L1H0"].role == "induction head, primary mover"
    assert components["L1H2"].role == "induction head, redundant mover"
    claims = {claim.kind: claim for claim in components["L1H2"].claims}
    assert claims["redundant"].verdict == "supported"
    assert "backup_of" not in claims
    (excess, *_) = claims["redundant"].evidence
    solo = (components["L1H2"].profile or {})["effects"]["solo"]
    assert excess.low is not None
    assert solo[2] < 0.1 < 0.5 < excess.low
    # Values of other prompts disturb more than zeros do: one verdict stands, and it names its replacement.
    assert (claims["necessary"].verdict, claims["not_needed_alone"].verdict) == ("refuted", "supported")
    assert "zeros at every position" in claims["not_needed_alone"].text


@pytest.mark.slow
def test_a_head_that_moves_a_role_is_said_not_to_be_needed_whether_necessary_is_refuted_or_undecided() -> None:
    """By probability, which L1H0 alone brings to 1, nothing is lost without L1H1. Whether the rule refutes that it is
    necessary depends on controls that are not always run; what its role rests on must not.
    """
    specimen = as_specimen(induction_model(SIZE, strengths={0: 2.0, 1: 0.4}))
    (part,) = ves.explain(
        with_behaviour(specimen, None, metric="probability"), ["L1H1"], n=128, no_ladder=True
    ).components
    verdicts = {(claim.kind, claim.verdict) for claim in part.claims}
    assert {("necessary", "refuted"), ("moves_role", "supported"), ("not_needed_alone", "supported")} <= verdicts


@pytest.mark.slow
def test_a_head_that_writes_against_the_answer_inhibits_it() -> None:
    model = induction_model(SIZE, strengths={0: 1.0, 3: -0.4})
    components = parts(ves.explain(as_specimen(model), ["L0H0", "L1H0", "L1H3"], n=8, no_ladder=True))
    assert components["L1H3"].role.startswith("copy-suppression head")
    assert components["L1H3"].role.endswith("suppressor of the answer")
    assert "works against the answer" in components["L1H3"].note
    assert "What it writes lowers the answer itself" in components["L1H3"].note


@pytest.mark.slow
def test_a_head_that_moves_nothing_from_where_it_attends_is_not_called_a_mover() -> None:
    """L1H1 attends mostly to "and", where it finds nothing, and passes on what is at its own position: the name before,
    which L0H1 brought there.
    """
    model, joint = induction_model(SIZE, junk=0.0), word_tokenizer().encode(" and")[-1]
    first, second = (block.attn for block in model.blocks)
    with torch.no_grad():
        model.W_E[BOS], model.W_E[joint, SWITCH] = 0.0, 1.0
        for weight in (first.W_Q, first.W_K, first.W_V, first.W_O):
            weight[1] = weight[0]
        first.W_O[0].zero_()
        first.W_Q[1][SWITCH, 0] = 1000.0  # from "and" to BOS, which is 0
        second.W_O[0].zero_()
        second.W_Q[1][POSITION] = 60 * torch.eye(WIDTH)
        second.W_Q[1][POSITION][:, WIDTH - 1] = 67.0  # 0.7 of the attention to "and", the rest to itself
        second.W_K[1][POSITION] = torch.eye(WIDTH)
        second.W_V[1][PREVIOUS] = torch.eye(WIDTH)
        second.W_O[1][:, ANSWER] = 4 * torch.eye(WIDTH)
    rows = [
        {
            "prompt": " ".join([*names[: 1 + place], "and", *names[1 + place : 4]]),
            "answer": f" {names[2]}",
            "wrong": f" {names[0]}",
            "counterfactual": " ".join([*names[: 1 + place], "and", *names[1 + place : 2], names[4], names[3]]),
            "roles": {"joint": " and"},
        }
        for place, names in zip(
            itertools.cycle((0, 1)), itertools.islice(itertools.permutations(words.NAMES[:8], 5), 0, 6400, 40)
        )
    ]
    components = parts(ves.explain(with_behaviour(as_specimen(model), rows), ["L0H1", "L1H1"], no_ladder=True))
    assert (
        components["L0H1"].role == "previous-token head, necessary at the answer, feeds L1H1"
    )  # it writes to no answer itself
    assert components["L1H1"].role == "attends to joint, necessary at the answer"


@pytest.mark.slow
def test_a_random_model_is_refused_and_has_no_roles() -> None:
    specimen = as_specimen(random_model(small_config(d_vocab=SIZE, d_vocab_out=SIZE, n_ctx=48, bos_token=BOS)))
    with pytest.raises(BadInput, match=r"does not perform induction: prefers the right answer on 0\.\d\d .* `force`"):
        ves.explain(specimen)
    forced = ves.explain(specimen, force=True, n=8)
    assert {part.role for part in forced.components} == {NO_ROLE}
    assert {part.verdict for part in forced.components} == {"untested"}
    assert forced.edges == ()
    for part in forced.components:  # a share of a score that cannot be told from 0 is not defined
        assert part.profile is not None
        effects = {name: values for name, values in part.profile["effects"].items() if name != "restored"}
        assert set(map(tuple, effects.values())) == {(None, None, None)}
        assert part.profile["unit"].endswith(f"({NOT_DEFINED})")
    assert f"Effects as shares of the clean score are {NOT_DEFINED}." in forced.in_short().sentences


def test_what_cannot_be_explained_is_said_in_one_line() -> None:
    specimen = as_specimen(induction_model(SIZE))
    steps: list[str] = []
    with pytest.raises(BadInput, match="request 1 to 100,000"):
        ves.explain(specimen, n=10**20, progress=lambda step, done, total: steps.append(step))
    assert steps == []  # refused before anything is run
    with pytest.raises(BadInput, match="name what to explain it for, `behaviour` induction, induction-out, ioi"):
        ves.explain(as_specimen(induction_model(SIZE), None))
    with pytest.raises(BadInput, match="3 prompts are too few"):
        ves.explain(specimen, n=3)
    with pytest.raises(BadInput, match="component L7H0 is not in this model"):
        ves.explain(specimen, ["L7H0"])
    assert ves.explain(specimen, []).components == ()
    with pytest.raises(BadInput, match="n, top and force are for natural models"):
        ves.explain(ves.load("frac_prevs"), n=8)


def claim(kind: str, verdict: Verdict, value: float = 0.3) -> ClaimRecord:
    evidence = Evidence(
        experiment="e", measure="m", value=value, low=value - 0.01, high=value + 0.01, n=16, rule="r", seed=0
    )
    return ClaimRecord(kind=kind, text="X covers for Y: Z.", verdict=verdict, evidence=(evidence,))


NEEDED_THERE: dict[str, Verdict] = {"attends": "supported", "necessary": "supported", "acts_at_answer": "supported"}


def test_a_head_that_moves_a_role_is_a_mover_only_if_the_answer_gains() -> None:
    grouped = (("IO", claim("moves_role", "supported")), ("IO", claim("primary", "supported")))
    own = (claim("necessary", "supported"),)
    suppressing = (*own, claim("suppresses", "supported"))
    roles = [
        Findings(Component(1, 2), None, claims, grouped=grouped, raises=raises).role
        for claims, raises in ((own, True), (own, False), (suppressing, True))
    ]
    assert roles == ["primary mover of IO", "primary carrier of IO", "primary suppressor of the wrong answer"]


@pytest.mark.parametrize(
    ("name", "looks_at", "verdicts", "role"),
    [
        ("L1H2", None, {"necessary": "supported", "acts_at_answer": "supported"}, "necessary at the answer"),
        (
            "L1H2",
            "IO",
            {**NEEDED_THERE, "uses": "supported", "writes_answer": "supported"},
            "reads IO, primary mover",
        ),
        ("L1H2", "IO", {**NEEDED_THERE, "uses": "supported"}, "reads IO, necessary at the answer"),
        (
            "L1H2",
            "S2",
            {**NEEDED_THERE, "uses": "supported", "suppresses": "supported", "writes_answer": "refuted"},
            "reads S2, primary suppressor of the wrong answer",
        ),
        (
            "L1H2",
            "IO",
            {**NEEDED_THERE, "uses": "refuted"},
            "attends to IO, necessary at the answer",
        ),
        ("L1H2", None, {"backup_of": "supported"}, "backup head"),
        ("L1H2", None, {"necessary": "supported", "acts_at_answer": "refuted"}, "necessary upstream"),
        ("L1H2", None, {"necessary": "supported", "acts_at_answer": "untested"}, "necessary"),
        ("L1H2", "IO", {"attends": "supported", "redundant": "supported"}, "attends to IO, redundant head"),
        (
            "L1H2",
            "IO",
            {"attends": "supported", "backup_of": "supported", "writes_answer": "supported"},
            "attends to IO, backup mover",
        ),
        ("L1H2", "BOS", {"attends": "supported"}, "BOS sink"),
        ("L1H2", "induction", {"attends": "untested"}, NO_ROLE),
        ("L1H2", None, {"inhibits": "supported"}, "inhibits the answer"),
        ("L1_MLP", None, {"necessary": "supported", "acts_directly": "supported"}, "writes the answer"),
        ("L1_MLP", None, {"necessary": "supported", "acts_directly": "refuted"}, NOT_FOUND),
        ("L1_MLP", None, {"backup_of": "supported"}, "backup MLP"),
        ("L1_MLP", None, {"necessary": "untested", "writes_answer": "supported"}, NO_ROLE),
    ],
)
def test_roles_follow_from_verdicts(name: str, looks_at: str | None, verdicts: dict[str, Verdict], role: str) -> None:
    own = tuple(claim(kind, verdict) for kind, verdict in verdicts.items())
    names = ("induction head", "previous-token head", "duplicate-token head")
    assert Findings(Component.parse(name), looks_at, own, names=names).role == role


def refuted(kind: str, controls: dict[str, float]) -> ClaimRecord:
    record = claim(kind, "refuted", value=0.03)
    return record.model_copy(update={"evidence": (record.evidence[0].model_copy(update={"controls": controls}),)})


@pytest.mark.parametrize(
    ("kind", "comparison"),
    [("necessary", "too little to tell from replacing other components"), ("uses", "no more than taking out as many")],
)
def test_a_note_compares_only_with_controls_that_were_run(kind: str, comparison: str) -> None:
    texts = [note(Findings(Component(1, 2), "IO", (refuted(kind, some),))) for some in ({"L0H1": 0.04}, {})]
    assert comparison in texts[0]
    assert comparison not in texts[1]
    assert "too little to count: 0.03 [0.02, 0.04]" in texts[1]


def test_a_clear_effect_is_decided_on_the_prompts_of_the_first_look(by_hand: Explanation) -> None:
    part = parts(by_hand)["L1H0"]
    (necessary,) = [one for one in part.claims if one.kind == "necessary"]
    assert {one.experiment: one.n for one in necessary.evidence} == {
        "resample replacement": FIRST_LOOK,
        "mean replacement": FIRST_LOOK,
    }


@pytest.mark.parametrize(("measure", "words"), [(GAIN[0], "alone, 0.30"), (GAIN[1], "alone, at least 0.30")])
def test_what_bounds_a_gain_is_not_said_to_be_the_gain(measure: str, words: str) -> None:
    record = claim("backup_of", "supported")
    shown = record.evidence[0].model_copy(update={"measure": measure, "passed": True})
    alone = record.evidence[0].model_copy(update={"experiment": "zero replacement of X alone", "value": 0.0})
    backup = record.model_copy(update={"text": "X is a backup of Y: Z.", "evidence": (shown, alone)})
    assert words in note(Findings(Component(1, 2), None, (backup,)))
    assert words in (group_sentence("IO", backup) or "")


def test_the_cost_of_a_primary_mover_is_its_own() -> None:
    """The lead over others that work against the answer is larger than what it costs."""
    own, lead = (claim("primary", "supported", value=value).evidence[0] for value in (0.3, 0.5))
    own = own.model_copy(update={"measure": "effect", "passed": True})
    lead = lead.model_copy(update={"measure": "effect, minus that of L1H3", "passed": True})
    record = claim("primary", "supported").model_copy(update={"evidence": (own, lead)})
    sentence = group_sentence("IO", record) or ""
    assert "costs 0.30 [0.29, 0.31] of the score, 0.50 [0.49, 0.51] more than L1H3" in sentence


def test_an_answer_in_the_lens_without_an_effect_is_redundant() -> None:
    own = (claim("necessary", "refuted", value=0.01), claim("writes_answer", "supported"))
    assert Findings(Component(3), None, own).role == "lens-positive but redundant"
    looking = (claim("attends", "supported"), claim("necessary", "refuted", value=0.01))
    assert Findings(Component(3, 1), "induction", looking, names=("induction head",)).role == (
        "induction head, no effect alone"
    )
    # What it attends to in these prompts is no name: the tests of the atlas hold no behaviour, and say otherwise.
    for names in ((), ("previous-token head",)):
        assert Findings(Component(3, 1), "induction", looking, names=names).role == (
            "attends to the token after an earlier copy of the current one, in this template, no effect alone"
        )
    suppressing = Findings(Component(3, 1), "IO", looking, names=("copy-suppression head",))
    assert suppressing.role == "copy-suppression head, attends to IO, no effect alone"
    alone = Findings(Component(3, 1), None, own, names=("copy-suppression head",))
    assert alone.role == "copy-suppression head, lens-positive but redundant"
    # A name of the atlas that no claim here goes with is not the head's part in this behaviour.
    assert Findings(Component(3, 1), None, own, names=("induction head",)).role == "lens-positive but redundant"
    assert Findings(Component(3, 1), "BOS", (*looking, own[1])).role == "BOS sink, lens-positive but redundant"
    assert "favours the answer by itself" in note(Findings(Component(3), None, own))


@pytest.mark.slow
def test_an_explanation_is_the_same_over_two_devices() -> None:
    """Tensors of two devices do not meet: `LogicalDevices` refuses what CUDA would refuse."""
    request = {"components": ["L0H0", "L1H0"], "n": 4, "force": True, "progress": False}
    alone = ves.explain(as_specimen(induction_model(SIZE)), **request)
    with LogicalDevices() as logical:
        model, devices = induction_model(SIZE), [torch.device("meta:0"), torch.device("meta:1")]
        assert len(spread(model, devices, [1, 1])) == 2
        apart = ves.explain(as_specimen(model), **request)
    assert logical.transfers["meta:0", "meta:1"] > 0
    assert_same_document(alone.model_dump(mode="json"), apart.model_dump(mode="json"))
