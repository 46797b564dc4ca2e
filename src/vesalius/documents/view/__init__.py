"""What a result shows of itself, once: a `View` is an answer and a list of sections, which every face lays out.

`cells` says how values are written, `sections` what a view is made of, `viewable` what follows for a result that gives
one.
"""

from vesalius.documents.view.cells import (
    LONGEST_REPR,
    SHOWN_ROWS,
    Link,
    Mark,
    Ratio,
    Row,
    Unclear,
    cell,
    cut_text,
    duration,
    figure,
    has_options,
    html_table,
    interval,
    join_first,
    plural,
    prompts,
    several,
    subject_of,
    title_of,
    words,
)
from vesalius.documents.view.sections import (
    INTERVAL,
    Answer,
    Bars,
    Chart,
    Code,
    Curves,
    Facts,
    Graph,
    Grid,
    Group,
    HeadMap,
    LateRows,
    Node,
    Section,
    Sheet,
    Text,
    Tokens,
    View,
)
from vesalius.documents.view.viewable import (
    Rows,
    Several,
    Viewable,
    as_table,
    made,
    register,
    repr_of_first,
)
