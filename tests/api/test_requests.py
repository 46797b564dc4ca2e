"""A request repeats its result: the call gives the same document again, and nothing that decides it is left out."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import vesalius as ves
from tests.agents.hyve.scripts import WALKTHROUGH
from tests.api.scientist import NAME as SILENT
from tests.closeness import assert_same_document
from vesalius.api import discoveries
from vesalius.behaviours.trial import trial
from vesalius.discovery.discover import discover as scored
from vesalius.discovery.discover import method_named, method_names
from vesalius.discovery.method import MethodResult
from vesalius.documents import Circuit, Discovery, Explanation, Request, Sweep
from vesalius.explanations.scientists import scientist_named
from vesalius.model.specimen import Specimen
from vesalius_mechrl.documents import HeadSets

#: Keywords that do not decide a result: where work is done and how often, where files go, who pays, what is shown.
#: `unsafe_sandbox` decides where generated code may run, not what it gives; `replay` serves what was recorded, and
#: `timeout` decides how long an answer is waited for.
UNDECIDING = {
    *("out", "progress", "engine", "jobs", "device"),
    *("max_cost", "prices", "record", "replay", "unsafe_sandbox", "timeout"),
    *("pass_env", "allow_read", "allow_network"),  # what a command is let to; the request of a command names them
}
#: Of the work itself, and where the files are.
OF_THE_WORK = ("seconds", "directory", "heatmap")


def repeated(result: Any) -> Any:
    """A result again; the scientist of these tests is a function of a module, which the caller names again."""
    asked = getattr(result, "request", result)
    return ves.rerun(result, **({"scientist": SILENT} if asked.method == SILENT else {}))


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


RESULTS: dict[str, Callable[[Specimen], Sweep | Discovery | HeadSets | Explanation]] = {
    "sweep": lambda s: ves.api.sweep_report(s, kind="mean", components="L0_MLP,L1H2", pairs=True, n=3, seed=4),
    "sweep of others": lambda s: ves.api.sweep_report(s, kind="resample", n=2, split="train"),
    "discover": lambda s: ves.discover(s, "eap-ig", n=4, seed=2, steps=2),
    "search": lambda s: ves.discover(s, "bandit", n=4, budget=3, seeds=2, checks=False),
    "sets": lambda s: ves.discover_sets(s, "pairs", pool=["L1H1", "L1H2"], kind="zero", n=8),
    "explain": lambda s: ves.explain(s, ["L0_MLP"], seed=3, leave_out="count"),
    "explain nothing": lambda s: ves.explain(s, []),
    "explain an empty circuit": lambda s: ves.explain(s, empty_circuit(s)),
}


def empty_circuit(specimen: Specimen) -> Circuit:
    config = specimen.model.config
    return Circuit.scored(config, config.d_model, dict.fromkeys(specimen.model.components, 0.0), {})


@pytest.mark.parametrize("name", RESULTS)
def test_a_saved_request_gives_the_same_document(name: str, specimen: Specimen) -> None:
    first = RESULTS[name](specimen)
    assert first.request is not None
    saved = Request.model_validate(json.loads(first.request.model_dump_json()))
    again = repeated(saved)
    assert isinstance(again, type(first))
    assert again.request == first.request
    assert_same_document(again.as_data(), first.as_data(), leave_out=OF_THE_WORK)


def test_a_circuit_in_memory_is_repeated_from_the_file_beside_its_explanation(
    specimen: Specimen, tmp_path: Path
) -> None:
    circuit = ves.discover(specimen, "eap", n=4, checks=False).circuit
    first = ves.explain(specimen, circuit, scientist=SILENT, out=tmp_path)
    assert first.request is not None
    assert (first.request.components, first.request.circuit) == (None, str(tmp_path / "circuit.json"))
    again = repeated(first)
    assert isinstance(again, Explanation)
    assert again.circuit_edges == first.circuit_edges


def test_a_discovered_circuit_is_discovered_again(specimen: Specimen) -> None:
    request = ves.explain(specimen, circuit_from="eap", scientist=SILENT, seed=1).request
    assert request is not None
    assert (request.keywords()["circuit_from"], request.components, request.circuit) == ("eap", None, None)
    again = repeated(request)
    assert isinstance(again, Explanation)
    assert again.request == request


def test_an_abstention_says_that_nothing_was_named(specimen: Specimen) -> None:
    request = ves.explain(specimen, empty_circuit(specimen)).request
    assert request is not None
    assert request.components == ()
    assert "--components ''" in request.command_line()


def test_prompts_in_memory_are_marked_and_asked_for(specimen: Specimen) -> None:
    material, other = (trial(specimen, 3, seed=seed) for seed in (5, 6))
    first = ves.discover(specimen, material=material, checks=False)
    assert first.request.options["material"] != ves.discover(
        specimen, material=other, checks=False
    ).request.options.get("material")
    assert "# on prompts given in Python" in first.request.command_line()
    for wrong in ({}, {"material": other}):
        with pytest.raises(ves.BadInput, match="prompts given as material"):
            ves.rerun(first, **wrong)
    again = ves.rerun(first, material=material)
    assert_same_document(again.as_data(), first.as_data(), leave_out=OF_THE_WORK)


def test_what_has_no_request_is_refused(specimen: Specimen) -> None:
    with pytest.raises(ves.BadInput, match="int holds no request"):
        ves.rerun(5)
    with pytest.raises(ves.BadInput, match="repeated by its command: vesalius bench circuits"):
        ves.rerun(Request(command="bench circuits"))


METHODS = method_names()
SCIENTISTS = ("builtin", "hyve", "hybrid")
#: Stands for the directory of the model under test.
OWN_TOKENIZER = "its own directory"
#: Another value than the default of every keyword, and the keywords that it needs beside it.
OTHER_VALUES: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {
    "sweep": {
        "kind": ("mean", {}),
        "force": (True, {}),
        "components": (["L0H0"], {}),
        "pairs": (True, {}),
        "sites": ("resid", {"components": None}),
        "by": ("position", {"sites": "resid", "components": None}),
        "features": ("its own directory of dictionaries", {"components": None, "sites": "features", "kind": "zero"}),
        "n": (2, {}),
        "seed": (1, {}),
        "split": ("train", {}),
        "behaviour": ("induction-out", {}),
        "metric": ("probability", {}),
        "tokenizer": (OWN_TOKENIZER, {}),
        "revision": ("main", {}),
        "dtype": ("float64", {}),
        "material": (None, {}),
    },
    "discover": {
        "method": ("eap", {}),
        "n": (2, {}),
        "seed": (1, {}),
        "checks": (False, {}),
        "force": (False, {}),
        "budget": (2, {"method": "bandit"}),
        "paper": (True, {"method": "rl"}),
        "seeds": (2, {"method": "bandit"}),
        "steps": (10, {"method": "rl"}),
        "rate": (0.2, {"method": "masks"}),
        "sparsity": (1.0, {"method": "masks"}),
        "warm": (False, {"method": "masks"}),
        "edges": (20, {"method": "edge-masks"}),
        "methods": ("eap+relp", {"method": "ensemble"}),
        "rule": ("best", {"method": "ensemble"}),
        "start": ("eap", {"method": "elimination"}),
        "by": ("relp", {"method": "elimination"}),
        "share": (0.5, {"method": "elimination"}),
        "group": (0.5, {"method": "elimination"}),
        "candidates": (3, {"method": "acdc"}),
        "keep": (0.9, {}),
        "most": (5, {}),
        "split": ("train", {}),
        "select": (["top"], {}),
        "size": (2, {"select": ["top"]}),
        "features": ("its own directory of dictionaries", {}),
        "rivals": (1, {}),
        "rivals_by": ("edges", {"method": "eap", "rivals": 1}),
        "behaviour": ("induction-out", {}),
        "metric": ("probability", {}),
        "tokenizer": (OWN_TOKENIZER, {}),
        "revision": ("main", {}),
        "dtype": ("float64", {}),
        "material": (None, {}),
    },
    "discover_sets": {
        "search": ("greedy", {}),
        "pool": (["L0H0", "L0H1"], {}),
        "kind": ("zero", {}),
        "least": (0.2, {}),
        "budget": (9, {}),
        "n": (9, {}),
        "seed": (1, {}),
        "force": (False, {}),
        "behaviour": ("induction-out", {}),
        "metric": ("probability", {}),
        "tokenizer": (OWN_TOKENIZER, {}),
        "revision": ("main", {}),
        "dtype": ("float64", {}),
    },
    "explain": {
        "components": (["L0H0"], {}),
        "circuit": (None, {}),
        "circuit_from": ("sweep", {}),
        "scientist": (SILENT, {}),
        "backbone": (f"scripted:{WALKTHROUGH}", {}),
        "protocol": ("paper", {}),
        "compact": (True, {}),
        "prompts": (None, {}),
        "no_ladder": (True, {}),
        "n": (5, {}),
        "top": (2, {}),
        "force": (False, {}),
        "leave_out": ("count", {}),
        "seed": (1, {}),
        "behaviour": ("induction-out", {}),
        "metric": ("probability", {}),
        "tokenizer": (OWN_TOKENIZER, {}),
        "revision": ("main", {}),
        "dtype": ("float64", {}),
        "base_url": ("http://localhost:1", {}),
        "max_tokens": (9, {}),
    },
}


@pytest.mark.parametrize("command", OTHER_VALUES)
def test_every_keyword_is_named_as_deciding_or_not(command: str) -> None:
    keywords = set(list(inspect.signature(getattr(ves, command)).parameters)[1:])
    if "options" in keywords:  # those of the method, or of the scientist, that is named
        named = [scientist_named(one) for one in SCIENTISTS] if command == "explain" else map(method_named, METHODS)
        keywords = keywords - {"options"} | {name for one in named for name in one.option_help()}
    assert keywords == set(OTHER_VALUES[command]) | (keywords & UNDECIDING)
    assert not set(OTHER_VALUES[command]) & UNDECIDING


def asked(command: str, tiny: Path, **keywords: Any) -> Request:
    call = ves.api.sweep_report if command == "sweep" else getattr(ves, command)
    usual: dict[str, Any] = {"behaviour": "induction", "n": 8 if command == "discover_sets" else 4, "force": True}
    usual |= {"components": ["L0H0", "L0H1"]} if command == "sweep" else {}
    usual |= {"scientist": SILENT} if command == "explain" else {}
    usual |= {"checks": False} if command == "discover" else {}
    request = call(str(tiny), **(usual | keywords)).request
    assert request is not None
    return request


@pytest.mark.parametrize("command", ["sweep", "discover", "discover_sets"])
def test_every_keyword_that_decides_is_in_the_request(
    command: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(specimen: Specimen, method: str, **options: Any) -> MethodResult:
        """The scores of a sweep under another method's name: only what was asked is tested."""
        kept = {name: options[name] for name in ("n", "seed", "split", "material", "force")}
        return replace(scored(specimen, "sweep", **kept), method=method)

    monkeypatch.setattr(discoveries, "scored", quick)
    monkeypatch.setattr(discoveries, "_rivals", lambda *given, **options: None)
    usual = asked(command, tiny)
    for keyword, (value, beside) in OTHER_VALUES[command].items():
        if keyword == "material":
            value = trial(ves.load(str(tiny), behaviour="induction"), 4, seed=9)
        elif keyword == "tokenizer":
            value = str(tiny)
        elif keyword == "features":
            value = str(_dictionary(tiny, tiny.parent / "dictionary"))
            beside = beside | {keyword: str(_dictionary(tiny, tiny.parent / "another"))}
        elif keyword == "checks":
            assert asked(command, tiny).options["quick"] is True
            continue
        elif keyword == "force":
            assert usual.options["force"] is True
            continue
        changed = asked(command, tiny, **(beside | {keyword: value}))
        assert changed != asked(command, tiny, **beside), keyword
        given = changed.keywords()[keyword]
        if keyword != "material":
            assert (list(given) if isinstance(given, tuple) else given) == value, keyword


