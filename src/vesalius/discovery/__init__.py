"""Who matters: which components of a model carry a behaviour."""
