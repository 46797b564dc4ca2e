"""Sparse dictionaries, evaluators, proposals and what is made of them, as makers and readers for
`benchmarks.hostile_files`.

Each reader uses what it has read, as its command does: a dictionary takes an activation apart, an adapter is written
into a model, a checkpoint is trained on, a result draws its page.
"""

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tests.explanations.induction_model import as_specimen, induction_model
from tests.functions.evaluator_base import write_base, write_data

from benchmarks.hostile_own import Pair
from vesalius.api.explanations import read_explanation
from vesalius.documents.base import FrozenDict, ShownDocument
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import Proposal, RunProposal
from vesalius.files import read_json, write_json
from vesalius.model import Config
from vesalius.model.dictionaries import read_dictionaries
from vesalius.model.specimen import Specimen
from vesalius.progress import silent
from vesalius.runs.directory import Run
from vesalius_bench.natural.benchmark import NaturalSteps
from vesalius_bench.natural.documents import BENCH_FILE, NaturalBench, NaturalFigures, StandInFigures
from vesalius_bench.natural.settings import NaturalSettings
from vesalius_bench.natural.work import Proposed
from vesalius_bench.options import NaturalOptions
from vesalius_functions.box import Reply
from vesalius_functions.evaluators.adapter import Adapter
from vesalius_functions.evaluators.data import read_splits
from vesalius_functions.evaluators.documents import EvaluatorTraining
from vesalius_functions.evaluators.naming import ADAPTER_FILE, EVALUATOR_FILE
from vesalius_functions.evaluators.trained import form_of, load_base
from vesalius_functions.evaluators.training import STATE_FILE, Training, claim
from vesalius_functions.options import Recipe
from vesalius_functions.serving import LEDGER, answer_in
from vesalius_session.documents import IMPROVEMENT_FILE, Improvement
from vesalius_session.proposals.reading import read_proposal
from vesalius_session.proposals.run import proposal_of

GOLDEN = Path(__file__).parents[1] / "tests" / "documents" / "golden"
D, LATENTS = 8, 6
SHAPE = {"n_layers": 2, "n_heads": 2, "d_model": D, "d_head": 4, "d_mlp": 8, "d_vocab": 5, "d_vocab_out": 5, "n_ctx": 5}
FORM, RECIPE = "single", Recipe(forms="single", rank=2, epochs=1, batch=4)
STATE = STATE_FILE.format(FORM)
SOURCE = """
def copied(first_A):
    return first_A


def answer(copied):
    return copied
"""
PROPOSAL: dict[str, Any] = {
    "programs": {"L0H0": "if seen before: after earlier copy 0.89 + BOS 0.11; else: BOS 1.00", "L1H1": "2 back"},
    "mlps": ["L0_MLP"],
    "algorithm": SOURCE,
    "variables": {"copied": "resid1@B"},
    "stand_ins": [["L1H0", "L1H1"]],
}


