"""What the neural modules of the benchmark know: word vectors, fact tables, and language models asked for the same."""
