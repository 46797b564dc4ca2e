"""Sentences about heads that move the same role: what was replaced, on how many prompts, with which interval."""

from vesalius.documents.explanation import ClaimRecord, Evidence


def group_sentence(role: str, claim: ClaimRecord) -> str | None:
    """One sentence for a decided claim of `movers`, or about what a backup reads; None where nothing was decided."""
    if claim.kind == "moves_role":
        return _moves(role, claim)
    if claim.verdict != "supported":
        return None
    shown = _decisive(claim)
    cost = f"{figure(shown)} of {_unit(shown)}"
    if claim.kind == "backs_up":
        others = claim.text.split(" is a backup of ")[1].split(":")[0]
        return (
            f"Zeroed at the answer position it costs {at_least(shown)}{cost} more once {others} are zeroed there too "
            f"than alone (n = {shown.n}): it backs them up."
        )
    if claim.kind == "primary":
        lead = claim.evidence[-1]
        other = lead.measure.rpartition(" ")[2]
        by = "Zeroed" if lead.experiment.startswith("zero") else "With its value on other prompts"
        return (
            f"{by} at the answer position it costs {cost}, {figure(lead)} more than {other} (n = {lead.n}): the "
            f"primary mover of {role}."
        )
    if claim.kind == "together":
        names = claim.text.split(" matter together")[0]
        joint = claim.evidence[2 + ("right answers" in shown.measure)]
        return (
            f"Zeroing {names} at the answer position costs {figure(joint)} of {_unit(joint)}, {figure(shown)} beyond "
            f"the sum of what each costs alone (n = {joint.n})."
        )
    if claim.kind == "reads_role":
        condition = claim.text.rstrip(".").partition(" once ")[2]
        given = f"Once {condition}, t" if condition else "T"
        return f"{given}aking {role} out of its attention costs {cost} (n = {shown.n})."
    return None


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
    """A figure with its interval."""
    if evidence.value is None or evidence.low is None or evidence.high is None:
        return "not measured"
    value, low, high = (round(x, 2) + 0.0 for x in (evidence.value, evidence.low, evidence.high))  # no minus zero
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def at_least(evidence: Evidence) -> str:
    """Before the figure of a gain: what is shown in its place (`bounded_gain`) is no larger."""
    return "" if evidence.measure.startswith("gain") else "at least "


def _decisive(claim: ClaimRecord) -> Evidence:
    """The evidence that shows what is lost: of those that passed the one with the largest figure."""
    passed = [one for one in claim.evidence if one.passed and ("effect" in one.measure or "answers" in one.measure)]
    losses = [one for one in passed if ", minus that of " not in one.measure]
    return max(losses or passed or claim.evidence, key=lambda one: one.value or 0.0)


def _unit(evidence: Evidence) -> str:
    return "the right answers" if "answers" in evidence.measure else "the score"
