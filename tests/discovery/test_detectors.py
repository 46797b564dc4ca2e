"""Attention detectors on a model whose heads are set by hand, and on one whose attention is uniform."""

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.discovery.head_tests import detect
from vesalius.errors import BadInput


def test_heads_set_by_hand_are_detected() -> None:
    detections = detect(as_specimen(induction_model(word_tokenizer().size, strengths={0: 1.0, 2: 0.5})))
    assert detections.flagged == {
        "induction": (Component(1, 0), Component(1, 2)),
        "duplicate": (),
        "previous": (Component(0, 0),),
    }
    assert detections.heads == {Component(0, 0), Component(1, 0), Component(1, 2)}
    assert float(detections.masses["previous"][0, 0]) > 0.98


def test_uniform_attention_has_the_mass_of_one_key() -> None:
    """The query at place q (BOS is 0) has q + 1 keys, one of which is the previous token; 19 tokens, repeated once: the
    context has room for no more.
    """
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=40))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.zero_()
            block.attn.b_qkv.zero_()
    detections = detect(as_specimen(model))
    assert not detections.heads
    previous = sum(1 / (query + 1) for query in range(2, 39)) / 37
    induction = sum(1 / (query + 1) for query in range(20, 39)) / 19
    assert torch.allclose(detections.masses["previous"], torch.full((2, 4), previous), atol=1e-5)
    assert torch.allclose(detections.masses["induction"], torch.full((2, 4), induction), atol=1e-5)
    assert torch.allclose(detections.masses["duplicate"], torch.full((2, 4), induction), atol=1e-5)


def test_a_specimen_with_a_listed_vocabulary_is_probed_by_its_own_inputs() -> None:
    specimen = ves.load("frac_prevs")
    masses = detect(specimen).masses
    assert {mass.shape for mass in masses.values()} == {(2, 4)}
    assert all(bool(((mass >= 0) & (mass <= 1)).all()) for mass in masses.values())


def test_a_context_too_short_for_the_probe() -> None:
    size = word_tokenizer().size
    with pytest.raises(BadInput, match="context of 3"):
        detect(as_specimen(random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=3))))
