"""The findings as text: each sentence restates a decided claim with its figures."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vesalius.behaviours.behaviour import Behaviour
from vesalius.documents.claims import PartSpecificity
from vesalius.documents.explanation import ClaimRecord, Evidence
from vesalius.documents.performance import Performance
from vesalius.documents.view import join_names
from vesalius.explanations.claims.attending import PUT_IN, meaning
from vesalius.explanations.claims.mlps import LENS, THIRD
from vesalius.explanations.claims.necessary import COSTS_NOTHING, is_inert, spared_by
from vesalius.explanations.laboratory import END
from vesalius.explanations.laboratory.runs import PORT_WORDS
from vesalius.explanations.natural.roles import Findings, is_shared, senders_of, variable_of

_REPLACEMENTS = {
    "zero replacement": "zeros",
    "mean replacement": "its mean",
    "resample replacement": "its values on other prompts",
    "moved replacement": "its values at other positions",
}
#: Sources of a score that a sentence names at the key, and at the query.
SOURCES = 2
DEFAULT_TAGS = {
    "MAPPER": "The tag MAPPER is by default: no experiment here says what it maps.",
    "AGGREGATOR": "The tag AGGREGATOR is by default: no one kind of place was shown to hold most of its attention.",
}


def note(findings: Findings) -> str:
    """What was established about a component, one sentence for each claim."""
    candidates = [_SENTENCES[claim.kind](claim, findings) for claim in findings.own if claim.kind in _SENTENCES]
    sentences = [sentence for sentence in candidates if sentence]
    sentences += [sentence for role, claim in findings.grouped if (sentence := group_sentence(role, claim))]
    sentences += [
        f"{claim.text.removesuffix('.')}: without that path {figure(claim.evidence[0])} of its attention leaves."
        for _, _, claim in findings.incoming
        if claim.verdict == "supported"
    ]
    sentences += [] if findings.why is None else [_why(findings.why)]
    sentences += [*_unknown(findings), *([] if findings.written is None else [findings.written.sentence])]
    sentences += [*_inputs(findings), *_outgoing_paths(findings)]
    if not sentences:
        sentences = ["No experiment established what it does for this behaviour."]
    return " ".join([*sentences, *([] if findings.tag_by_experiment else [DEFAULT_TAGS[findings.tag]])])


def _why(why: Mapping[str, Any]) -> str:
    """What makes a head attend to a role: the sources at the key and at the query that add most to its score."""

    def named(side: str) -> str:
        return " and ".join(f"{one['source']} ({one['adds']:+.2f})" for one in why[side][:SOURCES])

    return (
        f"Its score at {meaning(why['role'])} is {why['score']:+.2f} above that of other keys; the largest parts "
        f"are what {named('at_key')} wrote at the key and {named('at_query')} at the query."
    )


def specificity_sentence(found: PartSpecificity) -> str:
    """What a necessary component breaks besides, and whether that is less than what it breaks here."""
    here = f"beside {found.own:.2f} of the score here (its mean over plain text in its place)"
    if found.specific is None:
        return f"Elsewhere it breaks {found.elsewhere}, {here}: too little here to say whether it is specific."
    if found.specific:
        return f"It is specific to this behaviour: {found.elsewhere}, {here}."
    return f"It also breaks other things: {found.elsewhere}, {here}."


def information_flow(findings: Sequence[Findings]) -> str:
    """Which components write the queries and keys of others, which paths matter, and which write the answer."""
    roles = {str(finding.component): finding.role for finding in findings}
    receivers: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for finding in findings:
        for sender, port, claim in finding.incoming:
            if claim.verdict == "supported":
                receivers[str(sender), PORT_WORDS[port]].append(
                    (str(finding.component), claim.evidence[0].value or 0.0)
                )
    sentences = []
    for (sender, port), heads in receivers.items():
        names, shares = [name for name, _ in heads], [f"{share:.2f}" for _, share in heads]
        writer, whose = _with_kind([sender], roles), "its" if len(names) == 1 else "their"
        sentences.append(
            f"{_capital(writer)} makes the {port} of {_with_kind(names, roles)}: without that path "
            f"{join_names(shares)} of {whose} attention leaves the target."
        )
    paths = [
        f"{finding.component} {'to' if claim.kind == 'feeds' else 'against the answer to'} {receiver} "
        f"({claim.evidence[0].value:.2f})"
        for finding in findings
        for receiver, claim in finding.outgoing
        if claim.verdict == "supported"
    ]
    if paths:
        sentences.append(f"Direct paths that matter by themselves, as shares of the score: {', '.join(paths)}.")
    sentences += _moved_roles(findings)
    writers = [str(finding.component) for finding in findings if finding.supported("acts_directly")]
    if writers:
        sentences.append(f"{join_names(writers)} {'acts' if len(writers) == 1 else 'act'} on the logits directly.")
    return "\n".join(sentences) or "No path between these components was established."


def _moved_roles(findings: Sequence[Findings]) -> list[str]:
    """For every role the heads that were shown to move it to the answer position, the primary one first."""
    movers: dict[str, list[Findings]] = defaultdict(list)
    for finding in findings:
        for role in finding.roles("moves_role"):
            movers[role].append(finding)
    sentences = []
    for role, heads in movers.items():
        heads.sort(key=lambda finding: role not in finding.roles("primary"))
        names = [f"{one.component}{' (primary)' if role in one.roles('primary') else ''}" for one in heads]
        backups = [str(one.component) for one in heads if role in one.roles("backup_of")]
        how = f"; {join_names(backups)} {'is a backup' if len(backups) == 1 else 'are backups'}" if backups else ""
        if alike := [str(one.component) for one in heads if role in one.roles("redundant")]:
            which = f"; {join_names(alike)} are" if len(alike) < len(heads) else ", which are"
            how += f"{which} mutually redundant"
        sentences.append(f"{_capital(role)} reaches the answer position through {join_names(names)}{how}.")
    return sentences


def task_description(behaviour: Behaviour, performance: Performance) -> str:
    """The behaviour, how well the model performs it, and what is wrong with it as it was asked."""
    said = (
        f"{behaviour.description} The model prefers the right answer on {performance.accuracy_figures} and says it on "
        f"{performance.top1:.2f}; mean logit difference {performance.logit_difference:.2f}{performance.ld_interval}."
    )
    return " ".join([said, *(f"{_capital(doubt)}." for doubt in performance.doubts)])


def _with_kind(names: Sequence[str], roles: Mapping[str, str]) -> str:
    """Names, preceded by the kind of head if all have the same kind."""
    kinds = {roles.get(name, "").split(",")[0] for name in names}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {join_names(names)}" if kind.endswith("head") else join_names(names)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _outgoing_paths(findings: Findings) -> list[str]:
    """One sentence for all supported paths from a component."""
    paths = []
    for receiver, claim in findings.outgoing:
        if claim.verdict != "supported":
            continue
        evidence, *ports = claim.evidence
        strongest = max(ports, key=lambda port: abs(port.value or 0.0), default=None)
        by = "" if strongest is None else f", mainly {strongest.measure.removeprefix('effect ')}"
        against = "" if claim.kind == "feeds" else "against the answer, "
        paths.append(f"{receiver} ({against}{figure(evidence)} of the score{by})")
    return [f"It feeds {join_names(paths)}."] if paths else []


def _attends(claim: ClaimRecord, findings: Findings) -> str | None:
    where, share = meaning(findings.looks_at or ""), figure(claim.evidence[0])
    sentences: dict[str, str] = {
        "supported": f"Attends to {where}: {share} of its attention.",
        "refuted": f"Its attention on {where}, {share}, is not beyond that of its controls or not most of it.",
    }
    if claim.verdict == "refuted" and claim.evidence[-1].experiment == PUT_IN:
        return f"Its attention on {where}, {share}, does not follow it: {PUT_IN}, it keeps to the place or is lost."
    return sentences.get(claim.verdict)


def _necessary(claim: ClaimRecord, findings: Findings) -> str | None:
    """Every replacement with what it costs, the strongest first; with its number of prompts where others have more."""
    most = max(one.n for one in claim.evidence)
    costs = [
        (figure(one), _REPLACEMENTS.get(one.experiment, one.experiment) + f" (n = {one.n})" * (one.n < most))
        for one in claim.evidence
    ]
    (share, by), *others = costs
    shares = ", ".join([f"{share} of the score by {by}", *(f"{other} by {value}" for other, value in others)])
    if claim.verdict == "supported":
        return f"Replacing it costs {shares}."
    if is_inert(claim.evidence):
        return f"It is inert here: replacing it costs {shares}."
    if spared_by(claim.evidence) is not None:
        return None  # said by `not_needed_alone`
    if claim.verdict == "refuted" and not findings.supported("inhibits"):
        enough = "tell from replacing other components" if _compared(claim) else "count"
        return f"Replacing it alone costs too little to {enough}: {shares}."
    return None


def _spared(claim: ClaimRecord, findings: Findings) -> str | None:
    if claim.verdict != "supported":
        return None
    score, answers = claim.evidence
    own = next((one for one in findings.own if one.kind == "necessary"), None)
    costly = [one for one in own.evidence if one.passed and one.rule != COSTS_NOTHING] if own else []
    misled = f"; {_REPLACEMENTS[costly[0].experiment]} cost {figure(costly[0])} of the score" if costly else ""
    return (
        f"It is not needed alone: {_REPLACEMENTS[score.experiment]} at every position in its place cost "
        f"{figure(score)} of the score and {figure(answers)} of the right answers (n = {score.n}){misled}."
    )


def _when(*, supported: str = "", refuted: str = "") -> Callable[[ClaimRecord, Findings], str | None]:
    """A sentence for each verdict; {} is the share with its interval."""

    def sentence(claim: ClaimRecord, findings: Findings) -> str | None:
        text = {"supported": supported, "refuted": refuted}.get(claim.verdict, "")
        return text.format(figure(claim.evidence[0])) if text and claim.evidence else None

    return sentence


def _writes(claim: ClaimRecord, findings: Findings) -> str | None:
    if claim.verdict != "supported":
        return None
    lens, *gains = claim.evidence
    sentence = f"What it writes favours the answer by itself: {figure(lens)} of the score by the logit lens"
    if len(gains) < 3:
        return f"{sentence}."
    return (
        f"{sentence}; over the rest the answer's logit gains {figure(gains[1])} and the wrong one's {figure(gains[2])}."
    )


def _suppresses(claim: ClaimRecord, findings: Findings) -> str | None:
    if claim.verdict != "supported":
        return None
    _, fall, _, other = claim.evidence
    wrong = "the wrong answer" in claim.text
    names = ("the wrong answer", "the right one") if wrong else ("the answer itself", "the wrong one")
    return (
        f"What it writes lowers {names[0]}, by {figure(fall)} of the score over the rest by the logit lens, and gives "
        f"{names[1]} {figure(other)}: a suppressor."
    )


def _uses(claim: ClaimRecord, findings: Findings) -> str | None:
    cut, share = f"Taking {meaning(findings.looks_at or '')} out of its attention costs", figure(claim.evidence[0])
    little = "no more than taking out as many other keys" if _compared(claim) else "too little to count"
    sentences: dict[str, str] = {
        "supported": f"{cut} {share} of the score.",
        "refuted": f"{cut} {little}: {share}.",
    }
    return sentences.get(claim.verdict)


def _reads_role(claim: ClaimRecord, findings: Findings) -> str | None:
    """What a head reads from where it acts: its attention, and what cutting it costs."""
    if claim.verdict != "supported":
        return None
    asked, cut = claim.prediction or {}, _decisive(claim)
    return (
        f"From {asked['query']} it attends to {asked['role']}: {figure(claim.evidence[0])} of its attention; taking "
        f"that out costs {figure(cut)} of {_unit(cut)}."
    )


def _compared(claim: ClaimRecord) -> bool:
    """Whether any of its evidence has controls: none are run where the least that counts decides."""
    return any(one.controls for one in claim.evidence)


def _stands_in(claim: ClaimRecord, findings: Findings) -> str | None:
    return joint_sentence(claim) if claim.verdict == "supported" else None


# What MLPs do.

UNKNOWN = "Which variable it carries was not found"


def _unknown(findings: Findings) -> list[str]:
    """That an MLP which is necessary was not shown to carry anything, where no claim says so."""
    asked = any(claim.kind == "carries" for claim in findings.own)
    if findings.component.is_head or asked or not findings.supported("necessary") or is_shared(findings.own):
        return []
    return [f"{UNKNOWN}: on the selection prompts its output brought neither another role's token nor another answer."]


def _acts_at(claim: ClaimRecord, findings: Findings) -> str | None:
    role, part = (claim.prediction or {}).get("role"), claim.evidence[0].controls
    words: dict[str, str] = {"supported": "Most", "refuted": "Less than half"}
    if claim.verdict not in words:
        return None
    shares = " of ".join(f"{value or 0.0:.2f}" for value in part.values())
    return f"{words[claim.verdict]} of what other prompts' values cost arises at {role}: {shares} of the score."


def _inputs(findings: Findings) -> list[str]:
    """One sentence for all inputs that an MLP was shown to need."""
    needed = [one for one in (*findings.own, *findings.fed) if one.kind == "needs_input"]
    claims = [one for one in needed if one.verdict == "supported"]
    if not claims:
        return []
    names = senders_of(claims)
    paths = [f"{name} ({figure(one.evidence[0])} of the score)" for name, one in zip(names, claims, strict=True)]
    return [f"It needs what reaches it directly from {join_names(paths)}."]


def _few_neurons(claim: ClaimRecord, findings: Findings) -> str | None:
    replaced, share = claim.evidence[0].experiment, claim.evidence[1]
    sentences: dict[str, str] = {
        "supported": f"With {replaced}, {figure(share)} of its effect stays (n = {share.n}).",
        "refuted": f"No few neurons were found that do its work: with {replaced}, {figure(share)} of its effect stays "
        f"(n = {share.n}).",
    }
    return sentences.get(claim.verdict)


def _carries(claim: ClaimRecord, findings: Findings) -> str | None:
    variable, at = variable_of(claim)
    place = "the answer position" if at == END else at
    way, rate, *more = claim.evidence
    same = [one for one in more if "change" in one.controls]
    moves = (
        f"With its output at {place} from prompts with another {variable}, the answer moves {figure(way)} of the way"
    )
    if claim.verdict == "supported":
        alike = [one.controls.get("change") or 0.0 for one in same]
        stays = "".join(f"; with one of the same {variable} by {change:.2f}" for change in alike)
        return f"{moves} to theirs and becomes it on {figure(rate)} of prompts{stays} (n = {way.n})."
    if same and not same[0].passed:
        return f"{moves}, but outputs from prompts with the same {variable} change it too: it carries something beside."
    third = next((one.controls[THIRD] for one in more if THIRD in one.controls), None)
    than = "" if third is None else f", and those of a third prompt {third:.2f}"
    return f"{UNKNOWN}: {moves[0].lower()}{moves[1:]} to theirs{than} (n = {way.n})."


def _looks_up(claim: ClaimRecord, findings: Findings) -> str | None:
    ranks = [one for one in claim.evidence if one.experiment == LENS]
    if not ranks or claim.verdict not in ("supported", "refuted"):
        return None
    written = f"What it writes there puts the answer above {figure(ranks[0])} of the other prompts' answers"
    if claim.verdict == "supported":
        how = f"{figure(ranks[1])} more than what it reads"
        if len(ranks) > 2 and ranks[2].passed:
            how = f"and so it does, {figure(ranks[2])}, where earlier MLPs tell it of another class"
        return f"{written}, {how}: it looks the answer up."
    return f"{written}; a lookup was not shown."


_SENTENCES: Mapping[str, Callable[[ClaimRecord, Findings], str | None]] = {
    "attends": _attends,
    "necessary": _necessary,
    "small_part": _when(
        supported="Replacing it by its values on other prompts costs {} of the score: a small part, too close to the "
        "least that counts to say whether it is necessary."
    ),
    "not_needed_alone": _spared,
    "acts_at_answer": _when(
        supported="Most of what other prompts' values cost arises at the answer position.",
        refuted="Less than half of what other prompts' values cost arises at the answer position.",
    ),
    "acts_at": _acts_at,
    "acts_directly": _when(supported="It acts on the logits directly."),
    "few_neurons": _few_neurons,
    "carries": _carries,
    "looks_up": _looks_up,
    "inhibits": _when(supported="It works against the answer: replacing it gains {} of the score."),
    "together": _stands_in,
    "redundant": _stands_in,
    "backup_of": _stands_in,
    "writes_answer": _writes,
    "suppresses": _suppresses,
    "uses": _uses,
    "reads_role": _reads_role,
    "lens_only": _when(
        supported="The logit lens shows it, {} of the score, yet no replacement costs anything: not causal by itself."
    ),
}


def group_sentence(role: str, claim: ClaimRecord) -> str | None:
    """One sentence for a decided claim of `movers`, or about what a backup reads; None where nothing was decided."""
    if claim.kind == "moves_role":
        return _moves(role, claim)
    if claim.verdict != "supported":
        return None
    if claim.kind in ("together", "redundant", "backup_of"):
        return joint_sentence(claim)
    shown = _decisive(claim)
    cost = f"{figure(shown)} of {_unit(shown)}"
    if claim.kind == "primary":
        lead = claim.evidence[-1]
        other = lead.measure.rpartition(" ")[2]
        by = "Zeroed" if lead.experiment.startswith("zero") else "With its value on other prompts"
        return (
            f"{by} at the answer position it costs {cost}, {figure(lead)} more than {other} (n = {lead.n}): the "
            f"primary mover of {role}."
        )
    if claim.kind == "reads_role":
        condition = claim.text.rstrip(".").partition(" once ")[2]
        given = f"Once {condition}, t" if condition else "T"
        return f"{given}aking {role} out of its attention costs {cost} (n = {shown.n})."
    return None


def joint_sentence(claim: ClaimRecord) -> str:
    """The sentence of a supported claim of `joint` with its figures."""
    shown = _decisive(claim)
    cost = f"{figure(shown)} of {_unit(shown)}"
    if claim.kind == "backup_of":
        alone = next(one for one in claim.evidence if one.experiment.endswith("alone"))
        figures = f"{figure(alone)} of the score alone, {at_least(shown)}{cost} more then"
    else:
        figures = f"{cost} beyond the sum"
    return f"{claim.text.removesuffix('.')} ({figures}, n = {shown.n})."


def _moves(role: str, claim: ClaimRecord) -> str | None:
    moved, switched, *by_values = claim.evidence
    given = claim.text.rstrip(".").partition(" once ")[2]
    condition = f", once {given}," if given else ""
    sentence = (
        f"With its output at the answer position{condition} from runs with another {role}, the answer moves "
        f"{figure(moved)} of the way to theirs and becomes theirs on {figure(switched)} of prompts (n = {moved.n})"
    )
    if claim.verdict == "supported":
        return sentence + "".join(f"; by its values at other positions, {figure(one)}" for one in by_values) + "."
    if claim.verdict == "refuted" and by_values:
        share = figure(by_values[0])
        return f"{sentence}, but by its values at other positions only {share}: it does not move {role} there itself."
    if claim.verdict == "refuted":
        return f"Its output alone{condition} moves the answer only {figure(moved)} of the way to another {role}'s."
    return None


def figure(evidence: Evidence) -> str:
    """A figure with its interval, where it has one: few values that are all equal have none."""
    if evidence.value is None:
        return "not measured"
    if evidence.low is None or evidence.high is None:
        return f"{round(evidence.value, 2) + 0.0:.2f}"
    value, low, high = (round(x, 2) + 0.0 for x in (evidence.value, evidence.low, evidence.high))  # no minus zero
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def at_least(evidence: Evidence) -> str:
    """Before the figure of a gain: what is shown in its place (`bounded_gain`) is no larger."""
    return "" if evidence.measure.startswith("gain") else "at least "


def _decisive(claim: ClaimRecord) -> Evidence:
    """The evidence that shows what is lost: of those that passed the one with the largest figure."""
    passed = [one for one in claim.evidence if one.passed and ("effect" in one.measure or "answers" in one.measure)]
    losses = [one for one in passed if ", minus that of " not in one.measure and not one.experiment.endswith("alone")]
    return max(losses or passed or claim.evidence, key=lambda one: one.value or 0.0)


def _unit(evidence: Evidence) -> str:
    return "the right answers" if "answers" in evidence.measure else "the score"
