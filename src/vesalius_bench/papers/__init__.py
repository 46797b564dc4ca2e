"""Tables and figures of the three papers, filled from runs.

One module per paper lists its entries (`hyve`, `mechrl`, `find`); `figures` has the published numbers (in
`published.json`, as printed), `sources` reads the runs, `entries` says what an entry is.
"""
