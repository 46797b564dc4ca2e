"""Behaviours of one's own from the command line: a file, one prompt, every metric, and what they refuse."""

import json
import re
import shutil
from pathlib import Path

import pytest

import vesalius as ves
from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from vesalius.api import discoveries
from vesalius.behaviours.own import RowBehaviour

PAIRS = [
    ("France", "Paris"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Germany", "Berlin"),
    ("Austria", "Vienna"),
    ("Poland", "Warsaw"),
    ("Russia", "Moscow"),
    ("Greece", "Athens"),
    ("Egypt", "Cairo"),
    ("Japan", "Tokyo"),
    ("China", "Beijing"),
    ("Peru", "Lima"),
]
PROMPT = ["--prompt", "The capital of France is", "--answer", " Paris"]


def rows() -> list[dict]:
    made = []
    for i, (country, capital) in enumerate(PAIRS):
        other, wrong = PAIRS[(i + 3) % len(PAIRS)]
        made.append(
            {
                "prompt": f"The capital of {country} is",
                "answer": f" {capital}",
                "wrong": f" {wrong}",
                "counterfactual": f"The capital of {other} is",
                "roles": {"country": country},
            }
        )
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "capitals.jsonl"
    path.write_text("\n".join(map(json.dumps, rows())))
    return path


def answer(vesalius: Vesalius, *arguments: object) -> dict:
    got = vesalius(*arguments, "--json")
    assert got.code == 0, got.err
    return json.loads(got.out)


def test_the_check_says_what_becomes_of_each_row(vesalius: Vesalius, tiny: Path, file: Path) -> None:
    with file.open("a") as more:
        more.write("\n" + json.dumps({**rows()[0], "answer": "Paris"}) + "\n" + json.dumps(rows()[1]))
    found = answer(vesalius, "behaviours", tiny, "--behaviour", file)
    assert (found["n_rows"], found["n_kept"]) == (14, 12)
    assert [row["row"] for row in found["rows"]] == list(range(1, 15))
    assert found["rows"][12] == {
        "row": 13,
        "kept": False,
        "reason": "starts without a space: did you mean ' Paris'?",
        "split": "train",
        "prompt": "The capital of France is",
        "suggestion": 'to continue the word, give the row "as_written": true',
        "tokens": None,
    }
    assert found["rows"][0]["tokens"] == "<bos>|The| capital| of| France| is → ' Paris' against ' Berlin'"
    assert found["rows"][13]["reason"] == "duplicate: the same as row 2"
    assert {split: part["n"] for split, part in found["splits"].items()} == {"train": 4, "validation": 4, "test": 4}
    for part in (found, *found["splits"].values()):
        assert set(part["accuracy"]) == set(part["metric"]) == {"value", "low", "high", "n"}
        assert part["metric"]["low"] <= part["metric"]["value"] <= part["metric"]["high"]
    assert found["accuracy"]["n"] == 12
    assert found["metric"]["value"] == pytest.approx(
        sum(part["metric"]["value"] for part in found["splits"].values()) / 3, abs=1e-5
    )
    text = vesalius("behaviours", tiny, "--behaviour", file).out
    assert "12 of 14 rows can be used" in text
    assert "row 13: starts without a space" in text


def test_two_rows_and_none_at_all(vesalius: Vesalius, tiny: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(map(json.dumps, rows()[:2])))
    found = answer(vesalius, "behaviours", tiny, "--behaviour", few)
    assert list(found["splits"]) == ["all"]
    assert found["metric"]["high"] - found["metric"]["low"] > 0
    assert found["accuracy"]["low"] < 0.35 or found["accuracy"]["high"] > 0.65
    few.write_text(json.dumps({**rows()[0], "answer": "Paris"}))
    got = vesalius("behaviours", tiny, "--behaviour", few, "--json")
    nothing = json.loads(got.out)
    assert (nothing["n_kept"], nothing["accuracy"], nothing["metric"]) == (0, None, None)
    assert got.code == 2
    assert got.err == f"vesalius: {tiny}: none of the rows can be used with this model; the reasons are above\n"
    new = tmp_path / "new.jsonl"
    refused(vesalius, ["behaviours", tiny, "-b", few, "--propose", new], "none of the rows can be used with this model")
    assert not new.exists()
    reason = "'The capital of France is' cannot be used with this model: starts without a space: did you mean ' Paris'?"
    refused(vesalius, ["sweep", tiny, "--behaviour", few, "--json"], reason)
    few.write_text("\n".join(json.dumps({**row, "answer": row["answer"].strip()}) for row in rows()[:2]))
    reason = (
        f"row 1: starts without a space: did you mean ' Paris'? (`vesalius behaviours MODEL --behaviour {few}` says"
    )
    refused(vesalius, ["sweep", tiny, "--behaviour", few, "--json"], reason)


def test_rows_that_share_a_reason_share_a_line(vesalius: Vesalius, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    unknown = [{**row, "split": "exam"} for row in rows()[:8]]
    own_reasons = [{"prompt": "The capital of France is", "answer": " Paris", "wrong": f"{i}"} for i in range(25)]
    file.write_text("\n".join(map(json.dumps, [*unknown, *own_reasons])))
    lines = vesalius("behaviours", tiny, "--behaviour", file).out.splitlines()
    reasons = [line for line in lines if line.startswith("  row")]
    assert reasons[0] == "  rows 1, 2, 3, 4, 5 and 3 more: split 'exam' does not exist: use train, validation or test"
    assert len(reasons) <= 20


def test_one_prompt_is_checked_as_a_file_is(vesalius: Vesalius, tiny: Path) -> None:
    found = answer(vesalius, "behaviours", tiny, *PROMPT, "--wrong", " Rome", "--wrong", " New Zealand")
    assert (found["n_rows"], found["n_kept"]) == (1, 1)
    assert found["rows"][0]["reason"] == "kept without wrong ' New Zealand' (2 tokens)"
    refused(vesalius, ["behaviours", tiny, "--prompt", "a"], "--prompt needs --answer")


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_a_file_is_swept_as_a_name_is(vesalius: Vesalius, tiny: Path, file: Path, kind: str) -> None:
    asked = ["sweep", tiny, "--behaviour", file, "--kind", kind]
    if kind == "resample":  # a random model's score does not fall with everything replaced
        refused(vesalius, [*asked, "--json"], "behaviour capitals: the contrast is reversed: the score is -0.")
        asked.append("--force")
    found = answer(vesalius, *asked)
    assert found.get("contrast", {}).get("verdict") == ("reversed" if kind == "resample" else None)
    assert (found["behaviour"], found["n"], len(found["components"])) == (str(file), 4, 10)
    assert all(row["ci_low"] <= row["effect"] <= row["ci_high"] for row in found["components"])
    digits = "-[0-9a-f]{6}"  # of the paths
    assert re.fullmatch(f"sweep-tiny{digits}-capitals{digits}-{kind}-n4-seed0", Path(found["directory"]).name)


def test_files_of_one_name_do_not_share_a_directory(vesalius: Vesalius, tiny: Path, file: Path) -> None:
    elsewhere = file.parent / "other" / file.name
    elsewhere.parent.mkdir()
    elsewhere.write_text("\n".join(file.read_text().splitlines()[:6]))
    for one in (file, elsewhere, file):
        assert vesalius("sweep", tiny, "-b", one, "--n", 2, "--force").code == 0
    documents = [json.loads(path.read_text()) for path in Path("vesalius-runs").glob("sweep-*/sweep.json")]
    assert {one["behaviour"] for one in documents} == {str(file), str(elsewhere)}
    assert len(documents) == 2


def test_one_prompt_has_effects_without_intervals(vesalius: Vesalius, tiny: Path) -> None:
    got = vesalius("sweep", tiny, *PROMPT, "--wrong", " Rome", "--json", "--force")
    assert got.code == 0, got.err
    assert "one prompt shows what this model does on this prompt: effects have no interval" in got.err
    found = json.loads(got.out)
    assert (found["n"], found["baseline_low"], found["baseline_high"]) == (1, None, None)
    assert {(row["ci_low"], row["ci_high"]) for row in found["components"]} == {(None, None)}
    again = answer(vesalius, "sweep", tiny, "--behaviour", found["behaviour"], "--force")
    assert [row["effect"] for row in again["components"]] == [row["effect"] for row in found["components"]]
    assert "no interval" in vesalius("sweep", tiny, *PROMPT).err


def test_missing_counterfactuals_are_said_where_they_matter(vesalius: Vesalius, tiny: Path) -> None:
    resampled = vesalius("sweep", tiny, *PROMPT, "--kind", "resample")
    assert "lacks counterfactuals: of 1 prompts 1 from random tokens are resampled" in resampled.err
    assert "counterfactuals" not in vesalius("sweep", tiny, *PROMPT, "--kind", "zero").err


@pytest.mark.parametrize("metric", ["probability", "probability-difference", "log-probability", "loss", "kl"])
def test_every_metric_goes_through_every_command(vesalius: Vesalius, tiny: Path, file: Path, metric: str) -> None:
    swept = answer(vesalius, "sweep", tiny, "--behaviour", file, "--metric", metric, "-c", "L0H0,L1_MLP", "--force")
    specimen = ves.load(tiny, behaviour=rows(), metric=metric)
    effects = ves.sweep(specimen, components="L0H0,L1_MLP", force=True, progress=False)
    in_python = {str(members[0]): float(mean) for members, mean in zip(effects.sets, effects.mean, strict=True)}
    for row in swept["components"]:
        assert row["effect"] == pytest.approx(in_python[row["id"]], abs=1e-4)
    found = answer(vesalius, "discover", tiny, "--behaviour", file, "--metric", metric, "--method", "eap", "--force")
    assert len(found["components"]) == 10
    # A random model's probabilities may hardly change where everything is ablated: then that is the reason given.
    undefined = found["checks"]["missing"].get("faithfulness", "")
    assert (found["checks"]["faithfulness"] is None) == ("faithfulness is undefined" in undefined)


def test_discover_and_explain_take_a_file(vesalius: Vesalius, tiny: Path, file: Path) -> None:
    found = answer(vesalius, "discover", tiny, "--behaviour", file, "--force")
    assert found["behaviour"] == str(file)
    assert found["checks"]["faithfulness"]["n"] == 4
    assert found["checks"]["specificity"]["own"]["n"] == 4
    explained = answer(vesalius, "explain", tiny, "--behaviour", file, "--force", "--top", "3")
    assert "Complete 'The capital of France is' with 'Paris'" in explained["task_description"]
    single = answer(vesalius, "explain", tiny, *PROMPT, "--force", "--top", "2", "--metric", "log-probability")
    verdicts = {claim["verdict"] for part in single["components"] for claim in part["claims"]}
    assert verdicts <= {"undecided"}, "one prompt decides nothing"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--prompt", "The capital of France is"], "--prompt needs --answer"),
        (["--answer", " Paris"], "--answer, --wrong and --counterfactual go with --prompt"),
        ([*PROMPT, "--behaviour", "ioi"], "--behaviour and --prompt both say what to study"),
        (["--prompt", "The capital of France is", "--answer", "Paris"], "did you mean ' Paris'?"),
        (
            [*PROMPT, "--counterfactual", "The capital of New Zealand is"],
            "model: 6 tokens against 7 (instead of",
        ),
        (
            [*PROMPT, "--metric", "logit-difference"],
            "model: no wrong answer: give one, or --metric log-probability",
        ),
        ([*PROMPT, "--metric", "vibes"], "metric 'vibes' does not exist; choose one of logit-difference"),
        ([*PROMPT, "--split", "exam"], "split 'exam' does not exist; choose one of train, validation, test"),
        (["--behaviour", "rows.jsonl"], "behaviour rows.jsonl: no such file"),
        (["--behaviour", "./rows"], "no such file; give a file of rows"),
        (["--behaviour", "{not json"], "not readable as JSON"),
        (["--behaviour", '{"prompt": "a", "anser": " b"}'], "field 'anser' is not known; did you mean 'answer'?"),
        (["--behaviour", "FOLDER"], "no .parquet or .arrow file in it"),
        (["--behaviour", "YAML"], ".yaml is not read; give .jsonl, .json, .csv"),
        (["--behaviour", "ioi", "--metric", "accuracy"], "metric 'accuracy' does not exist"),
        ([*PROMPT, "--out", "/proc/nope"], "--out /proc/nope"),
    ],
)
@pytest.mark.parametrize("command", ["sweep", "discover"])
def test_refusals(vesalius: Vesalius, tiny: Path, command: str, arguments: list[str], reason: str) -> None:
    if command == "discover" and "--split" in arguments:
        pytest.skip("discover has no --split")
    (tiny.parent / "folder").mkdir()
    (tiny.parent / "rows.yaml").write_text("- a")
    places = {"FOLDER": str(tiny.parent / "folder"), "YAML": str(tiny.parent / "rows.yaml")}
    refused(vesalius, [command, tiny, *(places.get(one, one) for one in arguments), "--json"], reason)


