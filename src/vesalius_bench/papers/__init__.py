"""Tables and figures of the three papers, filled from runs.

`hyve.json`, `mechrl.json` and `find.json` hold what the papers print (`published` reads them); `sources` reads our
results, `rows` makes the rows of each table of them, `tables` sets both side by side, `filling` runs what is missing.
"""
