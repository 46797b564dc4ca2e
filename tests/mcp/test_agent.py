"""An agent explains a circuit and a function by tools alone; what it must not see or do is refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

import vesalius as ves
from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.mcp.asking import ABSOLUTE, PART, asked, data, desk_in, refusal, text_of, with_client
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius_agents.mcp.server import Server
from vesalius_agents.mcp.start import listed_tools
from vesalius_agents.mcp.tools import TOOLS

IDEAS = ("x", "-x", "abs(x)")


def program(formula: str) -> dict[str, Any]:
    return {"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": formula}], "output": "v1"}


async def explains_a_circuit(client: Client) -> dict[str, Any]:
    """From the list to the grade: the agent keeps the first idea that the engine supports."""
    listed = await data(client, "list_specimens", count=100)
    (name,) = (row["id"] for row in listed["rows"] if row["id"] == ABSOLUTE)
    described = (await data(client, "describe_specimen", specimen=name))["rows"][0]
    effects = await data(client, "sweep", specimen=name, n=16)
    strongest = effects["rows"][0]["id"]
    assert strongest in described["components"]
    assert all(abs(row["effect"]) < 1e-6 for row in effects["rows"][1:])
    verdicts = {}
    for idea in IDEAS:
        claim = {"kind": "computes", "component": strongest, "program": program(idea), "carriers": {strongest: ["v1"]}}
        checked = await data(client, "check_claim", specimen=name, claim=claim)
        verdicts[idea] = checked["verdict"]
        assert checked["tried"] == len(verdicts)
    assert [idea for idea, verdict in verdicts.items() if verdict == "supported"] == ["abs(x)"]
    await refusal(client, "grade", specimen=name)
    said = {"components": {strongest: "MAPPER"}, "program": program("abs(x)"), "carriers": {strongest: ["v1"]}}
    await data(client, "submit_explanation", specimen=name, **said, task_description="absolute value")
    assert "already" in await refusal(client, "submit_explanation", specimen=name, **said)
    return await data(client, "grade", specimen=name)


def test_no_result_names_a_benchmark_circuit(tmp_path: Path) -> None:
    """A name such as `spam_message_detector` tells the task; agents that explain get numbers."""
    with desk_in(tmp_path) as desk:
        listed = asked(desk, "list_specimens", count=100).structured_content
        tasks = {one.name for one in ves.specimens() if one.kind == "benchmark" and "_" in one.name}
        assert len(tasks) > 50
        calls = {
            "describe_specimen": {},
            "sweep": {"n": 4},
            "intervene": {"components": [PART], "n": 4},
            "explain": {},
        }
        for tool, more in calls.items():
            result = asked(desk, tool, specimen="3", **more)
            assert not result.is_error
            assert "frac_prevs" not in json.dumps(result.structured_content)
        assert not {name for name in tasks if name in json.dumps(listed)}
        assert "not known" in text_of(asked(desk, "describe_specimen", specimen="frac_prevs"))
        for row in listed["rows"]:  # a listed name is as good as the id; the loader would answer it with names of tasks
            assert desk.names.specimen(row["name"]) == desk.names.specimen(row["id"]) == row["id"]
        assert not asked(desk, "describe_specimen", specimen="circuit 3").is_error


def test_a_specimen_by_its_number_and_arguments_that_a_tool_does_not_take(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        assert asked(desk, "predict", specimen=int(ABSOLUTE), inputs=[[1, -2]]).structured_content["outputs"] == [
            [1, 2]
        ]
        assert asked(desk, "predict", specimen=True, inputs=[[1]]).is_error
        refused = asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1, -2]], behavior="ioi")
        assert text_of(refused) == "predict: there is no argument 'behavior'; it takes specimen, inputs"
        assert [(call["ok"], call["arguments"]) for call in desk.run.calls][-1] == (
            False,
            {"specimen": ABSOLUTE, "inputs": [[1, -2]], "behavior": "ioi"},
        )


def test_claims_are_counted_however_a_component_is_spelled(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        for tried, name in enumerate((PART, "L00_MLP", f" {PART}"), 1):
            claim = {"kind": "necessary", "component": name, "replacement": "zero"}
            result = asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim)
            assert result.is_error or result.structured_content["tried"] == tried


def test_an_agent_explains_a_circuit_from_list_to_grade(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        grade = with_client(Server(desk), explains_a_circuit)
    assert {name: grade["metrics"][name]["value"] for name in ("tag_accuracy", "task_exact", "component_iia")} == {
        "tag_accuracy": 1.0,
        "task_exact": 1.0,
        "component_iia": pytest.approx(1.0, abs=0.02),
    }
    assert "MAPPER" not in json.dumps(grade)  # figures only


def test_a_claim_about_the_circuit_is_decided_and_joined_to_the_submission(tmp_path: Path) -> None:
    """Circuit 3: L0_MLP marks x, L1H2 averages the marks. What was supported is submitted, after a restart too."""
    flag = {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"}
    so_far = {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"}
    share = {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True}
    whole = {"variables": [flag, so_far, share], "output": "share"}
    wrong: dict[str, Any] = {"variables": [flag], "output": "is_x"}
    with desk_in(tmp_path) as desk:
        claim = {"kind": "circuit", "program": wrong, "carriers": {"L0_MLP": ["is_x"]}}
        refuted = asked(desk, "check_claim", specimen="3", claim=claim).structured_content
        assert refuted["verdict"] == "refuted"
        assert [one["predicted"] for one in refuted["counterexamples"]] == [
            [float(token == "x") for token in one["input"]] for one in refuted["counterexamples"]
        ]
        assert "contradicted by" in refuted["text"]
        claim = {"kind": "circuit", "program": whole, "carriers": {"L0_MLP": ["is_x"], "L1H2": ["share"]}}
        decided = asked(desk, "check_claim", specimen="3", claim=claim).structured_content
        assert (decided["verdict"], decided["components"]) == (
            "supported",
            {"L0_MLP": "supported", "L1H2": "supported"},
        )
    with desk_in(tmp_path) as desk:
        asked(desk, "submit_explanation", specimen="3", components={"L0_MLP": "MAPPER"})
        grade = asked(desk, "grade", specimen="3").structured_content
        submitted = desk.connection("local").explanations["3"]
    names = ("tag_accuracy", "tag_accuracy_experiment_only", "task_exact")
    assert {name: grade["metrics"][name]["value"] for name in names} == dict.fromkeys(names, 1.0)
    first, second = submitted["components"]
    assert (first["tag"], first["tag_by_model"], second["tag"]) == ("INDICATOR", "MAPPER", "AGGREGATOR")
    assert [claim["verdict"] for claim in first["claims"]] == ["undecided", "supported"]


def test_an_agent_explains_a_function(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        names = [row["function"] for row in (await data(client, "list_functions", category="strings"))["rows"]]
        assert names == [f"strings/f0000{number}" for number in range(4)]
        rows = (await data(client, "query_function", function=names[0], inputs=["abc", "d"]))["rows"]
        assert [row["input"] for row in rows] == ["abc", "d"]
        assert "9 inputs asked, 8" in await refusal(client, "query_function", function=names[0], inputs=["a"] * 9)
        await refusal(client, "grade_function", function=names[0])
        await data(client, "submit_function", function=names[0], description="nothing")
        assert "already" in await refusal(client, "query_function", function=names[0], inputs=["x"])
        grade = await data(client, "grade_function", function=names[0])
        assert grade["metrics"]["exact_match"] == 0.0

    with desk_in(tmp_path, queries=10) as desk:
        with_client(Server(desk), use)


def test_whatever_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("predict", {}, "specimen: Field required"),
        ("no_such_tool", {}, "no_such_tool"),
        ("submit_function", {"function": "strings/f00000", "description": " \n"}, "description: says nothing"),
        ("submit_explanation", {"specimen": ABSOLUTE, "components": {}}, "components: "),
        ("predict", {"specimen": "none", "inputs": [[1]]}, "specimen 'none' is not known"),
        ("predict", {"specimen": ABSOLUTE, "inputs": [["no token"]]}, "no token"),
        ("predict", {"specimen": "../../etc", "inputs": [[1]]}, "outside the server's root"),
        ("describe_specimen", {"specimen": "/etc"}, "outside the server's root"),
        ("describe_specimen", {"specimen": "org/model"}, "is not known"),
        ("describe_specimen", {"specimen": "arithmetic", "behaviour": "/etc/passwd"}, "outside the server's root"),
        ("intervene", {"specimen": ABSOLUTE, "components": ["L9H9"]}, "L9H9"),
        ("intervene", {"specimen": ABSOLUTE, "components": [PART], "kind": "patch"}, "source"),
        ("check_claim", {"specimen": ABSOLUTE, "claim": {"kind": "odd", "component": PART}}, "odd"),
        ("submit_explanation", {"specimen": ABSOLUTE, "components": {PART: "WIZARD"}}, "INDICATOR"),
        ("submit_explanation", {"specimen": "arithmetic", "components": {"L0H0": "MAPPER"}}, "no answer key"),
        ("query_function", {"function": "numeric/f99", "inputs": [1]}, "f99"),
        ("query_function", {"function": "numeric/f00001", "inputs": ["one"]}, "not a number"),
        ("report", {"explanation": "../run"}, "is not here"),
    ]

    async def use(client: Client) -> None:
        for tool, arguments, what in wrong:
            line = await refusal(client, tool, **arguments)
            assert what in line, (tool, line)
            assert "\n" not in line
            assert "Traceback" not in line
            assert len(line) <= 480

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)
        assert len([call for call in desk.run.calls if not call["ok"]]) == len(wrong)


def test_looking_and_interventions_agree_with_each_other(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        base, source = [-3, 2], [5, -6, 7]
        assert (await data(client, "predict", specimen=ABSOLUTE, inputs=[base, source]))["outputs"] == [
            [3, 2],
            [5, 6, 7],
        ]
        asked_of = {"specimen": ABSOLUTE, "components": [PART], "kind": "interchange", "prompt": base, "source": source}
        moved = await data(client, "intervene", **asked_of, at=[0], source_at=[1])
        assert (moved["clean"], moved["edited"]) == ([3, 2], [6, 2])
        patched = await data(client, "intervene", **{**asked_of, "kind": "patch", "source": [-6, 7]})
        assert (patched["rows"][0]["clean"], patched["rows"][0]["edited"]) == ([3, 2], [6, 7])
        look = await data(client, "attention", specimen=ABSOLUTE, prompt=base, layer=0)
        whole = json.loads((await client.read_resource(look["resource"])).contents[0].text)  # type: ignore[union-attr]
        assert [len(head["pattern"]) for head in whole["heads"]] == [3] * 4  # BOS and two tokens
        for head in whole["heads"]:
            assert all(sum(row) == pytest.approx(1, abs=1e-2) for row in head["pattern"])
        found = await data(client, "discover", specimen=ABSOLUTE, method="eap", n=8)
        assert found["rows"][0]["id"] == PART
        whole = (await client.read_resource(found["resource"])).contents[0].text  # type: ignore[union-attr]
        assert "auroc" not in whole
        assert "metrics" not in json.loads(whole)

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)


def test_an_explanation_has_a_page_to_read(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        explained = await data(client, "explain", specimen=ABSOLUTE)
        assert explained["components"][0]["verdict"] == "supported"
        page = await data(client, "report", explanation=explained["resource"])
        html = (await client.read_resource(page["resource"])).contents[0].text  # type: ignore[union-attr]
        assert html.startswith("<!")
        assert PART in html

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)


def test_the_list_of_tools_is_short_and_whole(tmp_path: Path) -> None:
    tools = listed_tools()
    assert [tool.name for tool in tools] == [entry.function.__name__ for entry in TOOLS]
    assert sum(tool.tokens for tool in tools) < 6_500

    async def use(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            assert tool.description, tool.name
            assert tool.output_schema is not None
            assert set(tool.output_schema["properties"]) >= {"text", "left", "resource"}
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert prompts == {"hyve_protocol", "find_protocol", "investigate"}
        asked_for = await client.get_prompt("hyve_protocol", {"specimen": "absolute"})
        assert "absolute" in asked_for.messages[0].content.text  # type: ignore[union-attr]
        for address in ("grammar/claims", "grammar/natural-claims", "docs/guide", "docs/claims", "schemas/explanation"):
            assert (await client.read_resource(f"vesalius://{address}")).contents

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)


def test_a_budget_is_stated_counted_down_and_then_refuses(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        assert "40 forward passes" in (client.instructions or "")
        left = (await data(client, "predict", specimen=ABSOLUTE, inputs=[[1], [2]]))["left"]
        assert left["forwards"] == 38
        assert (await data(client, "predict", specimen=ABSOLUTE, inputs=[[1], [2]]))["left"]["forwards"] == 38  # kept
        for _ in range(2):
            line = await refusal(client, "sweep", specimen=ABSOLUTE, n=32)
            assert line.startswith("budget exhausted: all 40 forward passes")
        await data(client, "list_specimens")
        await data(client, "submit_explanation", specimen=ABSOLUTE, components={PART: "MAPPER"})
        await data(client, "grade", specimen=ABSOLUTE)

    with desk_in(tmp_path, forwards=40) as desk:
        with_client(Server(desk), use)
        assert desk.connection("local").spending.used["forwards"] <= 40


def test_code_runs_in_the_sandbox_as_often_as_the_budget_says(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        code = "result = decode(model(tokenize([[-3, 2]])))[0][:2]"
        assert (await data(client, "run_code", specimen=ABSOLUTE, code=code))["result"] == [3, 2]
        scored = await data(
            client, "which_variable", specimen=ABSOLUTE, component=PART, candidates={"size": "abs(tokens[i])", "i": "i"}
        )
        assert scored["rows"][0]["variable"] == "size"
        failed = await data(client, "run_code", specimen=ABSOLUTE, code="open('/etc/passwd')\nresult = 1")
        assert failed["error"]
        assert failed["result"] is None
        line = await refusal(client, "run_code", specimen=ABSOLUTE, code="result = 1")
        assert line.startswith("budget exhausted: all 3 executions")

    with desk_in(tmp_path, executions=3) as desk:
        with_client(Server(desk), use)


def test_a_specimen_below_the_root_is_read_and_others_are_not(tmp_path: Path) -> None:
    from vesalius_agents.mcp.desk import Names

    package = Path(ves.__file__).parent
    names = Names(package.parent, known={"absolute"}, behaviours={"ioi"})
    for inside in ("vesalius_truth/key/af1.json", "vesalius_truth/key"):
        with pytest.raises(ves.BadInput, match="package itself"):
            names.behaviour(inside)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "link.jsonl").symlink_to("/etc/hostname")
    names = Names(tmp_path, known=set(), behaviours=set())
    assert names.behaviour("rows.jsonl") == str(tmp_path.resolve() / "rows.jsonl")
    with pytest.raises(ves.BadInput, match="outside"):
        names.behaviour("link.jsonl")


def test_a_single_call_is_in_the_ledger(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        assert "arithmetic" in text_of(asked(desk, "list_specimens", contains="arith"))
        (call,) = desk.run.calls
    assert (call["tool"], call["connection"], call["ok"]) == ("list_specimens", "local", True)
    assert call["arguments"] == {"contains": "arith", "first": 0, "count": 30}


def test_an_empty_contrast_is_refused_with_the_fix_and_goes_on_by_force(tmp_path: Path) -> None:
    """Of a model with random weights; what it then gives says what is wrong."""
    tokenizer = word_tokenizer()
    write_tiny_gpt2(tmp_path / "tiny", d_vocab=tokenizer.size, n_ctx=48, bos=BOS)
    tokenizer._backend.save(str(tmp_path / "tiny" / "tokenizer.json"))
    asked_of = {"specimen": "tiny", "behaviour": "induction", "n": 4}

    async def use(client: Client) -> None:
        for tool in ("sweep", "discover"):
            line = await refusal(client, tool, **asked_of)
            assert "`force`" in line
            assert "\n" not in line
        swept = await data(client, "sweep", **asked_of, force=True)
        assert "; but the contrast " in swept["text"]
        assert len(swept["rows"]) == 10  # two layers of four heads and an MLP
        found = await data(client, "discover", **asked_of, method="eap", force=True)
        assert "eap, n 4; components: " in found["text"]

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)


def test_an_agent_aligns_an_algorithm_and_sees_no_path(tmp_path: Path) -> None:
    asking: dict[str, Any] = {"specimen": "arithmetic", "layers": "0", "roles": ["C"], "n": 4}
    program = "VARIABLES = ['C']\n\ndef answer(A, B, C):\n    return A - B + C\n"
    with desk_in(tmp_path) as desk:
        ours = asked(desk, "align", **asking).structured_content
        theirs = asked(desk, "align", **asking, program=program).structured_content
        for one in (ours, theirs):
            (row,) = [row for row in one["rows"] if row["variable"] == "C"]
            assert (row["place"], row["verdict"]) == ("resid0@C", "carries")
        assert theirs["left"]["executions"] == ours["left"]["executions"] - 1
        kept = desk.run.read_result(theirs["resource"].rpartition("/")[2])
        assert "program.py" not in json.dumps(kept)
        refused = text_of(asked(desk, "align", **asking, algorithm="/etc/passwd"))
        assert "choose one of arithmetic" in refused


def test_an_explanation_given_as_data_is_run_in_the_models_place(tmp_path: Path) -> None:
    """A - B at B's token is refuted, C at the embedding says nothing, and what cannot be read gets one line."""
    right = {"kind": "runs", "algorithm": "arithmetic", "variables": {"difference": "resid1@B"}}
    with desk_in(tmp_path) as desk:

        def given(**fields: Any) -> Any:
            return asked(desk, "check_claim", specimen="arithmetic", claim={**right, **fields})

        false = given().structured_content
        assert false["verdict"] == "refuted"
        answers, difference = false["evidence"]
        assert (answers["measure"], answers["value"], answers["passed"]) == ("share that the model gives", 1.0, True)
        assert difference["experiment"] == "difference exchanged at resid1@B"
        assert (difference["value"], difference["passed"]) == (0.0, False)
        trivial = given(variables={"C": "resid0@C"}).structured_content
        assert (trivial["verdict"], trivial["evidence"][1]["value"]) == ("untested", 1.0)
        refused = text_of(given(programs={"L0H0": "the answer"}))
        assert "rule 'the answer' does not exist" in refused
        assert "\n" not in refused
