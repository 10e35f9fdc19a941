"""The SPARTA section of a model's config.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sparta.base.errors import InputError, ModelError
from sparta.models.quantize import Quantizer, QueryQuantizer
from sparta.neural.inputs import InputLayout, Lexical
from sparta.neural.stored import config_object

CONFIG_VERSION = 1
_MOST_LOGARITHMS = 8


@dataclass(frozen=True, slots=True)
class SpartaConfig:
    """The `sparta` object of a model's config.json.

    :param pool_special: whether the maximum of eq. 4 includes [CLS] and [SEP]
    :param log_count: how often log(1+x) is applied (once in eq. 6)
    :param lexical: how term occurrences are added to eq. 6; None adds none (decision 0012)
    :param context_share: the proportion of the context's weights in an answer's weights (decision 0014)
    :param weighted_queries: whether each distinct query term counts once, with a learned weight (decision
        0020)
    :param query_quantizer: the grid of the query-term weights; None fits the grid to the weights
    """

    layout: InputLayout = field(default_factory=InputLayout)
    tied: bool = False
    pool_special: bool = False
    log_count: int = 1
    lexical: Lexical | None = None
    context_share: float = 0.0
    weighted_queries: bool = False
    quantizer: Quantizer | None = None
    query_quantizer: QueryQuantizer | None = None
    format_version: int = CONFIG_VERSION

    def __post_init__(self) -> None:
        if self.pool_special and self.layout.share_context:
            raise ModelError(
                "pool_special and share_context exclude each other: [CLS] belongs to no single answer",
                remedy="correct the sparta object in the model's config.json",
            )
        if not 0 <= self.context_share < 1 or (self.context_share and not self.layout.share_context):
            raise ModelError(
                f"context_share must be in [0, 1), and 0 without share_context, found {self.context_share}",
                remedy="correct the sparta object in the model's config.json",
            )

        if type(self.log_count) is not int or not 0 <= self.log_count <= _MOST_LOGARITHMS:
            raise ModelError(
                f"log_count must be a whole number from 0 to {_MOST_LOGARITHMS}, found {self.log_count!r}",
                remedy="correct the sparta object in the model's config.json",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the object for config.json."""
        return asdict(self)

    @staticmethod
    def from_dict(value: dict[str, Any], where: str) -> SpartaConfig:
        """Build a configuration from the object in config.json.

        :raises ModelError: the object is not valid, or has a newer format.
        """
        value = config_object(value, "sparta", CONFIG_VERSION, where)
        try:
            quantizer, lexical = value.get("quantizer"), value.get("lexical")
            grid = value.get("query_quantizer")
            return SpartaConfig(
                **{
                    **value,
                    "layout": InputLayout(**value["layout"]),
                    "lexical": Lexical(**lexical) if lexical else None,
                    "quantizer": Quantizer(**quantizer) if quantizer else None,
                    "query_quantizer": QueryQuantizer(**grid) if grid else None,
                }
            )
        except (KeyError, TypeError, InputError) as error:
            raise ModelError(
                f"the sparta object of the model's config.json is not valid: {error}", where=where
            ) from error
