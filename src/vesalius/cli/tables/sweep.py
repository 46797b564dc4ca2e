"""The effects of a sweep, and what a command will cost."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents import Sweep
from vesalius.documents.plan import Plan
from vesalius.report.html import duration


def print_sweep(sweep: Sweep, top: int) -> None:
    """The `top` components of the largest effect, and where the files are."""
    what = "pair" if sweep.pairs else "component"
    title = f"clean {sweep.baseline:.3f} {sweep.unit}; effect = clean minus edited"
    table = Table(what, "effect", "95 % interval", box=None, title=title)
    rows = sorted(sweep.components, key=lambda row: -abs(row.effect))[:top]
    for row in sorted(rows, key=lambda row: -row.effect):
        interval = "" if row.ci_low is None or row.ci_high is None else f"[{row.ci_low:+.3f}, {row.ci_high:+.3f}]"
        table.add_row(row.id, f"{row.effect:+.3f}", interval)
    stdout.print(table)
    stdout.print(
        f"{len(sweep.components)} {what}s, {sweep.n} prompt{'s' * (sweep.n != 1)}, "
        f"{sweep.forwards:.1f} forward-equivalents, "
        f"{sweep.seconds:.1f} s"
    )
    if sweep.heatmap:
        print_line(f"heatmap: {sweep.heatmap}")
    print_line(f"numbers: {sweep.directory}/sweep.json")


def print_plan(plan: Plan) -> None:
    """Passes, memory and time of a command that was not run."""
    prompts = "1 prompt" if plan.n == 1 else f"{plan.n} prompts"
    assumed = ", which is assumed: a tokenizer and --behaviour would tell" if plan.tokens_assumed else ""
    print_line(f"passes: {plan.forwards:.1f} of {prompts}{plan.further_passes()}, of {plan.tokens} tokens{assumed}")
    memory = f"memory: about {plan.peak_bytes / 2**20:,.0f} MB on {plan.device}"
    if plan.fits is False and plan.free_bytes is not None:
        print_line(f"{memory}; does not fit: {plan.free_bytes / 2**20:,.0f} MB are free")
        print_line("time: not estimated, since it does not fit; nothing was run")
        return
    print_line(memory)
    print_line(f"time: about {duration(plan.seconds)}, from {plan.timed} that was timed; nothing else was run")
