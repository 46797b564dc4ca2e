"""What changes when components are replaced."""

from rich.table import Table
from rich.text import Text

from vesalius.cli.console import print_line, stdout
from vesalius.documents.views import shortened
from vesalius.documents.what_if import Likely, WhatIf

#: Prompts that are printed; --json has them all.
SHOWN = 8


def print_what_if(result: WhatIf) -> None:
    """The score before and after, then the prompts whose output changed."""
    prompts = "1 prompt" if result.effect.n == 1 else f"{result.effect.n} prompts"
    print_line(f"clean {result.clean.figures}, edited {result.edited.figures} {result.unit}, {prompts}")
    print_line(f"effect (clean minus edited): {result.effect.figures}")
    changed = [row for row in result.rows if row.changed]
    print_line(f"outputs changed: {len(changed)} of {len(result.rows)}")
    if changed:
        table = Table("prompt", "clean", "edited", box=None, pad_edge=False)
        for row in changed[:SHOWN]:
            table.add_row(*(Text(shortened(str(cell), 60)) for cell in (row.prompt, row.clean, row.edited)))
        stdout.print(table)
        if len(changed) > SHOWN:
            print_line(f"... {len(changed) - SHOWN} more; --json has them all")
    if len(result.rows) == 1 and result.rows[0].clean_likely:
        print_line(f"clean next:  {_likely(result.rows[0].clean_likely)}")
        print_line(f"edited next: {_likely(result.rows[0].edited_likely)}")
    print_line(f"again: {result.request.command_line()}")


def _likely(tokens: tuple[Likely, ...]) -> str:
    return ", ".join(f"{one.token!r} {one.probability:.3f}" for one in tokens)
