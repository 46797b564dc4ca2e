"""What the language models of a run were asked, by stage and by component: calls, tokens, dollars and seconds."""

from vesalius.documents.base import Record
from vesalius.documents.frozen import FrozenList
from vesalius.documents.view import Answer, Sheet, View, Viewable


class CallUsage(Record):
    """Calls with an outcome, failed ones included. `cached_tokens` is the part of `input_tokens` that came from the
    provider's cache; `cost` in dollars and `seconds` are None where one of the calls does not say.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    seconds: float | None = 0.0


class StageUsage(CallUsage):
    """The calls of one stage."""

    stage: str


class ComponentUsage(CallUsage):
    """The scientist's calls about one component of one case; `component` is None for calls about all of them."""

    case: str
    component: str | None


class RunUsage(Viewable, Record):
    """The calls of a benchmark run, or of one explanation. `per_component` is what the scientist used, all calls about
    whole circuits included, divided by the components it was asked about; None where it was asked about none.
    """

    run: str
    scientist: str
    backbone: str | None = None
    stages: tuple[StageUsage, ...] = ()
    components: FrozenList[ComponentUsage] = ()
    total: CallUsage = CallUsage()
    n_components: int = 0
    per_component: dict[str, float | None] | None = None

    def view(self) -> View:
        """What each stage asked."""
        used, by = self.total, "" if self.backbone is None else f" with {self.backbone}"
        cost = "cost not known" if used.cost is None else f"{used.cost:.2f} dollars"
        return View(
            f"Calls of {self.run}",
            Answer(
                f"Calls of {self.run}, {self.scientist}{by}: {used.calls} calls, {used.input_tokens} tokens in "
                f"({used.cached_tokens} from the cache), {used.output_tokens} out, {cost}"
            ),
            [Sheet.of([stage.as_data() for stage in self.stages], title="Stages")],
        )