def test_a_file_without_a_model_and_a_metric_without_a_file(vesalius: Vesalius, tiny: Path, file: Path) -> None:
    refused(vesalius, ["behaviours", "--behaviour", file], "name the model whose tokenizer reads it")
    refused(vesalius, ["behaviours", tiny, "--metric", "kl"], "name the behaviour that is measured by it")
    refused(vesalius, ["sweep", "frac_prevs", "--metric", "kl"], "has one task of its own; leave out the metric 'kl'")
    refused(vesalius, ["sweep", "frac_prevs", "--split", "foo"], "split 'foo' does not exist")


def test_a_model_without_a_tokenizer_is_given_another_one(vesalius: Vesalius, tiny: Path, file: Path) -> None:
    bare = tiny.parent / "bare"
    shutil.copytree(tiny, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    for command in (["behaviours", bare], ["behaviours", bare, "--behaviour", file]):
        refused(vesalius, command, "has no tokenizer; give the directory of one, with --tokenizer")
    refused(vesalius, ["sweep", bare, "--behaviour", file], "there is no tokenizer.json; add one, or give another's")
    refused(vesalius, ["behaviours", "frac_prevs", "--behaviour", file], "has one task of its own")
    found = answer(vesalius, "behaviours", bare, "--behaviour", file, "--tokenizer", str(tiny))
    assert found["n_kept"] == answer(vesalius, "behaviours", tiny, "--behaviour", file)["n_kept"] == 12


def test_numbers_that_no_comparison_has_are_refused_before_the_model_is_read(vesalius: Vesalius, tiny: Path) -> None:
    refused(vesalius, ["check", tiny, "--n", "99999999999"], "an experiment on 99999999999 prompts is not possible")
    refused(vesalius, ["check", tiny, "--seed", "-1"], "seed -1 cannot be used")


def test_python_takes_names_paths_rows_and_behaviours(tiny: Path, file: Path) -> None:
    forms = [str(file), file, rows(), ves.Behaviour.from_file(file), ves.Behaviour.from_rows(rows(), name="mine")]
    examples = [ves.load(tiny, behaviour=form).examples for form in forms]
    assert all(len(one) == 5 for one in examples)
    specimen = ves.load(tiny)
    assert ves.sweep(specimen, behaviour=rows()[0], n=1, progress=False).matrix.shape == (1, 10)
    with pytest.raises(ves.BadInput, match=r"is float; give a name, a path, a list of rows or a ves.Behaviour"):
        ves.load(tiny, behaviour=3.5)
    generated = ves.load(tiny, behaviour=(row for row in rows()))
    assert generated.examples == examples[2]
    made = ves.Behaviour.from_rows(iter(rows()))
    assert isinstance(made, RowBehaviour)
    assert len(made.rows) == 12


@pytest.mark.parametrize(
    ("prompt", "given", "reason"),
    [
        ("The capital of France is", None, "prompt 'The capital of France is': has no answer"),
        ("x", [], "prompt 'x': has no answer"),
        ("x", 4, "prompt 'x': answer 4 is a number"),
        (None, " Paris", "prompt None: has no prompt"),
        ("", " Paris", "prompt '': has no prompt"),
    ],
)
def test_one_prompt_must_be_complete(prompt: object, given: object, reason: str) -> None:
    with pytest.raises(ves.BadInput) as error:
        ves.Behaviour.from_prompt(prompt, given)
    assert reason in str(error.value)


def test_a_model_in_memory_needs_a_tokenizer_for_a_behaviour() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 11}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with pytest.raises(ves.BadInput, match="a model in memory has no tokenizer; give one of transformers"):
        ves.load(model, behaviour=rows())


