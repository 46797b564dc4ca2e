"""Tests of the layer under every server."""
