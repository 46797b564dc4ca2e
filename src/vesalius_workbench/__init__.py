"""The workbench: a local web page on specimens and results.

`server` answers the page's requests, `guard` decides who may ask, `store` reads results below one directory, `models`
keeps loaded specimens and the clean runs of their prompts. The page itself is in `static`, built from `workbench/` at
the top of the repository. Nothing is computed in the browser but layout: all work goes through `vesalius.api`.
"""
