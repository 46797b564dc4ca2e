"""Which components matter: methods that find the circuit of a behaviour, with scores for components and edges."""
