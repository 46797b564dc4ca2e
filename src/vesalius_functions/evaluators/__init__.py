"""An evaluator that is trained: a small language model with low-rank adapters takes the unit tests of descriptions.

`adapter.py` holds the adapters and their files, `forms.py` how a test is put to the model, `data.py` reads exported
tests, `training.py` trains, `command.py` measures and writes, `naming.py` names and `trained.py` opens
what was trained.
"""
