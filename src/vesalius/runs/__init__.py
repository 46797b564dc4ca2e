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

`ledger` is the file of events and what it says, `directory` the rest. A benchmark takes cases through `steps` on an
engine, local processes (`engine`) or Ray (`ray_engine`); it is a kind of run (`kinds`), found by entry point.
`comparing` does a run again from its records and sets two results beside each other, `listing` lists them. Lower rooms
do not write here: long work returns results or yields events, and these modules write them down.
"""
