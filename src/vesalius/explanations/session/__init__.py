"""An agent's study of one specimen: the session, what it works on, how claims are written, what programs find."""
