"""Other people's agents: the MCP server and inspect tasks on one agent session."""
