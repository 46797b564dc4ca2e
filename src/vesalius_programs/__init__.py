"""Specimens with a listed vocabulary explained by programs, component by component; nobody is asked.

`explain` observes what components do, proposes hypotheses about their variables (`hypotheses`), assembles a program of
them, tries it by exchanges, and writes it in RASP; `naming` says what a table computes, `phrases` writes a program as
one formula. It is the built-in scientist's half for listed vocabularies, found by its entry point.
"""

from vesalius_programs.explain import explain_specimen

__all__ = ["explain_specimen"]