def _dictionary(tiny: Path, place: Path) -> Path:
    """A directory with a dictionary of eight latents of the tiny model."""
    place.mkdir(exist_ok=True)
    (place / "cfg.json").write_text('{"hook_name": "blocks.0.hook_mlp_out", "architecture": "standard"}')
    d, generator = ves.load(str(tiny)).model.config.d_model, torch.Generator().manual_seed(0)
    shapes = {"W_enc": (d, 8), "b_enc": (8,), "W_dec": (8, d), "b_dec": (d,)}
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(weights, place / "sae_weights.safetensors")
    return place


def test_every_keyword_that_decides_an_explanation_is_in_its_request(tiny: Path, tmp_path: Path) -> None:
    circuit = tmp_path / "circuit.json"
    ves.discover(str(tiny), behaviour="induction", n=2, checks=False, force=True).circuit.write(circuit)
    usual = asked("explain", tiny)
    for keyword, (value, beside) in OTHER_VALUES["explain"].items():
        if keyword in ("leave_out", "no_ladder", "prompts"):  # of one scientist alone: in tests of their own
            continue
        if keyword in ("scientist", "force"):
            assert usual.keywords()[keyword] == (value if keyword == "scientist" else True)
            continue
        given = {"circuit": str(circuit), "tokenizer": str(tiny)}.get(keyword, value)
        changed = asked("explain", tiny, **beside, **{keyword: given})
        assert changed != usual, keyword
        found = changed.keywords()[keyword]
        assert (list(found) if isinstance(found, tuple) else found) == given, keyword


