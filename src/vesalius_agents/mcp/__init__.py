"""The server for other agents: every experiment as a tool of the Model Context Protocol, under a budget.

`tools` are plain functions over `vesalius.api` with typed arguments and results; `server` offers them with progress,
cancellation and one-line errors; `desk` keeps what lasts between calls (models, budgets, submissions, the ledger).
"""
