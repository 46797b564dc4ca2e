"""What the components of a circuit do: claims with evidence, verdicts by rule, explanations."""
