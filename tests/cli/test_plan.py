"""What a command will cost: the passes are those that it then takes, and nothing is left behind."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.explanations.difference_model import BEHAVIOUR, difference_model
from tests.explanations.induction_model import as_specimen, induction_model, word_tokenizer
from vesalius.api.workloads import remedy
from vesalius.behaviours.contrast import contrast_on
from vesalius.behaviours.trial import trial
from vesalius.explanations.laboratory import NaturalLab
from vesalius.intervene.recordings import kept_bytes

INDUCTION = ("--behaviour", "induction")
#: What a laboratory keeps of a layer.
KEPT = ("hook_resid_pre", "attn.hook_z", "hook_attn_out", "hook_mlp_out", "attn.hook_v", "attn.hook_pattern")


def planned(vesalius: Vesalius, *arguments: object) -> dict:
    got = vesalius(*arguments, "--plan", "--json")
    assert got.code == 0, got.err
    found = json.loads(got.out)
    assert {"forwards", "peak_bytes", "seconds"} <= set(found)
    assert found["seconds"] > 0
    assert not Path("vesalius-runs").exists()
    return found


@pytest.mark.parametrize("options", [[], ["--pairs"], ["--kind", "resample"], ["-c", "L1H0,L0_MLP,L1_MLP"]])
def test_a_sweep_takes_the_passes_of_its_plan(vesalius: Vesalius, tiny: Path, options: list[str]) -> None:
    found = planned(vesalius, "sweep", tiny, *INDUCTION, "--n", "3", *options)
    got = json.loads(vesalius("sweep", tiny, *INDUCTION, "--n", "3", *options, "--force", "--json").out)
    assert found["forwards"] == pytest.approx(got["forwards"], rel=1e-6)
    assert found["n"] == 3


def test_a_plan_counts_the_passes_that_ask_whether_there_is_something_to_explain(tiny: Path) -> None:
    """Rows that reach the end are counted by a plain hook: the prompts, their counterfactuals, and everything
    replaced, of which nothing is computed.
    """
    specimen, rows = ves.load(tiny, behaviour="induction"), list[int]()
    found = ves.plan("sweep", specimen, n=3, kind="resample", progress=False)
    hook = specimen.model.ln_final.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    material = trial(specimen, 3)
    assert material.prompts is not None
    contrast_on(specimen.model, material.prompts)
    hook.remove()
    assert sum(rows) == 9
    assert found.contrast_forwards == pytest.approx(2)
    assert ves.plan("sweep", specimen, n=3, kind="zero", progress=False).contrast_forwards == 0
    assert ves.plan("sweep", specimen, n=64, kind="resample", progress=False).contrast_forwards < 2
    first = {verb: ves.plan(verb, specimen, n=32, progress=False) for verb in ("discover", "explain", "neurons")}
    assert {one.contrast_forwards for one in first.values()} == {2 + found.contrast_forwards}  # 64 prompts, then 32
    assert " for the contrast" in repr(first["explain"])
    assert ves.plan("discover", "frac_prevs", n=4, progress=False).contrast_forwards == 0


@pytest.mark.parametrize(
    ("method", "steps"), [("sweep", None), ("eap", None), ("eap-ig", None), ("eap-ig", 2), ("relp", None)]
)
def test_a_discovery_takes_the_passes_of_its_plan(
    vesalius: Vesalius, tiny: Path, method: str, steps: int | None
) -> None:
    chosen = ["--method", method, *([] if steps is None else ["--steps", steps]), "--n", "3", "--quick"]
    found = planned(vesalius, "discover", tiny, *INDUCTION, *chosen)
    options = {"n": 3, "checks": False, "force": True, "steps": steps}
    real = ves.discover(tiny, method, behaviour="induction", progress=False, **options)
    assert found["forwards"] == pytest.approx(real.forwards, rel=1e-6)
    assert found["checks_forwards"] == 0


@pytest.mark.parametrize("method", ["sweep", "eap"])
def test_a_discovery_in_a_circuit_takes_about_the_passes_of_its_plan(method: str) -> None:
    """Outputs that hold nothing but a position are moved, too; which ones show is not known beforehand."""
    specimen = ves.load("frac_prevs")
    found = ves.plan("discover", specimen, method=method, n=8, checks=False, progress=False)
    real = ves.discover(specimen, method, n=8, checks=False, progress=False)
    assert found.forwards == pytest.approx(real.forwards, rel=0.2)


def test_memory_counts_the_weights_and_grows_with_what_is_kept(tiny: Path) -> None:
    specimen = ves.load(tiny, behaviour="induction")
    weights = sum(weight.numel() * weight.element_size() for weight in specimen.model.parameters())
    few, many = (ves.plan("sweep", specimen, n=n, kind="resample", progress=False).peak_bytes for n in (2, 16))
    assert weights < few < many
    zero = ves.plan("sweep", specimen, n=16, kind="zero", progress=False).peak_bytes
    assert zero < many, "resampling keeps the other prompts' activations"


def test_explanations_and_benchmark_circuits_have_plans(vesalius: Vesalius, tiny: Path) -> None:
    assert planned(vesalius, "explain", tiny, *INDUCTION)["forwards"] > 1
    assert planned(vesalius, "explain", "frac_prevs")["forwards"] > 1
    text = vesalius("sweep", "frac_prevs", "--plan").out
    assert [line.split(":")[0] for line in text.splitlines()[1:]] == ["passes", "memory", "time"]


def test_refusals(vesalius: Vesalius, tiny: Path) -> None:
    backbone = ["explain", "frac_prevs", "--backbone", "openai:gpt-5.4", "--plan"]
    refused(vesalius, backbone, "how often a language model is asked is not known beforehand")
    refused(vesalius, ["sweep", tiny, *INDUCTION, "--plan", "--kind", "noise"], "kind 'noise' does not exist")
    refused(vesalius, ["discover", tiny, *INDUCTION, "--plan", "--method", "magic"], "method 'magic' does not exist")
    refused(vesalius, ["discover", tiny, *INDUCTION, "--plan", "--method", "sets"], "method 'sets'")
    refused(vesalius, ["discover", tiny, *INDUCTION, "--plan", "--pool", "L0H0"], "--pool")
    refused(
        vesalius,
        ["discover", tiny, *INDUCTION, "--plan", "-m", "sweep", "--steps", "5"],
        "--steps cannot be given with --method",
    )
    refused(vesalius, ["discover", tiny, *INDUCTION, "--plan", "--engine", "slurm"], "slurm")
    refused(vesalius, ["explain", tiny, *INDUCTION, "--plan", "--circuit", "nowhere.json"], "nowhere.json")
    refused(vesalius, ["explain", tiny, *INDUCTION, "--plan", "--circuit-from", "magic"], "'magic' does not exist")
    refused(vesalius, ["explain", tiny, *INDUCTION, "--plan", "-c", "L9H0"], "L9H0")
    refused(vesalius, ["explain", tiny, *INDUCTION, "--plan", "--scientist", "nobody"], "nobody")
    refused(vesalius, ["explain", tiny, *INDUCTION, "--plan", "--leave-out", "counts"], "natural model")
    refused(vesalius, ["explain", "frac_prevs", "--plan", "--top", "3"], "natural models")
    refused(vesalius, ["explain", "frac_prevs", "--plan", "--leave-out", "magic"], "no family of hypotheses 'magic'")
    refused(vesalius, ["explain", "frac_prevs", "--plan", "--scientist", "hyve"], "scientist 'hyve' has no plan")
    with pytest.raises(ves.BadInput, match="command 'grade' has no plan; choose one of sweep, discover, neurons"):
        ves.plan("grade", tiny)


def test_a_plan_counts_the_circuit_that_is_given_or_discovered_first(tiny: Path, tmp_path: Path) -> None:
    specimen = ves.load(tiny, behaviour="induction")

    def forwards(**options: object) -> float:
        return ves.plan("explain", specimen, n=4, progress=False, **options).forwards

    discovery = ves.discover(specimen, "eap", n=3, checks=False, force=True, progress=False)
    chosen = [str(component) for component in discovery.circuit.chosen()]
    discovery.circuit.write(tmp_path / "circuit.json")
    assert forwards(circuit=tmp_path / "circuit.json") == pytest.approx(forwards(components=chosen))
    assert forwards(components=discovery) == pytest.approx(forwards(components=",".join(chosen)))
    assert forwards(circuit_from="eap") > forwards()


LLAMA_70B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "dtype": "bfloat16",
}


@pytest.fixture
def _half_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a processor that is as fast in half precision, whatever runs the tests."""
    monkeypatch.setattr("vesalius.model.precision.slowness", lambda dtype: 1.0)


