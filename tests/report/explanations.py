"""Two explanations written by hand: the two components of frac_prevs, and a circuit of ten."""

from vesalius.documents.explanation import ClaimRecord, ComponentExplanation, Evidence, Explanation, Tag, Verdict
from vesalius.documents.request import Request
from vesalius.report.pages import IndexRow


def evidence(value: float | None = 1.0, **changes: object) -> Evidence:
    """An interchange experiment with two controls."""
    low, high = (None, None) if value is None else (max(0.0, value - 0.02), min(1.0, value + 0.008))
    record: dict[str, object] = {
        "experiment": "interchange on held-out pairs",
        "measure": "agreement on changed outputs",
        "value": value,
        "low": low,
        "high": high,
        "n": 400,
        "controls": {"shuffled variable": 0.482, "matched random component": 0.031},
        "rule": "interval's lower end at least 0.95 and above every control",
        "seed": 7,
    }
    return Evidence.model_validate(record | changes)


def frac_prevs() -> Explanation:
    """What the model of frac_prevs does, with one refuted hypothesis and one refuted claim."""
    marks = ComponentExplanation(
        id="L0_MLP",
        tag="INDICATOR",
        tag_by_experiment="INDICATOR",
        note='Marks every position whose token is "x". Tokens a, b and c are one class to it.',
        verdict="supported",
        program="is_x = rasp.Map(lambda token: token == 'x', rasp.tokens)",
        reads=("tokens",),
        claims=(
            ClaimRecord(
                kind="computes",
                text='L0_MLP computes is_x: true where the token is "x".',
                verdict="supported",
                evidence=(evidence(), evidence(0.994, experiment="worst value of the variable", n=96)),
                tried=3,
            ),
            ClaimRecord(
                kind="independent",
                text="L0_MLP is independent of the position.",
                verdict="supported",
                evidence=(evidence(0.998, measure="outputs unchanged", controls={}),),
            ),
        ),
        refuted=({"hypothesis": "token == 'a'", "score": 0.214, "n": 400, "why": "next rival, 0.786 behind"},),
        table={"a": 0, "b": 0, "c": 0, "x": 1},
    )
    averages = ComponentExplanation(
        id="L1H2",
        tag="AGGREGATOR",
        tag_by_experiment="AGGREGATOR",
        note="Averages is_x over this and all earlier positions: the fraction of x so far.",
        verdict="supported",
        program=(
            "before = rasp.Select(rasp.indices, rasp.indices, rasp.Comparison.LEQ)\n"
            "fraction = rasp.Aggregate(before, is_x)"
        ),
        reads=("L0_MLP",),
        claims=(
            ClaimRecord(
                kind="aggregates",
                text="L1H2 averages is_x over positions up to its own.",
                verdict="supported",
                evidence=(evidence(0.987),),
                tried=2,
            ),
            ClaimRecord(
                kind="copies",
                text="L1H2 copies is_x from the previous position.",
                verdict="refuted",
                evidence=(evidence(0.262, controls={"shuffled variable": 0.25, "variable ignored": None}),),
                tried=4,
            ),
            ClaimRecord(kind="backup of", text="L1H2 is a backup of L1H0.", verdict="untested", evidence=()),
        ),
    )
    return Explanation(
        request=Request(command="explain", specimen="frac_prevs", seed=0),
        specimen="frac_prevs",
        scientist="builtin",
        components=(marks, averages),
        information_flow=(
            'L0_MLP marks the positions that hold "x". L1H2 attends evenly to this and all earlier positions and so '
            "writes the share of marked ones. Nothing else reaches the output."
        ),
        edges=(
            ("tokens", "L0_MLP", 0.94),
            ("L0_MLP", "L1H2", 0.91),
            ("L1H2", "logits", 0.97),
            ("tokens", "L1H2", 0.04),
        ),
        task_description='At every position, the fraction of tokens so far that are "x".',
        program="is_x = tokens == 'x'\nbefore = select(indices, indices, <=)\noutput = aggregate(before, is_x)",
        program_agreement=evidence(0.998, experiment="fresh inputs", measure="sequences right", n=1000, controls={}),
        seconds=1.4,
        seed=0,
        rows=81920,
    )


TEN: tuple[tuple[str, Tag, Tag, Verdict], ...] = (
    ("L0H0", "AGGREGATOR", "AGGREGATOR", "supported"),
    ("L0H1", "ROUTER", "ROUTER", "supported"),
    ("L0_MLP", "COMBINER", "COMBINER", "supported"),
    ("L1_MLP", "INDICATOR", "MAPPER", "supported"),
    ("L2H0", "AGGREGATOR", "AGGREGATOR", "supported"),
    ("L2_MLP", "MAPPER", "MAPPER", "supported"),
    ("L3_MLP", "COMBINER", "MAPPER", "untested"),
    ("L4_MLP", "MAPPER", "MAPPER", "untested"),
    ("L5_MLP", "COMBINER", "COMBINER", "refuted"),
    ("L6H0", "ROUTER", "AGGREGATOR", "supported"),
)
TEN_EDGES = (
    ("tokens", "L0H1", 0.88),
    ("tokens", "L0H0", 0.41),
    ("tokens", "L0_MLP", 0.52),
    ("L0H1", "L0_MLP", 0.83),
    ("L0_MLP", "L1_MLP", 0.91),
    ("L1_MLP", "L2H0", 0.77),
    ("L2H0", "L2_MLP", 0.86),
    ("L0H0", "L2_MLP", 0.12),
    ("L0H0", "L3_MLP", 0.44),
    ("L2_MLP", "L3_MLP", 0.38),
    ("L3_MLP", "L4_MLP", 0.57),
    ("L4_MLP", "L5_MLP", 0.63),
    ("L2_MLP", "L5_MLP", -0.21),
    ("L5_MLP", "L6H0", 0.71),
    ("tokens", "L6H0", 0.66),
    ("L6H0", "logits", 0.93),
)


