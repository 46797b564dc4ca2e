"""Fresh tasks with known circuits: a grammar of programs, kinds of tasks, and which of them are kept."""