def test_a_plan_of_an_explanation_counts_the_runs_that_it_comes_back_to() -> None:
    """What a laboratory keeps of a prompt, added up; every prompt that a claim may draw is kept a few times."""
    specimen = as_specimen(induction_model(word_tokenizer().size))
    lab = NaturalLab.draw(specimen, 2)
    width = lab.prompts.tokens.shape[1]
    kept = {f"blocks.{layer}.{name}" for layer in range(specimen.model.config.n_layers) for name in KEPT}
    run = lab.runs.run_of(0)
    assert kept <= set(run)
    counted = sum(run[name].nbytes for name in kept)
    one = kept_bytes(specimen.model, width)
    keys = width * 4 * specimen.model.config.n_layers * specimen.model.config.n_kv_heads * specimen.model.config.d_head
    assert one == counted + keys
    few, many = (ves.plan("explain", specimen, n=n, progress=False).peak_bytes for n in (16, 32))
    assert many - few >= 16 * 4 * one
    rows = ves.plan("sweep", specimen, n=16, kind="resample", progress=False)
    assert few > rows.peak_bytes + 100 * one


@pytest.mark.usefixtures("_half_is_fast")
def test_a_model_of_which_only_the_shape_is_there_can_be_planned(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    found = planned(vesalius, "sweep", tmp_path, "--n", "2", "--device", "cpu", "-c", "L0H0,L79_MLP")
    attention, mlp = 8192 * (2 * 8192 + 2 * 1024), 3 * 8192 * 28672
    matrices = 2 * (80 * (attention + mlp) + 2 * 128256 * 8192)
    assert found["weight_bytes"] == pytest.approx(matrices, rel=1e-3), "biases and norms are the rest"
    assert found["weight_bytes"] < found["peak_bytes"] < found["weight_bytes"] + 2**30
    assert (found["tokens"], found["n"], found["timed"]) == (64, 2, "one matrix product")
    # L0H0 is followed by the MLP of its layer and 79 layers; the last MLP by nothing; the clean run is one pass.
    assert found["forwards"] == pytest.approx(1 + (79 + mlp / (mlp + attention)) / 80, rel=1e-3)


@pytest.mark.usefixtures("_half_is_fast")
def test_a_plan_says_what_it_assumes_and_what_does_not_fit(
    vesalius: Vesalius, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    command = ("sweep", tmp_path, "--n", "2", "--device", "cpu", "-c", "L79_MLP")
    for free, fits in ((2**30, False), (2**40, True), (None, None)):
        monkeypatch.setattr("vesalius.api.workloads.available_bytes", lambda device, free=free: free)
        found = planned(vesalius, *command)
        assert (found["free_bytes"], found["fits"], found["tokens_assumed"]) == (free, fits, True)
        lines = vesalius(*command, "--plan").out.splitlines()
        assert "of 64 tokens, which is assumed: a tokenizer and --behaviour would tell" in lines[1]
        assert ("does not fit: 1,024 MB are free" in lines[2]) == (fits is False)
        assert ("take fewer or shorter prompts, or a GPU with 13" in lines[2]) == (fits is False)
        assert lines[0].endswith(" s") == (fits is not False), "no time where it does not fit"
        assert lines[3].startswith("time: not estimated, since it does not fit" if fits is False else "time: about ")


@pytest.mark.parametrize(
    ("device", "dtype", "needed", "free", "said"),
    [
        ("cpu", torch.float32, 30, 20, "with --dtype bfloat16 it takes about 15,360 MB"),
        ("cuda:0", torch.bfloat16, 300, 100, "3 such devices hold it: --device cuda:0,cuda:1,cuda:2"),
        ("cuda:0", torch.bfloat16, 300, 1, "take shorter prompts, or a smaller model"),
        ("cpu", torch.float32, 300, 100, "fewer or shorter prompts, or --dtype bfloat16 and a GPU with 300 GB"),
    ],
)
def test_a_plan_names_what_makes_it_fit(device: str, dtype: torch.dtype, needed: int, free: int, said: str) -> None:
    case = SimpleNamespace(devices=(torch.device(device),), dtype=dtype)
    assert said in remedy(case, needed * 2**30, free * 2**30)  # type: ignore[arg-type]


def test_what_is_loaded_already_need_not_fit_again(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ves.load(tiny, behaviour="induction", device="cpu")
    found = ves.plan("sweep", specimen, n=2, progress=False)
    monkeypatch.setattr("vesalius.api.workloads.available_bytes", lambda device: found.peak_bytes - 1)
    again = ves.plan("sweep", specimen, n=2, progress=False)
    assert (again.fits, again.tokens_assumed) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "arithmetic", "directions": 2},
        {"algorithm": "arithmetic-sum-first", "together": 2, "against": "arithmetic"},
    ],
)
def test_an_alignment_takes_the_passes_of_its_plan(options: dict) -> None:
    """A model set by hand answers every sum, so that no pair is left out: recordings and map are exact."""
    specimen = as_specimen(difference_model(), BEHAVIOUR)
    options = {"n": 6, "held_out": 8, "layers": "1..2", "at": ["L0_MLP@B"], **options}
    found = ves.plan("align", specimen, progress=False, **options)
    got = ves.align(specimen, progress=False, **options)
    assert found.n == 6
    assert found.forwards * 6 == pytest.approx(got.forwards - got.search_forwards, rel=1e-6)
    assert 0 < got.search_forwards <= found.search_forwards * 6
    assert "after the map" in found.view().answer.text


def test_a_plan_of_many_prompts_draws_few_of_them(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def counted(specimen: Any, n: int, **options: Any) -> Any:
        drawn.append(n)
        return trial(specimen, n, **options)

    monkeypatch.setattr("vesalius.api.workloads.trial", counted)
    monkeypatch.setattr("vesalius.api.workloads.DRAWN", 4)
    few, many = (ves.plan("sweep", tiny, behaviour="induction", n=n, progress=False) for n in (4, 12))
    assert (few.n, many.n, drawn) == (4, 12, [4, 4])
    assert many.forwards == few.forwards