def _drawn() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = {"W_enc": (D, LATENTS), "b_enc": (LATENTS,), "W_dec": (LATENTS, D), "b_dec": (D,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def make_dictionary(folder: Path) -> None:
    """An autoencoder as SAELens writes it."""
    settings = {"architecture": "jumprelu", "hook_name": "blocks.1.hook_resid_post", "metadata": {"k": 2}}
    write_json(folder / "cfg.json", {**settings, "apply_b_dec_to_input": True, "normalize_activations": "none"})
    save_file({**_drawn(), "threshold": torch.full((LATENTS,), 0.2)}, folder / "sae_weights.safetensors")


def make_dictionary_set(folder: Path) -> None:
    """A transcoder a layer as circuit-tracer writes them."""
    for layer in range(2):
        tensors = {name: (one.T if name == "W_enc" else one).contiguous() for name, one in _drawn().items()}
        save_file({**tensors, "k": torch.tensor(2.0)}, folder / f"layer_{layer}.safetensors")
    (folder / "config.yaml").write_text("feature_input_hook: hook_mlp_in\nfeature_output_hook: 'hook_mlp_out'  # it\n")


def use_dictionaries(folder: Path) -> None:
    """Take an activation apart with each dictionary."""
    found = read_dictionaries(folder, Config.model_validate(SHAPE))
    for layer in found.layers:
        found.at(layer).reconstruct(torch.ones(2, D))


def make_evaluator_data(folder: Path) -> None:
    """Tests of each split."""
    write_data(folder, train=4, held=2)


@cache
def _base() -> Specimen:
    """A tiny language model, and tests for it."""
    with tempfile.TemporaryDirectory(prefix="vesalius-base-") as place:
        return load_base(str(write_base(Path(place))), device="cpu")


def _training() -> Training:
    with tempfile.TemporaryDirectory(prefix="vesalius-data-") as place:
        rows = read_splits(write_data(Path(place), train=8, held=4))
    return Training(_base().model, form_of(_base(), FORM), RECIPE, rows)


def make_evaluator(folder: Path) -> None:
    """A trained evaluator: its document and its adapter."""
    Adapter.fresh(_base().model, 2, seed=0).write(folder / ADAPTER_FILE)
    share = Metric.of_share(3, 4)
    taken = {"form": FORM, "accuracy": {"all": share, "strings": share}, "groups": {"strings": 4}}
    kept = {"step": 2, "accuracy": 0.5, "checks": [[1, 0.25], [2, 0.5]]}
    given = {"base": "tiny", "form": FORM, "adapter_bytes": 9, "parameters": 3, "recipe": RECIPE.values()}
    given |= dict.fromkeys(("base_sha256", "data_sha256", "adapter_sha256"), "0" * 64)
    given |= {"tests": {"train": 4}, "untuned": taken, "trained": taken, "device": "cpu", "seconds": 1.0}
    given |= {"validation": {"accuracy": 0.5, "untuned": {FORM: 0.25}, "trained": {FORM: kept}}, "seen": ["0" * 16]}
    EvaluatorTraining.model_validate(given).write(folder / EVALUATOR_FILE)


def use_evaluator(folder: Path) -> None:
    """Show the document and work out the weights with the adapter, as if the digests of both had been changed too."""
    made = EvaluatorTraining.read(folder / EVALUATOR_FILE)
    made.view()
    form_of(_base(), made.form)
    Adapter.read(folder / ADAPTER_FILE, _base().model).weights(_base().model)


def make_checkpoint(folder: Path) -> None:
    """A training that was stopped after its first check."""
    claim(folder, RECIPE.values())
    training = _training()
    training.run(folder / STATE, silent)


def use_checkpoint(folder: Path) -> None:
    """Continue it."""
    claim(folder, RECIPE.values())
    assert _training().run(folder / STATE, silent).best[0] > 0


def make_proposal(folder: Path) -> None:
    """A proposal as an agent sends it."""
    write_json(folder / "proposal.json", PROPOSAL)


def use_proposal(folder: Path) -> None:
    """Read the claim of an agent."""
    read_proposal(read_json(folder / "proposal.json"), Config.model_validate(SHAPE))


def make_program(folder: Path) -> None:
    """The text of an algorithm."""
    (folder / "program.py").write_text(SOURCE)


def use_program(folder: Path) -> None:
    """Read it as the algorithm of a claim."""
    text = (folder / "program.py").read_bytes().decode("utf-8", "replace")
    read_proposal({**PROPOSAL, "algorithm": text}, Config.model_validate(SHAPE))


def make_explanation(folder: Path) -> None:
    """An explanation of a natural model with programs and claims."""
    data = json.loads((GOLDEN / "explanation_natural.json").read_text())
    claims = data["components"][0]["claims"]
    prediction = {"component": data["components"][0]["id"], "others": ["L0H1"]}
    claims.append({**claims[0], "kind": "redundant", "verdict": "supported", "prediction": prediction})
    write_json(folder / "explanation.json", data)


def use_explanation(folder: Path) -> None:
    """Take what it says as data, as `improve` does, hold it against a model, and draw its page."""
    given, _ = read_explanation(folder / "explanation.json")
    proposal = proposal_of(given)
    if not proposal.empty:
        read_proposal(proposal.model_dump(mode="json"), _inducer().model.config)
    _draw(given, folder)


@cache
def _inducer() -> Specimen:
    return as_specimen(induction_model(24))


def _draw(document: ShownDocument, folder: Path) -> None:
    """What it says in one line and on its page."""
    document.view().brief()
    document.page(folder / "page")


def make_improvement(folder: Path) -> None:
    """An improved explanation."""
    shutil.copy(GOLDEN / IMPROVEMENT_FILE, folder)


def _row(case: str) -> NaturalFigures:
    share = Metric.of_share(1, 2)
    given = Proposal(programs=FrozenDict({"L0H0": "BOS 1.00"}))
    return NaturalFigures(
        case=case,
        scientist="builtin",
        model="planted-1",
        behaviour="induction",
        run=RunProposal(proposal=given, agreement=share, rules=1, rows=9.0),
        variables=share,
        stand_ins=StandInFigures(pairs=2, interchangeable=1, chance=share, precision=share, recall=share),
        forwards=3.0,
        cpu_seconds=0.5,
    )


def make_natural_results(folder: Path) -> None:
    """The results of `bench natural`."""
    shutil.copy(GOLDEN / "natural_bench.json", folder / BENCH_FILE)


def _natural() -> NaturalSettings:
    return NaturalSettings(("planted",), NaturalOptions(n=8, claims=8, top=2, scientists=("builtin",)))


def make_natural_run(folder: Path) -> None:
    """A run of `bench natural` with the results of every case."""
    with Run(folder, settings=_natural().as_data()) as run:
        steps = NaturalSteps(run, _natural())
        for case in steps.cases:
            said = Proposed(proposal=_row(case.id).run.proposal, forwards=3.0, cpu_seconds=0.5)
            run.ledger.append("proposed", case=case.id, proposed=said.model_dump(mode="json"))
            run.ledger.append("run", case=case.id, figures=_row(case.id).model_dump(mode="json"))


def use_natural_run(folder: Path) -> None:
    """Continue the run: its results are read and put together."""
    with Run(folder, settings=_natural().as_data()) as run:
        _draw(NaturalSteps(run, _natural()).result(), folder)


def make_queries(folder: Path) -> None:
    """What a served function was asked, and an answer about it."""
    replies = {"ab": Reply("ba"), "c": Reply(None, "it raised ValueError")}
    rows = [{"function": "f00000", "input": text, **vars(reply)} for text, reply in replies.items()]
    (folder / LEDGER).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "f00000").mkdir()
    for name in ("description.txt", "code.py", "domain.txt"):
        (folder / "f00000" / name).write_text("def function(x):\n    return x[::-1]\n")


RESULTS: dict[str, Pair] = {
    "dictionary": (make_dictionary, use_dictionaries),
    "dictionary_set": (make_dictionary_set, use_dictionaries),
    "evaluator_data": (make_evaluator_data, read_splits),
    "evaluator": (make_evaluator, use_evaluator),
    "evaluator_checkpoint": (make_checkpoint, use_checkpoint),
    "proposal": (make_proposal, use_proposal),
    "program": (make_program, use_program),
    "explanation": (make_explanation, use_explanation),
    "improvement": (make_improvement, lambda folder: _draw(Improvement.read(folder / IMPROVEMENT_FILE), folder)),
    "natural_results": (make_natural_results, lambda folder: _draw(NaturalBench.read(folder / BENCH_FILE), folder)),
    "natural_run": (make_natural_run, use_natural_run),
    "served_queries": (make_queries, lambda folder: answer_in(folder, "f00000")),
}
