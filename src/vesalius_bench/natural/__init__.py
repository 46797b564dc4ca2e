"""`vesalius bench natural`: explanations of natural models, graded by running them in the model's place."""
