"""Who may reach a server of Vesalius, and how much of it: one layer under the workbench and under MCP over HTTP."""
