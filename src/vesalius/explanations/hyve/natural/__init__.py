"""HyVE on natural models: the same stages, with prompts, instruments and claims that speak of texts and roles."""
