"""Files in InterpBench's and AgenticInterpBench's layouts load exactly, and nothing in their pickles is executed."""

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.models import random_model, same_logits
from vesalius.circuits.originals import (
    hook_component,
    load_original,
    original_components,
    original_edges,
    tracr_order,
)
from vesalius.components import Component
from vesalius.errors import BadInput, Failed
from vesalius.model import Config, Transformer
from vesalius.model.states import to_state
from vesalius.rasp import Role
from vesalius_truth.key import answer
from vesalius_truth.key.other_keys import read_annotation

#: The shape of the published frac_prevs model, with a categorical output unless changed.
FRAC_PREVS = Config(
    n_layers=2, n_heads=4, d_model=12, d_head=3, d_mlp=48, d_vocab=6, d_vocab_out=3, n_ctx=5, activation="gelu"
)
EDGES = [
    ("hook_embed", "blocks.0.hook_mlp_in"),
    ("hook_pos_embed", "blocks.1.hook_q_input[2]"),
    ("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]"),
    ("blocks.1.hook_v_input[2]", "blocks.1.attn.hook_v[2]"),
    ("blocks.1.attn.hook_v[2]", "blocks.1.attn.hook_result[2]"),
    ("blocks.1.attn.hook_result[2]", "blocks.1.hook_resid_post"),
]


class Malicious:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def refusal(work: Callable[[], object], kind: type[Exception] = BadInput) -> str:
    with pytest.raises(kind) as error:
        work()
    assert "\n" not in str(error.value)
    return str(error.value)


def settings_of(config: Config) -> dict[str, Any]:
    """What the published configuration says of such a model, among much else."""
    names = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "d_vocab_out", "n_ctx")
    return {name: getattr(config, name) for name in names} | {
        "act_fn": "gelu",
        "normalization_type": None,
        "attention_dir": "causal" if config.causal else "bidirectional",
        "use_attn_scale": True,
        "use_split_qkv_input": True,
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "tokenizer_name": None,
    }


def pickled_config(config: Config, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A pickle of an object of TransformerLens' class, made by a module that is gone before anything is loaded."""
    module = ModuleType("transformer_lens.HookedTransformerConfig")
    kind = type("HookedTransformerConfig", (), {"__module__": module.__name__})
    module.HookedTransformerConfig = kind  # type: ignore[attr-defined]
    config_object = kind()
    vars(config_object).update(settings_of(config))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformer_lens", ModuleType("transformer_lens"))
        patch.setitem(sys.modules, module.__name__, module)
        return pickle.dumps(config_object)


def write_case(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    edges: Any = EDGES,
    meta: dict[str, Any] | None = None,
    **changes: Any,
) -> Transformer:
    """Write one case's four files; the model they hold."""
    model = random_model(FRAC_PREVS.model_copy(update=changes), seed=3)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.clone() for name, value in to_state(model).items()}
    for layer in range(model.config.n_layers):
        state[f"blocks.{layer}.attn.mask"] = torch.ones(5, 5, dtype=torch.bool).tril()
        state[f"blocks.{layer}.attn.IGNORE"] = torch.tensor(-torch.inf)
    torch.save(state, folder / "ll_model.pth")
    (folder / "ll_model_cfg.pkl").write_bytes(pickled_config(model.config, monkeypatch))
    (folder / "edges.pkl").write_bytes(pickle.dumps(edges))
    (folder / "meta.json").write_text(json.dumps({"lr": 0.001, "epochs": 2000, **(meta or {})}))
    return model


# --- the models


def test_a_case_loads_with_its_circuit_and_its_own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path / "3", monkeypatch)
    specimen = load_original(tmp_path, 3, vocab=[7, 5, 9, 30])
    assert (specimen.id, specimen.kind) == ("interpbench/3", "benchmark")
    assert specimen.components == (Component(0), Component(1, 2))
    assert specimen.vocabulary.summary() == [5, 7, 9, 30]
    assert (specimen.model.config.bos_token, specimen.model.config.pad_token) == (4, 5)
    published = torch.tensor([[4, 0, 3, 1, 1]])
    assert torch.equal(specimen.tokenize([[5, 30, 7, 7]]), published)
    assert same_logits(specimen.model(published), model(published))
    expected = model(published)[0, 1:].argmax(-1).tolist()
    assert specimen.predict([[5, 30, 7, 7]]) == [expected]
    assert len(specimen.examples) == 5
    assert specimen.predict([example["input"] for example in specimen.examples]) == [
        example["output"] for example in specimen.examples
    ]
    assert {len(tokens) for tokens in specimen.sample(50)} == {4}, "these models know the longest inputs only"


