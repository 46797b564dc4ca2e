"""The run directory: what was asked, what happened, what came out; made so that it survives being killed.

    run.json        what was asked, and with which versions
    events.jsonl    what happened, one record per line, only ever appended to
    explanations/   one file per specimen
    scorecard.json  the figures
    report.html     the index page, with one page per specimen under pages/

`ledger` is the file of events, `directory` the rest, `engine` runs cases in processes of their own, `circuits` is the
benchmark. Nobody below this floor writes here: long work returns results or yields events, and these modules write them
down.
"""
