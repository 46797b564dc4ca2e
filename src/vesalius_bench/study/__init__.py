"""The AF1 study of arithmetic heads."""
