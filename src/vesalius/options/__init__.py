"""The options of verbs and commands, declared once.

A verb of `vesalius.api` takes records, and callers may give their fields as keywords; a command takes the same records,
and each field is a flag. `records` says what a record is, `verbs` and `runs` declare them. Nothing heavy is imported
here, so that `--help` stays quick.
"""

from vesalius.options.records import RECORDS, Flat, Option, OptionRecord, flag, flattened, given_options, options_of
from vesalius.options.runs import (
    BENCHED,
    MAX_TOKENS,
    TIMEOUT,
    Ask,
    Calls,
    Cap,
    Chosen,
    Compared,
    Foreign,
    Jobs,
    Judges,
    Paid,
    Published,
    Sandboxed,
    Spend,
    Workers,
)
from vesalius.options.verbs import (
    ALIGNED,
    DISCOVERED,
    FAITHFUL,
    MOST_PROMPTS,
    NEURONS,
    SWEPT,
    Aligned,
    Charted,
    Checked,
    CircuitFrom,
    CircuitMethod,
    Continuing,
    Cut,
    Draw,
    Edit,
    Explaining,
    Force,
    HowFound,
    Knockout,
    Load,
    Out,
    Parts,
    Pruned,
    Read,
    Sample,
    Scoring,
    Selected,
    Sparse,
    Who,
    require_drawable,
)
