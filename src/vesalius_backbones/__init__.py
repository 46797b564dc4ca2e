"""Language models behind one interface: providers, recording and replay, cost.

`open_backbone("provider:model")` gives a `Backbone`; `Backbone.chat` gives a `Reply` or raises a `BackboneError`. No
provider's library is imported before a provider is opened.
"""

from vesalius_backbones.backbone import Backbone, ChoiceScores
from vesalius_backbones.factory import MAX_TOKENS, TIMEOUT, backbone_name, offers_logprobs, open_backbone
from vesalius_backbones.failures import (
    BackboneError,
    BadKey,
    CapReached,
    Clock,
    Garbled,
    NotRecorded,
    OutOfCredit,
    RateLimited,
    Refused,
    Rejected,
    RetryPolicy,
    SpendingCap,
    TimedOut,
    Unreachable,
)
from vesalius_backbones.messages import (
    Event,
    Message,
    ModelRequest,
    Price,
    Prices,
    Reply,
    TokenUsage,
    Tool,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from vesalius_backbones.records import Records, Redactor
from vesalius_backbones.scripted import Faults, Scripted, ScriptedReply

__all__ = [
    "MAX_TOKENS",
    "TIMEOUT",
    "Backbone",
    "BackboneError",
    "BadKey",
    "CapReached",
    "ChoiceScores",
    "Clock",
    "Event",
    "Faults",
    "Garbled",
    "Message",
    "ModelRequest",
    "NotRecorded",
    "OutOfCredit",
    "Price",
    "Prices",
    "RateLimited",
    "Records",
    "Redactor",
    "Refused",
    "Rejected",
    "Reply",
    "RetryPolicy",
    "Scripted",
    "ScriptedReply",
    "SpendingCap",
    "TimedOut",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "Unreachable",
    "assistant",
    "backbone_name",
    "offers_logprobs",
    "open_backbone",
    "system",
    "tool_result",
    "user",
]