def test_words_follow_the_two_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracr sorts "BOS" and "PAD" before lower-case letters, so a, b, c and x have the published ids 2 to 5."""
    model = write_case(tmp_path, monkeypatch)
    specimen = load_original(tmp_path, "3", vocab=["x", "a", "b", "c"])
    ours, published = specimen.tokenize([["a", "x", "c", "x"]]), torch.tensor([[0, 2, 5, 4, 5]])
    assert ours.tolist() == [[4, 0, 3, 2, 3]]
    assert same_logits(specimen.model(ours), model(published))


def test_ids_can_be_given_outright(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path / "19", monkeypatch)
    specimen = load_original(tmp_path / "19", vocab=["PAD", "b", "BOS", "a", "d", "c"])
    assert specimen.id == "interpbench/19"
    ours, published = specimen.tokenize([["a", "b", "c", "d"]]), torch.tensor([[2, 3, 1, 5, 4]])
    assert same_logits(specimen.model(ours), model(published))


def test_an_unembedding_tied_to_the_embedding_keeps_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path, monkeypatch, d_vocab_out=6)
    state = torch.load(tmp_path / "ll_model.pth", weights_only=True)
    del state["unembed.W_U"]
    torch.save(state, tmp_path / "ll_model.pth")
    model.unembed_weight = model.W_E
    specimen = load_original(tmp_path, vocab=["a", "b", "c", "x"])
    assert same_logits(specimen.model(torch.tensor([[4, 0, 3]])), model(torch.tensor([[0, 2, 5]])))


def test_vocabulary_and_outputs_from_meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path, monkeypatch, meta={"vocab": [1, 2, 3, 4], "outputs": ["low", ["a", 1], None]})
    specimen = load_original(tmp_path)
    values = ["low", ["a", 1], None]
    codes = model(torch.tensor([[4, 3, 2, 1, 0]]))[0, 1:].argmax(-1).tolist()
    assert specimen.predict([[4, 3, 2, 1]]) == [[values[code] for code in codes]]
    chosen = load_original(tmp_path, outputs=[10, 20, 30])
    assert chosen.predict([[4, 3, 2, 1]]) == [[(10, 20, 30)[code] for code in codes]]


def test_one_output_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path, monkeypatch, d_vocab_out=1)
    specimen = load_original(tmp_path, vocab=[1, 2, 3, 4])
    expected = model(torch.tensor([[4, 0, 0, 1, 3]]))[0, 1:, 0].tolist()
    assert specimen.predict([[1, 1, 2, 4]]) == [pytest.approx(expected)]
    assert "1 output values do not fit" in refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4], outputs=[0]))


def test_meta_may_be_missing_but_not_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_case(tmp_path, monkeypatch)
    (tmp_path / "meta.json").write_text("{")
    assert "meta.json: not readable as JSON" in refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4]))
    (tmp_path / "meta.json").write_text('{"vocab": "abcd"}')
    assert "meta.json: vocab is str; expected a list" in refusal(lambda: load_original(tmp_path))
    (tmp_path / "meta.json").unlink()
    assert load_original(tmp_path, vocab=[1, 2, 3, 4]).components == (Component(0), Component(1, 2))


def test_order_of_tracrs_encoders() -> None:
    """Worked by hand: numbers by size and before capitals, capitals before lower case, brackets before both."""
    assert tracr_order([10, "PAD", 9, "BOS", -1]) == [-1, 9, 10, "BOS", "PAD"]
    assert tracr_order(["b", "PAD", "(", "Z", "BOS", "A"]) == ["(", "A", "BOS", "PAD", "Z", "b"]
    assert tracr_order([True, False]) == [False, True]


@pytest.mark.parametrize(
    ("vocab", "reason"),
    [
        (None, "meta.json: no list of input tokens; pass vocab= with the 4 tokens of the task"),
        ([1, 2, 3], "a vocabulary of 3 tokens does not fit; this model takes 4 distinct tokens"),
        ([1, 2, 3, 3], "a vocabulary of 4 tokens does not fit"),
        ([1, 2, 3, "BOS"], "a vocabulary of 4 tokens does not fit"),
        (["a", "b", "BOS", "PAD"], "or 6 with 'BOS' and 'PAD' among them"),
        ([1, 2, 3, True], "token True of the vocabulary is neither text nor number"),
        ([1, 2, 3, [4]], "token [4] of the vocabulary is neither text nor number"),
    ],
)
def test_a_vocabulary_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocab: Any, reason: str
) -> None:
    write_case(tmp_path, monkeypatch)
    assert reason in refusal(lambda: load_original(tmp_path, vocab=vocab))


def test_folders_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in ("3", "19"):
        write_case(tmp_path / case, monkeypatch)
    assert "there is no case '4'; it holds 19, 3" in refusal(lambda: load_original(tmp_path, 4))
    assert "name the case to load" in refusal(lambda: load_original(tmp_path))
    assert "is not the name of a folder" in refusal(lambda: load_original(tmp_path, "../3"))
    assert "not a directory" in refusal(lambda: load_original(tmp_path / "3" / "meta.json", 3))
    for name in ("edges.pkl", "ll_model_cfg.pkl"):
        (tmp_path / "3" / name).unlink()
        assert f"{name}: no such file; a case needs" in refusal(lambda: load_original(tmp_path, 3, vocab=[1, 2, 3, 4]))
    (tmp_path / "19" / "ll_model.pth").unlink()
    assert "ll_model.pth: no such file; a case needs" in refusal(lambda: load_original(tmp_path, 19))


def test_outputs_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_case(tmp_path, monkeypatch)
    message = refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4], outputs=[0, 1]))
    assert "2 output values do not fit; this model needs 3, in the order of the logits" in message


# --- the hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache of our own, and no network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


def test_a_case_of_a_hub_repository(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    repository = hub / "models--org--bench"
    model = write_case(repository / "snapshots" / revision / "3", monkeypatch)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    specimen = load_original("org/bench", 3, vocab=[1, 2, 3, 4])
    tokens = torch.tensor([[4, 0, 1, 2, 3]])
    assert same_logits(specimen.model(tokens), model(tokens))
    assert "there is no case '5'; it holds 3" in refusal(lambda: load_original("org/bench", 5))
    assert "name the case to load" in refusal(lambda: load_original("org/bench"))


def test_only_one_cases_files_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    write_case(tmp_path / "3", monkeypatch)
    request: dict[str, Any] = {}

    def snapshot(hub_id: str, **options: Any) -> str:
        request.update(options, hub_id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    load_original("org/bench", 3, vocab=[1, 2, 3, 4], revision="v1")
    files = ["3/ll_model.pth", "3/ll_model_cfg.pkl", "3/edges.pkl", "3/meta.json"]
    assert request == {"hub_id": "org/bench", "revision": "v1", "allow_patterns": files}


def test_a_hub_repository_that_is_not_there(hub: Path) -> None:
    assert "could not be fetched from the hub" in refusal(lambda: load_original("org/nothing", 3), Failed)
    assert "neither a directory nor a hub id" in refusal(lambda: load_original("/nowhere/at/all", 3))


# --- the edges


@dataclass
class Node:
    name: str
    index: int | None = None


@dataclass(slots=True)
class SlottedNode:
    name: str
    index: int | None = None


@dataclass(slots=True, frozen=True)
class FrozenNode:
    name: str
    index: int | None = None


class Sort(Enum):
    ADDITION = 0
    DIRECT = "direct computation"


class Torch:
    def __init__(self, head: int) -> None:
        self.hashable_tuple, self.as_index = (None, None, head), (slice(None), slice(None), head)


@dataclass
class Arrow:
    writer: Any
    reader: Any
    sort: Sort = Sort.DIRECT


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "edge",
    [
        ("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]"),
        ["blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]"],
        (Node("blocks.0.hook_mlp_out"), Node("blocks.1.hook_v_input", 2)),
        (Node("blocks.0.hook_mlp_out"), Node("blocks.1.hook_v_input", Torch(2))),  # type: ignore[arg-type]
        Arrow("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]"),
        Arrow(Node("blocks.0.hook_mlp_out"), Node("blocks.1.hook_v_input", 2), Sort.ADDITION),
    ],
    ids=["pair", "list", "nodes", "torch-index", "object", "object-of-nodes"],
)
def test_edges_as_strings_or_objects(tmp_path: Path, edge: Any, protocol: int) -> None:
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps([edge, edge], protocol))
    assert original_edges(tmp_path) == [("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]")] * 2


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [SlottedNode, FrozenNode])
def test_edges_as_objects_with_slots(tmp_path: Path, kind: Callable[..., Any], protocol: int) -> None:
    edge = (kind("blocks.0.hook_mlp_out"), kind("blocks.1.hook_v_input", 2))
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps([edge], protocol))
    assert original_edges(tmp_path) == [("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[2]")]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("collection", [list, tuple, set, dict.fromkeys])
def test_edges_in_any_collection(tmp_path: Path, collection: Callable[[Any], Any], protocol: int) -> None:
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps(collection(EDGES), protocol))
    assert sorted(original_edges(tmp_path)) == sorted(EDGES)


@pytest.mark.parametrize(
    ("hook", "component"),
    [
        ("blocks.1.attn.hook_result[:, :, 2, :]", "L1H2"),
        ("blocks.1.attn.hook_result[2]", "L1H2"),
        ("blocks.1.attn.hook_result[COL, COL, 2]", "L1H2"),
        ("blocks.11.hook_q_input[:, :, 10, :]", "L11H10"),
        ("blocks.0.attn.hook_k[0]", "L0H0"),
        ("blocks.0.mlp.hook_post", "L0_MLP"),
        ("blocks.0.hook_mlp_in[:]", "L0_MLP"),
        ("blocks.3.hook_mlp_out", "L3_MLP"),
        ("a1.h2", "L1H2"),
        ("hook_embed", None),
        ("hook_pos_embed[:]", None),
        ("blocks.0.hook_resid_pre", None),
        ("blocks.1.hook_resid_post[:]", None),
    ],
)
def test_the_component_of_a_hook(hook: str, component: str | None) -> None:
    assert hook_component(hook) == (None if component is None else Component.parse(component))


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ([], "edges.pkl: holds no list of edges"),
        (7, "edges.pkl: holds no list of edges"),
        ([("hook_embed",)], "edges.pkl: edge 0 names 1 nodes; expected a writer and a reader"),
        ([EDGES[0], ("a", "b", "c")], "edges.pkl: edge 1 names 3 nodes"),
        ([(1, 2)], "edges.pkl: edge 0 names 0 nodes"),
        ([("hook_embed", "blocks.1.hook_resid_post")], "edges.pkl: no edge touches a head or an MLP"),
        ([("hook_embed", "banana")], "edges.pkl: hook 'banana' belongs to no head or MLP"),
        ([("hook_embed", "blocks.1.attn.hook_result")], "edges.pkl: hook 'blocks.1.attn.hook_result' does not say"),
        ([("hook_embed", "blocks.1.attn.hook_q[1, 2]")], "does not say which head"),
        ([("hook_embed", "blocks.1.attn.hook_q[4]")], "edges.pkl: component L1H4 is not in this model"),
        ([("hook_embed", "blocks.2.hook_mlp_in")], "edges.pkl: component L2_MLP is not in this model"),
    ],
)
def test_edges_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edges: Any, reason: str) -> None:
    write_case(tmp_path, monkeypatch, edges=edges)
    assert reason in refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4]))


def test_edges_that_contain_themselves(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps([loop]))
    assert "edge 0 names 0 nodes" in refusal(lambda: original_edges(tmp_path))


def test_damaged_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_case(tmp_path, monkeypatch)
    whole = (tmp_path / "edges.pkl").read_bytes()
    for damaged in (b"", whole[:-9], b"no pickle at all", b"\x80\x05r\xff\xff\xff\x7f."):
        (tmp_path / "edges.pkl").write_bytes(damaged)
        assert "edges.pkl: not a complete pickle file" in refusal(lambda: original_components(tmp_path, model))
    (tmp_path / "ll_model_cfg.pkl").write_bytes(b"")
    assert "ll_model_cfg.pkl: not a complete pickle" in refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4]))


def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_case(tmp_path, monkeypatch)
    trace = tmp_path / "was-here"
    trap = Malicious(f"touch {trace}")
    pickle.loads(pickle.dumps(trap))
    assert trace.exists(), "the trap itself must work"
    trace.unlink()
    (tmp_path / "ll_model_cfg.pkl").write_bytes(pickle.dumps({**settings_of(FRAC_PREVS), "device": trap}))
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps([*EDGES[:-1], Arrow(*EDGES[-1], trap)]))  # type: ignore[arg-type]
    specimen = load_original(tmp_path, vocab=[1, 2, 3, 4])
    assert specimen.components == (Component(0), Component(1, 2))
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps(trap))
    assert "holds no list of edges" in refusal(lambda: original_edges(tmp_path))
    (tmp_path / "ll_model_cfg.pkl").write_bytes(pickle.dumps(trap))
    assert "ll_model_cfg.pkl" in refusal(lambda: load_original(tmp_path, vocab=[1, 2, 3, 4]))
    assert not trace.exists()
    assert "transformer_lens" not in sys.modules


# --- the annotations


def annotation(**changes: Any) -> dict[str, Any]:
    """A file as published, for frac_prevs, in words of our own."""
    return {
        "task": {
            "summary": "share of 'x' among the tokens so far",
            "examples": [{"input": ["BOS", "x", "a"], "output": ["BOS", 1.0, 0.5]}],
        },
        "program": "is_x = Map(...)",
        "model": "3",
        "components": [
            {
                "id": "L0_MLP",
                "hook": "blocks.0.mlp.hook_post",
                "role": {"tag": "INDICATOR", "note": "is this token an x"},
                "labels": ["is_x_3"],
            },
            {
                "id": "L1H2_ATTN",
                "hook": "blocks.1.attn.hook_result[2]",
                "role": {"tag": "AGGREGATOR", "note": "mean over the prefix"},
                "labels": ["frac_prevs_1"],
            },
        ],
    } | changes


def write_annotation(path: Path, **changes: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(annotation(**changes)))
    return path


def test_an_annotation_is_an_answer_key(tmp_path: Path) -> None:
    key = read_annotation(write_annotation(tmp_path / "case_3.json"))
    assert (key.id, key.description, key.program) == ("3", "share of 'x' among the tokens so far", "is_x = Map(...)")
    assert [(part.id, part.tag, part.variables) for part in key.components] == [
        ("L0_MLP", Role.INDICATOR, ("is_x_3",)),
        ("L1H2", Role.AGGREGATOR, ("frac_prevs_1",)),
    ]
    ours = answer("3")
    assert type(key) is type(ours)
    assert [(part.id, part.tag) for part in key.components] == [(part.id, part.tag) for part in ours.components]


def test_an_inert_component_is_marked_by_its_case(tmp_path: Path) -> None:
    components = [annotation()["components"][0]]
    key = read_annotation(write_annotation(tmp_path / "case_53.json", components=components))
    assert key.components[0].interchange_inert
    assert not read_annotation(write_annotation(tmp_path / "case_3.json")).components[0].interchange_inert


@pytest.mark.parametrize(
    "changes",
    [
        {"task": None, "task_summary": "adds one", "program": ["a = 1", "b = 2"]},
        {"task": None, "summary": "adds one", "program": {"source": "a = 1\nb = 2"}},
        {"task": "adds one", "program": None, "rasp_program": "a = 1\nb = 2"},
        {"task": {"description": "adds one", "program": "a = 1\nb = 2", "name": "plus"}, "program": None},
    ],
)
def test_fields_may_be_named_and_placed_freely(tmp_path: Path, changes: dict[str, Any]) -> None:
    key = read_annotation(write_annotation(tmp_path / "case_60.json", **changes))
    assert (key.description, key.program) == ("adds one", "a = 1\nb = 2")
    assert key.name in ("plus", "case_60")


def changed(**fields: Any) -> list[Any]:
    first, second = annotation()["components"]
    return [{**first, **fields}, second]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": {"examples": []}}, "no task summary under task_summary, summary"),
        ({"components": []}, "components is not a list with entries"),
        ({"components": ["L0_MLP"]}, "component 0 is str"),
        ({"components": changed(id="L1H2")}, "id L1H2 and hook blocks.0.mlp.hook_post name different"),
        ({"components": changed(hook="blocks.0.hook_resid_post")}, "name different components"),
        ({"components": changed(hook=3)}, "a hook that is a name"),
        ({"components": changed(id="MLP zero")}, "component 'MLP zero' is not a name"),
        ({"components": changed(id=None, hook=None)}, "needs an id such as L1H2_ATTN"),
        ({"components": changed(id="L1H2", hook=None)}, "component L1H2 is listed twice"),
        ({"components": changed(role={"tag": "DETECTOR", "note": "x"})}, "has tag 'DETECTOR'; the tags are INDICATOR"),
        ({"components": changed(role={"tag": "indicator", "note": "x"})}, "has tag 'indicator'"),
        ({"components": changed(role=None)}, "has tag None"),
        ({"components": changed(role={"tag": "MAPPER", "note": " "})}, "component L0_MLP has no note"),
        ({"components": changed(labels="is_x")}, "labels of component L0_MLP are not a list"),
    ],
)
def test_annotations_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = write_annotation(tmp_path / "case_3.json", **changes)
    message = refusal(lambda: read_annotation(path))
    assert reason in message
    assert str(path) in message
