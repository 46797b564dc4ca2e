"""Pictures and the evidence page: what was found, for people to look at."""