def invert_if_sorted() -> Explanation:
    """Ten components over seven layers, some not established, some where experiment and convention disagree."""
    components = tuple(
        ComponentExplanation(
            id=name,
            tag=tag,
            tag_by_experiment=by_experiment,
            note=f"{name} carries a value that depends on the order of the tokens and, through it, on the length.",
            verdict=verdict,
            program=f"v_{name.lower()} = table(tokens, length)" if verdict == "supported" else None,
            claims=(
                ClaimRecord(
                    kind="depends only on",
                    text=f"The output of {name} depends on the token and the length only.",
                    verdict=verdict,
                    evidence=() if verdict == "untested" else (evidence(0.97 if verdict == "supported" else 0.61),),
                    tried=5,
                ),
            ),
            refuted=tuple({"hypothesis": f"width(token <= {k})", "score": 0.1 * k} for k in range(3)),
            table={"arguments": ["token", "length"], "classes": 3, "rows": [[k, 9, k % 3] for k in range(12)]}
            if verdict == "untested"
            else None,
        )
        for name, tag, by_experiment, verdict in TEN
    )
    return Explanation(
        request=Request(command="explain", specimen="invert_if_sorted", seed=0),
        specimen="invert_if_sorted",
        scientist="builtin",
        components=components,
        information_flow=(
            "L0H1 brings the previous token, L0_MLP compares it with this one, L1_MLP marks a descent. L2H0 counts "
            "descents; L2_MLP to L5_MLP turn the count and the length from L0H0 into a position to read; L6H0 reads it."
        ),
        edges=TEN_EDGES,
        task_description="Reverses the sequence if it is sorted, and repeats it otherwise.",
        seconds=255.2,
        seed=3,
        rows=4_120_000,
    )


def natural() -> Explanation:
    """Two heads and an MLP of a natural model, with profiles; one of them against the answer."""
    roles: tuple[tuple[str, Tag, str, Verdict, float], ...] = (
        ("L16H0", "ROUTER", "previous-token head, necessary upstream", "supported", 0.654),
        ("L17H4", "ROUTER", "duplicate-token head, lens-positive but redundant", "supported", -0.004),
        ("L20_MLP", "MAPPER", "no role established", "untested", -0.166),
    )
    components = tuple(
        ComponentExplanation(
            id=name,
            tag=tag,
            tag_by_experiment=tag,
            note=f"Replacing it costs {effect} of the score.",
            verdict=verdict,
            claims=(
                ClaimRecord(
                    kind="necessary", text=f"{name} is necessary.", verdict=verdict, evidence=(evidence(effect),)
                ),
            ),
            role=role,
            profile={
                "request": {"n": 16, "top": 12, "selection": 8, "force": False},
                "chosen_by": "effect rank 1 of 270 heads",
                "clean": 11.26,
                "effects": {"solo": [effect, effect - 0.1, effect + 0.1], "gain": [None, None, None]},
                "group": {"name": "heads that look at previous", "members": [name, "L11H1"]},
                "attention": {"answer": {"BOS": [0.05, 0.01, 0.14], "first A": [0.9, 0.8, 0.97]}, "everywhere": {}}
                if tag == "ROUTER"
                else None,
            },
        )
        for name, tag, role, verdict, effect in roles
    )
    return Explanation(
        request=Request(
            command="explain",
            specimen="smollm2-135m",
            behaviour="induction",
            options={"n": 16, "top": 12},
            seed=0,
        ),
        specimen="smollm2-135m",
        behaviour="induction",
        scientist="builtin",
        components=components,
        information_flow="Previous-token head L16H0 makes the keys of induction head L18H6.",
        edges=(("L16H0", "L20_MLP", 0.2), ("L17H4", "L20_MLP", -0.1), ("L20_MLP", "logits", 0.3)),
        task_description="After [A B ... A] say B.",
        seconds=150.0,
        seed=0,
        rows=3500,
    )


def index_rows() -> list[IndexRow]:
    """Three rows in the order of their ids; one name needs escaping, one specimen has no program."""
    return [
        IndexRow("3", "<b>frac</b> & co", 2, 2, 1.4, "pages/frac prevs.html", 2, 0.998),
        IndexRow("20", "spam_message_detector", 1, 1, 0.8, "javascript:alert(1)", 1, 0.87),
        IndexRow("113", "invert_if_sorted", 10, 7, 255.2, None, 5, None),
    ]


def of_specimen(name: str) -> Explanation:
    """An explanation that says it is of another specimen, as a hostile file may."""
    explanation = frac_prevs()
    request = None if explanation.request is None else explanation.request.model_copy(update={"specimen": name})
    return explanation.model_copy(update={"specimen": name, "request": request})
