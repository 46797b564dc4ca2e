"""Claims, programs and formulas as a language model writes them, and the kinds of failure of its code."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.api import load
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.errors import BadInput
from vesalius.explanations.claims import CIRCUIT_KINDS, Computes
from vesalius.explanations.verdicts import from_free_code, verdict_of
from vesalius.files import plain_json
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp.document import to_document
from vesalius.rasp.formula import read_formula
from vesalius.rasp.text import render
from vesalius.sandbox import Outcome
from vesalius.sandbox.program import MISSING
from vesalius_agents.hyve import category_of
from vesalius_agents.hyve.asking import classification
from vesalius_session.grammar import (
    COMPACT_KINDS,
    claims_schema,
    describe_claims,
    example_claims,
    read_claim,
    read_program,
)

VOCABULARY = FiniteVocabulary(("a", "b", "x"), None, 4)
MLP = Component.parse("L0_MLP")
PROGRAM: dict[str, Any] = {
    "variables": [
        {"name": "flag", "op": "map", "of": ["tokens"], "formula": "x == 'x'"},
        {"name": "past", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
        {"name": "mean", "op": "aggregate", "of": ["past", "flag"], "numerical": True},
    ],
    "output": "mean",
}


def run(program: dict[str, Any], tokens: list[Any]) -> list[Any]:
    compiled = read_program(program, VOCABULARY, causal=True)
    codes, lengths = compiled.encode([tokens])
    return compiled.decode(compiled.run(codes, lengths).output, lengths)[0]


def test_a_program_without_the_fields_of_the_specimen_runs() -> None:
    assert run(PROGRAM, ["x", "a", "x"]) == pytest.approx([1, 0.5, 2 / 3])
    table = {"name": "flag", "op": "map", "of": ["tokens"], "table": [["x", 1]], "otherwise": 0}
    assert run({**PROGRAM, "variables": [table, *PROGRAM["variables"][1:]]}, ["x", "a"]) == [1, 0.5]
    counted = [
        PROGRAM["variables"][1],
        {"name": "n", "op": "selector_width", "of": ["past"]},
        {"name": "odd", "op": "sequence_map", "of": ["n", "indices"], "formula": "(x + y) % 4 == 1"},
    ]
    assert run({"variables": counted, "output": "odd"}, ["a"] * 4) == [True, False, True, False]
    assert render(to_document(read_program(PROGRAM, VOCABULARY, causal=True))).splitlines()[-1] == "return mean"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (3, "expected"),
        ({"variables": [{"name": "tokens"}]}, "needs its own name"),
        ({"variables": [{"name": "a", "op": "fold"}]}, "op 'fold' does not exist"),
        ({"variables": [{"name": "a", "op": "map", "of": ["b"], "formula": "x"}]}, "'b' is not defined before it"),
        ({"variables": [{"name": "a", "op": "map", "of": ["tokens"]}]}, 'either a "formula" or a "table"'),
        ({"variables": [{"name": "a", "op": "map", "of": ["tokens"], "formula": "x.upper()"}]}, "not allowed"),
        ({"variables": [{"name": "a", "op": "map", "of": ["tokens"], "formula": "x +"}]}, "not an expression"),
        ({"variables": [], "output": "tokens"}, "computes nothing"),
        ({"variables": PROGRAM["variables"], "output": "past"}, "is not a variable"),
        ({"variables": [{"name": str(n), "op": "map"} for n in range(99)]}, "at most 40"),
    ],
)
def test_a_malformed_program_names_the_place(program: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_program(program, VOCABULARY, causal=True)


@pytest.mark.parametrize(
    ("formula", "x", "y", "value"),
    [
        ("x + y", 2, 3, 5),
        ("'yes' if x in ('a', 'b') else 'no'", "b", 0, "yes"),
        ("1 < x <= y and not x == 5", 3, 4, True),
        ("min(x, 3) + abs(-y)", 9, 2, 5),
        ("x // y", 1, 0, None),
        ("x - y", "a", 1, None),
        ("x * y", "a", 1_000_000, None),
        ("x % y", "%999999999d", 1, None),
        ("(x, y)", 1, 2, None),
        ("x * x * x", 10**6, 0, None),
    ],
)
def test_formulas(formula: str, x: Any, y: Any, value: Any) -> None:
    assert read_formula(formula, ("x", "y"))(x, y) == value


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "x.__class__",
        "2 ** x",
        "[y for y in x]",
        "lambda: x",
        "z",
        "open('f')",
        "x[0]",
        "9999999 + x",
    ],
)
def test_formulas_reach_nothing_else(formula: str) -> None:
    with pytest.raises(BadInput, match="not allowed"):
        read_formula(formula, ("x",))


def test_the_grammar_lists_every_kind_of_claim_with_its_fields() -> None:
    text = describe_claims()
    for name, kind in CIRCUIT_KINDS.items():
        assert f'"kind": "{name}"' in text
        form = next(line for line in text.splitlines() if f'"kind": "{name}"' in line)
        assert all(f'"{field}"' in form for field in kind.model_fields if field != "hypothesis")
        assert '"carriers"?: COMPONENT' not in form
    assert len(CIRCUIT_KINDS) == 11


def test_the_examples_of_the_prompt_are_well_formed() -> None:
    for example in example_claims("L0_MLP", VOCABULARY):
        assert read_claim(example, MLP, VOCABULARY, causal=True).component == "L0_MLP"


def test_a_claim_about_a_program_is_read_flat_or_nested() -> None:
    body = {"program": PROGRAM, "carriers": {"L0_MLP": "flag", "L1.H0": ["mean"]}}
    flat = read_claim({"kind": "computes", **body}, MLP, VOCABULARY, causal=True)
    nested = read_claim({"kind": "computes", "component": "m0", "hypothesis": body}, MLP, VOCABULARY, causal=True)
    for claim in (flat, nested):
        assert isinstance(claim, Computes)
        assert claim.hypothesis.carriers == {"L0_MLP": ("flag",), "L1H0": ("mean",)}


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"kind": "necessary", "component": "L1H0"}, "in this stage claims are about L0_MLP"),
        ({"kind": "computes", "program": PROGRAM}, "carriers must say"),
        ({"kind": "computes", "program": PROGRAM, "carriers": {"L0_MLP": ["past"]}}, "no component of the program"),
        ({"kind": "computes", "program": PROGRAM, "carriers": {"L1H0": ["mean"]}}, "what L0_MLP carries"),
        ({"kind": "depends_only_on", "variables": ["tokens"], "carriers": "L0H0"}, "carriers must say"),
        ({"kind": "depends_only_on", "variables": ["tokens"], "carriers": {"L0H0": ["nope"]}}, "'nope', which no"),
        ({"kind": "combines", "variables": ["tokens", "indices"], "carriers": {"L0H0": "indices"}}, "'indices', which"),
        ({"kind": "depends_only_on", "variables": ["tokens"], "carried": ["nope"]}, "'nope', which no"),
        ({"kind": "reads_from", "offset": 10**30}, "beyond the longest input"),
        ({"kind": "guess"}, "the kinds are aggregates"),
    ],
)
def test_a_malformed_claim_is_told_why(claim: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_claim(claim, MLP, VOCABULARY, causal=True)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["L0_MLP", "tokens"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({field for kind in CIRCUIT_KINDS.values() for field in kind.model_fields} | {"carriers"} - {"kind"})


@given(kind=st.sampled_from(sorted(CIRCUIT_KINDS)), fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_any_json_is_a_claim_or_is_refused(kind: str, fields: dict[str, Any]) -> None:
    with contextlib.suppress(BadInput):
        read_claim(plain_json({**fields, "kind": kind}), MLP, VOCABULARY, causal=True)


def record(kind: str, verdict: Any) -> ClaimRecord:
    return ClaimRecord(kind=kind, text="t", verdict=verdict, evidence=())


def test_the_verdict_is_a_rule_over_the_claims() -> None:
    good, bad, open_ = record("computes", "supported"), record("necessary", "refuted"), record("copies", "undecided")
    assert verdict_of([]) == "untested"
    assert verdict_of([record("necessary", "supported")]) == "untested", "mattering is not doing"
    assert verdict_of([good]) == verdict_of([good, open_, record("necessary", "supported")]) == "supported"
    assert verdict_of([good, bad]) == "refuted"
    own = from_free_code("t", "refuted", programs=1, tried=1, seed=0)
    assert verdict_of([good, own]) == "supported", "whoever made a claim has no say in its verdict"


def test_a_classification_may_spell_names_its_own_way_and_leave_some_out() -> None:
    shape = classification(["L0_MLP", "L1H2"])
    role = {"tag": " mapper", "description": "d"}
    assert dict(shape.model_validate({"m0": role, "L5H5": role}))["L0_MLP"].tag == "MAPPER"
    assert shape.model_json_schema()["required"] == ["L0_MLP", "L1H2"]
    with pytest.raises(ValueError, match="none of the components"):
        shape.model_validate({"L5H5": role})


@pytest.mark.parametrize(
    ("error", "stopped", "category"),
    [
        (None, None, None),
        (MISSING, None, "missing result"),
        ("stopped: it used its 20 s of CPU time", "cpu", "time, memory or output limit"),
        ("stopped: it ran for 60 s, the time it has", "wall", "time, memory or output limit"),
        ("BlockingIOError: fork", None, "refused by the sandbox"),
        ("PermissionError: [Errno 13] Permission denied: '/etc/shadow'", None, "refused by the sandbox"),
        ("  line 1\nNameError: name 'L1H2' is not defined", None, "Python"),
        ("SyntaxError: invalid syntax", None, "Python"),
        ("KeyError: 'norm'", None, "Python"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x12 and 48x12)", None, "tensor shape"),
        ("RuntimeError: The size of tensor a (12) must match the size of tensor b (48) at ...", None, "tensor shape"),
        ("RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at ...", None, "BOS offset"),
        ("IndexError: index 5 is out of bounds for dimension 1 with size 5", None, "BOS offset"),
        ("IndexError: index 9 is out of bounds for dimension 1 with size 5", None, "tensor shape"),
        ("BadInput: inputs contains BOS; leave it out", None, "BOS offset"),
        ("BadInput: how='noise' is not known", None, "helper or hook API"),
        ("TypeError: Validation.ablate() got an unexpected keyword argument 'kind'", None, "helper or hook API"),
        ("AttributeError: 'Transformer' object has no attribute 'hook_dict'", None, "helper or hook API"),
    ],
)
def test_failures_are_told_apart(error: str | None, stopped: Any, category: str | None) -> None:
    assert category_of(Outcome(error=error, stopped_by=stopped)) == category


def test_a_specimen_takes_its_own_examples() -> None:
    specimen = load("11")
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    causal = specimen.model.config.causal
    for example in example_claims("L0_MLP", vocabulary):
        read_claim(example, MLP, vocabulary, causal=causal)


def test_what_the_schema_of_claims_allows_can_be_read() -> None:
    """The smallest object of every kind, made from its schema, is a claim in the grammar; the component is given."""
    vocabulary = load("frac_prevs").vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    claims = claims_schema("L0_MLP", ["L0_MLP", "L1H2"])["properties"]["claim"]["anyOf"]
    assert {claim["properties"]["kind"]["const"] for claim in claims} == set(CIRCUIT_KINDS)
    assert set(COMPACT_KINDS) < set(CIRCUIT_KINDS)
    flag = {"name": "v", "op": "map", "of": ["tokens"], "formula": "x == 'x'"}
    values = {
        "program": {"variables": [flag], "output": "v"},
        "carriers": {"L0_MLP": ["v"]},
        "variables": ["tokens", "indices"],
        "variable": "tokens",
        "components": ["L0_MLP"],
        "of": ["L1H2"],
        "others": ["L1H2"],
    }
    for claim in claims:
        properties = claim["properties"]
        smallest = {name: properties[name].get("const") or values[name] for name in claim["required"]}
        if properties["kind"]["const"] in ("depends_only_on", "combines"):  # the whole object as well
            whole = smallest | {name: values[name] for name in ("program", "carriers")} | {"carried": ["v"]}
            assert set(properties) == set(whole)
            assert properties["carriers"]["type"] == "object"
            assert read_claim(whole, MLP, vocabulary, causal=True).model_dump()["carriers"] == {"L0_MLP": ("v",)}
        assert smallest["component"] == "L0_MLP"
        kind = smallest["kind"]
        if kind in ("copies", "reads_from", "aggregates"):  # about heads: read, and refused for an MLP
            continue
        assert read_claim(smallest, Component.parse("L0_MLP"), vocabulary, causal=True).kind == kind
    carriers = next(claim for claim in claims if "carriers" in claim["required"])["properties"]["carriers"]
    assert set(carriers["properties"]) == {"L0_MLP", "L1H2"}
