"""The league: sealed circuits and functions that submitted scientists are scored on."""
