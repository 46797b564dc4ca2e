"""Searching for the head a behaviour needs most, when every look costs: one purse, many ways to spend it.

`purse` keeps the account of one episode, `rivals` are the ways to spend, `contest` sets them side by side on the same
episodes and reports regret against what was paid.
"""
