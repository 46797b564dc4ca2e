"""Evaluations offline: a scripted model that calls tools, and the log as inspect reads it back from its file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Task
from inspect_ai.log import EvalLog, EvalSample, read_eval_log
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

Call = tuple[str, dict[str, Any]]


def scripted(*calls: Call) -> Model:
    """A model that makes these tool calls, one a turn, and then has nothing more to say."""

    def turns() -> Iterator[ModelOutput]:
        for name, arguments in calls:
            yield _used(ModelOutput.for_tool_call("mockllm/model", name, arguments))
        while True:
            yield _used(ModelOutput.from_content("mockllm/model", "Nothing more."))

    return get_model("mockllm/model", custom_outputs=turns(), memoize=False)


def _used(output: ModelOutput) -> ModelOutput:
    """With a usage of its own: to count tokens inspect would fetch a tokenizer."""
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def evaluated(task: Task, place: Path, *, model: str | Model = "none/none", **options: Any) -> EvalLog:
    """The log of a task, read back from its file, which is what `inspect view` shows."""
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(place), display="none", **options)
    return read_eval_log(log.location)


def samples(log: EvalLog) -> list[EvalSample]:
    """The samples of a log that went well."""
    assert log.status == "success", log.error and log.error.message[:500]
    assert log.samples is not None
    return log.samples


def figures(log: EvalLog, metric: str) -> dict[str, float]:
    """One metric of every score."""
    assert log.results is not None
    return {score.name: score.metrics[metric].value for score in log.results.scores if metric in score.metrics}


def values(sample: EvalSample) -> dict[str, float]:
    """The figures of one sample."""
    assert sample.scores is not None
    (score,) = sample.scores.values()
    assert isinstance(score.value, dict)
    return {name: float(value) for name, value in score.value.items() if value is not None}  # type: ignore[arg-type]


def said_to_the_model(sample: EvalSample) -> str:
    """Everything a model could read: messages, tool results, and what was sent in each call."""
    events = [event.model_dump_json() for event in sample.events if event.event in ("model", "tool")]
    return "\n".join([*(message.model_dump_json() for message in sample.messages), *events])