def test_the_option_of_the_builtin_scientist_is_in_the_request(specimen: Specimen) -> None:
    left_out = ves.explain(specimen, ["L0_MLP"], leave_out="count").request
    assert left_out is not None
    assert left_out.keywords()["leave_out"] == "count"


def test_the_number_format_of_a_loaded_model_is_in_the_request(tiny: Path) -> None:
    loaded = ves.load(str(tiny), behaviour="induction", dtype=torch.float64)
    request = ves.api.sweep_report(loaded, components=["L0H0"], n=2, kind="zero").request
    assert request.options["dtype"] == "float64"
    assert "--dtype float64" in request.command_line()
    with pytest.raises(ves.BadInput, match="is loaded already"):
        ves.sweep(loaded, dtype="float32")


def test_how_a_loaded_model_was_read_is_in_the_request_and_repeated(tiny: Path) -> None:
    loaded = ves.load(str(tiny), behaviour="induction", tokenizer=tiny, revision="main")
    first = ves.api.sweep_report(loaded, components=["L0H0"], n=2, kind="zero")
    assert (first.request.options["tokenizer"], first.request.options["revision"]) == (str(tiny), "main")
    assert f"--tokenizer {tiny} --revision main" in first.request.command_line()
    saved = Request.model_validate(json.loads(first.request.model_dump_json()))
    assert_same_document(repeated(saved).as_data(), first.as_data(), leave_out=OF_THE_WORK)
    for given in ({"tokenizer": "elsewhere"}, {"revision": "other"}):
        with pytest.raises(ves.BadInput, match="is loaded already; give"):
            ves.sweep(loaded, n=2, **given)
    plain = ves.api.sweep_report(
        ves.load(str(tiny), behaviour="induction"), components=["L0H0"], n=2, kind="zero"
    ).request
    assert {"tokenizer", "revision"}.isdisjoint(plain.options)


def test_a_tokenizer_in_memory_is_marked_and_asked_for(tiny: Path) -> None:
    from tokenizers import Tokenizer

    own = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    first = ves.api.sweep_report(
        ves.load(str(tiny), behaviour="induction", tokenizer=own), components=["L0H0"], n=2, kind="zero"
    )
    with pytest.raises(ves.BadInput, match="a tokenizer given in Python; give the same one"):
        ves.rerun(first)
    again = ves.rerun(first, tokenizer=own)
    assert_same_document(again.as_data(), first.as_data(), leave_out=OF_THE_WORK)
