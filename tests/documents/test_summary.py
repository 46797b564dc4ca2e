"""The screen of a natural model: joined paths, gaps and verdicts, from a document whose answers are worked by hand."""

from benchmarks.undecided import counts

from vesalius.documents import ClaimRecord, ComponentExplanation, Evidence, Explanation
from vesalius.documents.claims import Composition, NotAsked, Verdict
from vesalius.documents.view import subject_of, title_of


def evidence(value: float, n: int = 16) -> Evidence:
    return Evidence(experiment="e", measure="m", value=value, low=value - 0.1, high=value + 0.1, n=n, rule="r", seed=0)


def part(name: str, effect: float, role: str | None = None, **verdicts: Verdict) -> ComponentExplanation:
    return ComponentExplanation(
        id=name,
        tag="ROUTER",
        tag_by_experiment="ROUTER",
        note="",
        verdict="supported" if role else "untested",
        role=role or "no role established",
        claims=tuple(
            ClaimRecord(kind=kind, text=f"{name} {kind}.", verdict=verdict, evidence=(evidence(effect),))
            for kind, verdict in verdicts.items()
        ),
        profile={
            "pattern": role if role and role.endswith("head") else None,
            "unit": "share of the clean logit difference",
            "effects": {"solo": [effect, effect - 0.1, effect + 0.1]},
        },
    )


def composition(sender: str, receiver: str) -> Composition:
    return Composition(sender=sender, receiver=receiver, port="keys", value=0.7, low=0.6, high=0.8)


#: tokens -> L0H0 -> (keys) L1H0 -> logits; L0H0 -> (keys) L1H1, which leads nowhere; L3_MLP -> logits from nowhere;
#: L2H2 alone; L2_MLP without a role.
PARTS = (
    part("L0H0", 0.6, "previous-token head", necessary="supported", writes_answer="refuted"),
    part("L1H0", 0.3, "induction head", necessary="supported"),
    part("L1H1", 0.0, "induction head", necessary="refuted"),
    part("L2H2", 0.0, "duplicate-token head", necessary="refuted"),
    part("L2_MLP", 0.04, necessary="undecided", covers="undecided"),
    part("L3_MLP", 0.4, "writes the answer", necessary="supported"),
)
EDGES = (("tokens", "L0H0", 0.6), ("L1H0", "logits", 0.25), ("L3_MLP", "logits", 0.4))


def document(**changes: object) -> Explanation:
    fields: dict[str, object] = {
        "specimen": "toy",
        "behaviour": "induction",
        "scientist": "builtin",
        "components": PARTS,
        "information_flow": "",
        "edges": EDGES,
        "compositions": (composition("L0H0", "L1H0"), composition("L0H0", "L1H1")),
        "task_description": "Say B. Right on 1.00 [0.94, 1.00] of 64 prompts.",
        "seconds": 1.0,
        "seed": 0,
    }
    return Explanation.model_validate(fields | changes)


def test_the_connected_part_comes_first_and_gaps_are_said() -> None:
    screen = document().in_short()
    assert screen.main_path == "tokens -> L0H0 -> keys of L1H0 -> logits"
    assert screen.paths == (
        "tokens -> L0H0 0.60",
        "L0H0 (previous-token head) -> keys of L1H0",
        "L1H0 (induction head) -> logits 0.25",
        "L0H0 (previous-token head) -> keys of L1H1",
        "L3_MLP (writes the answer) -> logits 0.40",
    )
    assert screen.gaps == (
        "how these reach the answer: L1H1",
        "what these read: L3_MLP",
        "how these connect to the tokens and to the answer: L2H2",
        "a role: L2_MLP",
        "refuted, necessary alone: L1H1, L2H2",
        "refuted, writes the answer by itself: L0H0",
        "2 claims are undecided on 16 prompts; more prompts decide more",
    )
    assert screen.verdicts == "3 supported, 3 refuted, 2 undecided"


def test_the_figure_of_a_role_stands_in_the_brackets_of_the_role() -> None:
    parts = [part.model_copy(update={"role": "writes the answer (interchange 0.73), feeds L4H0"}) for part in PARTS]
    paths = document(components=parts).in_short().paths
    assert "L3_MLP (writes the answer, interchange 0.73) -> logits 0.40" in paths


