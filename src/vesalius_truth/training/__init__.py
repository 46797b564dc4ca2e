"""SIIT: trains a transformer that implements a RASP program in known components.

    for event in fit(setting_of(program), device="cpu"):
        ...                                # StepReport, CheckReport, Retry; the last one is a FitResult
    event.model, event.gate.passed

A `Setting` describes one model to train. `train` trains stacks of them, `fit` one until it is accepted, `train_group`
many and writes their files; `measure` is the gate that accepts a model.
"""
