"""The effects of a sweep, and what a command will cost."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents import Sweep
from vesalius.documents.plan import Plan


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
    checks = f" and {plan.checks_forwards:.1f} for the checks" if plan.checks_forwards else ""
    prompts = "1 prompt" if plan.n == 1 else f"{plan.n} prompts"
    print_line(f"passes: {plan.forwards:.1f} of {prompts}{checks}")
    print_line(f"memory: about {plan.peak_bytes / 2**20:,.0f} MB on {plan.device}")
    print_line(f"time: about {plan.seconds:.1f} s, from {plan.timed} that was timed; nothing else was run")
