"""What a circuit does: claims with evidence, verdicts by rule, explanations."""
