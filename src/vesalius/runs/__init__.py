"""The run directory: what was asked, what happened, what came out; made so that it survives being killed.

    run.json        what was asked, and with which versions; never a key
    events.jsonl    what happened, one record per line, only ever appended to
    explanations/   one file per specimen
    traces/         how each explanation came about, where a language model made it
    calls/          every call to a language model, one file per case and judge
    executions/     what executed code gave, one file per case
    spending.json   the counter of the spending cap, made again from calls/ whenever a run is taken up
    scorecard.json  the figures
    report.html     the index page, with one page per specimen under pages/

`ledger` is the file of events, `directory` the rest. `circuits` is the benchmark: its `settings`, the `state` that its
ledger says, its `scorecard`. Cases are the `work` of an engine, local processes (`engine`) or Ray (`ray_engine`); they
ask a scientist and share one cap (`spending`). `replay` does a run again from its records, `comparison` sets runs
beside the `published` figures. Lower rooms do not write here: long work returns results or yields events, and
these modules write them down.
"""
