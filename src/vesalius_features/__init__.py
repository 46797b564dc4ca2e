"""Sparse features of models: per-layer transcoders trained on a user's text, and circuits of latents.

The core reads dictionaries, replaces their latents and ranks them (`vesalius.model.dictionaries`,
`vesalius.intervene.features`). What trains them, and what is built of many latents at once, is here, and is found by
entry points.
"""
