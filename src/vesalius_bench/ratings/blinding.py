"""What raters must not see of a text: the names of agents and scientists, and the sentences by which ours sign theirs.

Two things tell an author. A name is masked. A formula that only one of our scientists writes is taken out: the marks of
what was established and of what a model said, how a claim was decided, and figures of experiments that nobody else
quotes. What is left of such a text is what it says of the component; where nothing is left, nothing was said of it.

How somebody writes cannot be hidden. Raters who know an agent's style may still recognise it.
"""

import re

MASK = "[author]"
#: What our scientists are called wherever they speak of themselves.
SCIENTISTS = ("HyVE", "built-in scientist", "builtin scientist", "vesalius")

_SENTENCES = (
    r"Established:",
    r"In the model's words:",
    r"At a fixed position, ",
    r"(?:No exchange of its inputs shows; i|I)n the program (?=it )",
    r"; in the program it reads [^\n]*?(?=\.(?:\s|$))",
    r"What (?:it|\w+|the output) reads is not decided: [^\n]*?\.(?=\s|$)",
    r"Outputs change when it is replaced, but what reads it was not found\.",
    r"\(explained by the built-in scientist\)",
    r"\(Tentative: no (?:hypothesis was supported|experiment supported it)\.\)",
    r"\(claim (?:supported|refuted|undecided|untested)\)",
    r"Exchanged between \d+ pairs of inputs that show a difference, it acts as the program says in [\d.]+% of the "
    r"changed outputs(?: \(with a shuffled source [\d.]+%\))?\.",
    r"By the rule of the claim that is (?:supported|refuted|undecided|untested) \([^\n]*?\)\.(?=\s|$)",
    r"No exchange changed an output, so this is undecided\.",
    r"This could not be run, so it is untested\.",
    r"(?:It is not inert: )?[Rr]eplacing it changed [^\n]*? of the outputs[.;]"
    r"(?: no replacement does anything, so nothing can say what it computes\.)?",
    r"\w+ is inert:",
    r"No hypothesis about \w+ was good enough to be judged: the best predicted [-\d.]+ of its effect in the search\.",
    r"The program gives all outputs of the model for [\d.]+% of fresh inputs\.",
    r"The program is not right: it gives all outputs of the model for only [\d.]+% of fresh inputs\.",
    r"No program was found: no hypothesis about any component was supported\.",
    r"By experiment alone it is an? \w+; [^\n]*?\.(?=\s|$)",
    r"The rule of the convention: [^\n]*?\.(?=\s|$)",
    # From the beginning of the sentence, which is the rule itself.
    r"(?:(?<=[.)] )|(?m:^))[A-Z](?:(?!\. )[^\n])*: by that convention it would be an? \w+, which its own claims "
    r"contradict\.",
    r"(?:Refuted(?: where the program fails)?|What makes the program fail): [^\n]*?\.(?=\s|$)",
    r"Nothing was established: no claim about what a component computes was supported\.",
    r"The program could not be written so that it runs \([^\n]*?\), so its claims are untested\.",
    r"Of the \d+ combinations of its arguments \d+ were never seen; the program leaves them open\.",
    r"The vocabulary of \d+ tokens was sampled, not enumerated: tokens not drawn are not covered\.",
)
_SIGNED = re.compile(r"[ \t]*(?:" + "|".join(_SENTENCES) + r")[ \t]*")


def unsigned(text: str) -> str:
    """A text without the formulas by which our scientists sign theirs."""
    return "\n".join(" ".join(line.split(" ")).strip() for line in _SIGNED.sub(" ", text).split("\n")).strip()


def blind(text: str, *agents: str) -> str:
    """A text as a rater may see it: unsigned, the names of agents and scientists masked."""
    names = set(SCIENTISTS)
    for agent in agents:
        provider, _, model = agent.rpartition(":")
        names |= {name for name in (agent, model) if len(name) > 2 or (provider and name)}
    listed = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True))
    return re.sub(listed, MASK, unsigned(text), flags=re.IGNORECASE)