def test_functions_keep_their_names_beside_packages() -> None:
    import vesalius.behaviours.registry
    import vesalius.report.pages  # noqa: F401

    assert callable(ves.behaviours)
    assert callable(ves.report)


def test_the_likeliest_tokens_have_probabilities(vesalius: Vesalius, tiny: Path) -> None:
    found = answer(vesalius, "predict", tiny, "--input", '["The capital of France is"]', "--top", "3")
    [best] = found["top"]
    assert len(best) == 3
    assert best[0]["token"] == found["outputs"][0][-1]
    assert best[0]["probability"] >= best[1]["probability"] >= best[2]["probability"] > 0
    assert ves.predict(tiny, "The capital of France is") == found["outputs"]
    refused(vesalius, ["predict", "frac_prevs", "--input", '[["a"]]', "--top", "2"], "is not a natural model")


def test_wrong_things_in_python_are_refused_in_one_line() -> None:
    with pytest.raises(ves.BadInput, match=r"str is not an explanation; grade what ves.explain returned"):
        ves.grade("x")
    with pytest.raises(ves.BadInput, match=r"list is not a specimen; give a name, a path or what ves.load returned"):
        ves.sweep(["models/gpt2"])
    with pytest.raises(ves.BadInput, match="component 'L' is not a name"):
        ves.sweep("frac_prevs", components=["L"], progress=False)
    assert len(ves.sweep("frac_prevs", components="L0H0,L1_MLP", n=2, progress=False).sets) == 2


def test_the_number_of_prompts_is_the_number_of_rows(tiny: Path) -> None:
    found = ves.discover(tiny, "eap", behaviour=rows(), checks=False, force=True, progress=False)
    assert found.n == 4


def test_rivals_of_a_behaviour_of_one_row_are_refused_before_the_discovery(
    vesalius: Vesalius, tiny: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_called(*given: object, **options: object) -> None:
        raise AssertionError("the discovery was run")

    monkeypatch.setattr(discoveries, "scored", not_called)
    file.write_text(json.dumps(rows()[0]))
    options = ["discover", tiny, "--behaviour", file, "--rivals", "1", "--force"]
    refused(vesalius, options, "give more rows or a smaller --n, or leave out --rivals")
    refused(vesalius, [*options, "--plan"], "give more rows or a smaller --n, or leave out --rivals")
