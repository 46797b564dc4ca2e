"""Surveys: many models and behaviours in one table."""
