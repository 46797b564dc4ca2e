"""Behaviours of natural models: prompts with a metric, and whether a model performs them."""

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.controls import Control, Corpus, control, factbook, wikitext
from vesalius.behaviours.performance import measure, performance
from vesalius.behaviours.prompts import SPLITS, Prompt, Prompts
from vesalius.behaviours.registry import behaviour, behaviours

__all__ = [
    "SPLITS",
    "Behaviour",
    "Control",
    "Corpus",
    "Prompt",
    "Prompts",
    "behaviour",
    "behaviours",
    "control",
    "factbook",
    "measure",
    "performance",
    "wikitext",
]
