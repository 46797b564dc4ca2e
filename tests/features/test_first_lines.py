"""The first lines of transcoders and of circuits of latents, from figures alone."""

import pytest

from vesalius.documents.circuit import Score
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius_features.documents import LatentCircuit, LayerTranscoder, Splice, Transcoders


def share(value: float, half: float = 0.05, *, baseline: float | None = None, n: int = 16) -> Metric:
    return Metric(value=value, low=value - half, high=value + half, n=n, baseline=baseline)


def circuit(parts: tuple[str, ...], kept: float, without: float, *, random: float = 0.0) -> LatentCircuit:
    return LatentCircuit(
        request=Request(command="latents", specimen="arithmetic", behaviour="addition"),
        components=tuple(Score(id=part, score=1.0) for part in parts),
        n=16,
        n_held_out=16,
        scored=100,
        keep=0.8,
        share_chosen=kept,
        share=share(kept, baseline=random),
        without_errors=share(without),
        unit="logits",
        forwards=10.0,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("parts", "kept", "without", "verdict", "words"),
    [
        (("L0H1", "L1F4", "L1F5"), 0.9, 0.9, "yes", "2 latents, 1 heads keep 0.90"),
        (("L0H1", "L1F4", "L1.error"), 0.9, 0.88, "yes", "0.88 [0.83, 0.93] without the error terms"),
        (("L0H1", "L1F4", "L1.error"), 0.9, 0.6, "partly", "less than 0.8 by what the dictionaries say"),
        (("L0H1", "L1F4", "L1.error"), 0.9, 0.05, "no", "rests on what the dictionaries miss"),
        (("L0H1", "L0.error", "L1.error"), 0.9, 0.05, "no", "none of them is a latent"),
        (("L0H1", "L1F4"), 0.3, 0.3, "no", "less than 0.8"),
    ],
)
def test_a_circuit_of_latents_is_one_by_what_its_dictionaries_say(
    parts: tuple[str, ...], kept: float, without: float, verdict: str, words: str
) -> None:
    said = circuit(parts, kept, without).answered()
    assert said.verdict == verdict
    assert words in said.text


def transcoders(
    kept: Metric | None, means: Metric | None, losses: tuple[float, float, float] = (1.0, 1.1, 3.0)
) -> Transcoders:
    """Transcoders of one layer; `losses` are those of the model as it is, with the transcoder, and with the mean."""
    intact, spliced, mean = map(share, losses)
    cut = Splice(loss_spliced=spliced, loss_mean=mean, loss_zero=mean, kept_spliced=kept, kept_mean=means)
    return Transcoders(
        request=Request(command="transcoders", specimen="arithmetic", behaviour=kept and "addition"),
        text="sums",
        trained_on=1_000,
        tokens=500,
        latents=64,
        k=8,
        steps=10,
        batch=100,
        intact=intact,
        guess=100.0,
        layers=(LayerTranscoder(layer=0, explained=0.9, dead=0, active=8.0, spliced=cut),),
        together=cut,
        forwards=1.0,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("kept", "means", "verdict", "words"),
    [
        (share(0.9), share(0.1), "yes", "keep 0.90"),
        (share(0.5), share(0.1), "partly", "keep 0.50"),
        (share(0.1), share(0.0), "no", "keep 0.10"),
        (share(0.46), share(0.49), "no", "no more than the MLPs' means do (0.49)"),
        (share(0.85), share(0.82), "no", "no more than the MLPs' means do (0.82)"),
        (share(1.5), share(0.1), "partly", "leave out what hinders"),
        (
            Metric(value=0.9, low=None, high=None, n=1),
            Metric(value=0.1, low=None, high=None, n=1),
            "partly",
            "one prompt has no interval",
        ),
    ],
)
def test_transcoders_keep_what_means_do_not(kept: Metric, means: Metric, verdict: str, words: str) -> None:
    said = transcoders(kept, means).answered()
    assert said.verdict == verdict
    assert words in said.text


def test_a_loss_that_means_do_not_raise_says_nothing() -> None:
    assert transcoders(None, None).answered().verdict == "yes"
    said = transcoders(None, None, (65.0, 33.9, 32.4)).answered()
    assert said.verdict == "no"
    assert "their means cost no loss" in said.text