def test_what_carries_it_is_ranked_with_intervals() -> None:
    description, carriers, patterns = document().in_short().sentences
    assert description == "Say B. Right on 1.00 [0.94, 1.00] of 64 prompts."
    assert carriers == (
        "Necessary: L0H0 0.60 [0.50, 0.70], L3_MLP 0.40 [0.30, 0.50], L1H0 0.30 [0.20, 0.40] "
        "(lost by the strongest replacement made on 16 prompts, as a share of the clean logit difference, not of the "
        "range)."
    )
    assert patterns == (
        "By attention: previous-token head L0H0; induction heads L1H0, L1H1; duplicate-token head L2H2."
    )


def test_paths_that_do_not_join_are_not_joined() -> None:
    screen = document(edges=EDGES[::2]).in_short()
    assert screen.main_path is None
    assert screen.broken_path == "tokens -> L0H0 -> keys of L1H0 ... ? ... L3_MLP -> logits"
    assert document().in_short().broken_path is None
    assert screen.gaps[:3] == (
        "a path from the tokens to the answer: the supported paths do not join",
        "how these reach the answer: L0H0, L1H0, L1H1",
        "what these read: L3_MLP",
    )


def test_the_main_path_goes_through_what_matters_most() -> None:
    detour = (*EDGES, ("tokens", "L2_MLP", 0.1), ("L2_MLP", "L3_MLP", 0.1), ("tokens", "L1H0", 0.1))
    # L0H0 and L1H0 cost 0.9 together, L2_MLP and L3_MLP 0.44, L1H0 by itself 0.3.
    assert document(edges=detour).in_short().main_path == "tokens -> L0H0 -> keys of L1H0 -> logits"


def test_one_prompt_is_shown_as_it_was_written() -> None:
    row = '{"answer": " Paris", "prompt": "The capital of France is", "wrong": " Rome"}'
    assert title_of(row) == "'The capital of France is' -> ' Paris'"
    assert title_of("/data/my rows.jsonl") == "my rows"
    assert title_of("induction") == "induction"
    assert subject_of("toy", None) == "toy"
    shown = document(behaviour=row)
    assert shown.title == "toy, 'The capital of France is' -> ' Paris', explained by builtin"
    assert repr(shown).splitlines()[:2] == [shown.task_description, shown.title]
    assert '"prompt"' not in repr(shown)


def test_a_notebook_shows_the_same_screen() -> None:
    text = document(task_description="<b>bold</b>")._repr_html_()
    assert "<li>main path: tokens -&gt; L0H0 -&gt; keys of L1H0 -&gt; logits</li>" in text
    assert "<li>what these read: L3_MLP</li>" in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text


def test_a_path_begins_at_the_tokens_or_is_not_established() -> None:
    screen = document(edges=EDGES[1:]).in_short()
    assert screen.main_path is None
    assert screen.gaps[0] == "a path from the tokens to the answer: the supported paths do not join"
    assert screen.gaps[1:3] == (
        "what these read: L0H0, L1H0, L3_MLP",
        "how these connect to the tokens and to the answer: L1H1, L2H2",
    )


def test_questions_that_were_not_asked_are_counted_with_the_undecided() -> None:
    """Of 8 claims 2 are open; with 2 that were too close to ask and 1 that a narrower claim replaced: 5 of 11."""
    left = (
        NotAsked(kind="feeds", about="L3_MLP"),
        NotAsked(kind="acts_at"),
        NotAsked(kind="necessary", why="narrower"),
    )
    parts = (*PARTS[:-1], PARTS[-1].model_copy(update={"not_asked": left}))
    assert sum(len(one.claims) for one in parts) == 8
    gaps = document(components=parts).in_short().gaps
    assert gaps[-3:] == (
        "2 questions not asked, since other prompts leave them too close to the bar to call: feeds 1, acts at 1",
        "1 question tested and open, with a narrower claim decided instead: necessary 1",
        "with these 5 of 11 questions (45%) are not decided",
    )
    assert not any("not asked" in gap for gap in document().in_short().gaps)
    assert "not_asked" not in PARTS[0].model_dump(mode="json")
    read = ComponentExplanation.model_validate(parts[-1].model_dump(mode="json"))
    assert read.not_asked == left
    counted = counts([{"components": [part.model_dump(mode="json") for part in parts]}])
    assert (counted["open"]["n"], counted["open"]["of"]) == (2, 8)
    assert (counted["open_of_all_questions"]["n"], counted["open_of_all_questions"]["of"]) == (5, 11)
    assert counted["not_asked_by_kind"] == {"feeds": 1, "acts_at": 1, "necessary": 1}
