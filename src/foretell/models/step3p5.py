"""Step-3.5's text model as a causal LM: transformers 5.24 has its layers, and a class with images alone around them.

Importing this tells transformers' AutoModelForCausalLM of it, for Step-3.5 and for the text of Step-3.7.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.step3p7.configuration_step3p7 import Step3p7Config, Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextModel


class Step3p5ForCausalLM(Step3p7PreTrainedModel, GenerationMixin):
    """transformers' Step3p7TextModel and an output head, under the names that the published files have."""

    config: Step3p7TextConfig
    config_class = Step3p7TextConfig
    input_modalities = ("text",)
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _keys_to_ignore_on_load_unexpected = [r"^vision_model\.", r"^vit_large_projector\."]

    def __init__(self, config: Step3p7TextConfig) -> None:
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """(B, T) token ids, or (B, T, D) embeddings -> logits (B, T, V), and the cache."""
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return CausalLMOutputWithPast(logits=self.lm_head(output.last_hidden_state), cache=output.cache)


_NAME = Step3p5ForCausalLM.__name__


def _register() -> None:
    """Once; and not at all where transformers has come to have a class of its own."""
    for config in (Step3p7TextConfig, Step3p7Config):
        if config not in MODEL_FOR_CAUSAL_LM_MAPPING:
            MODEL_FOR_CAUSAL_LM_MAPPING.register(config, Step3p5ForCausalLM, exist_ok=True)
    if get_checkpoint_conversion_mapping(_NAME) is None:
        conversions = get_checkpoint_conversion_mapping("step3p7")  # its experts' names are the text model's
        within_layers = [c for c in conversions if not any(p.startswith("model.") for p in c.target_patterns)]
        register_checkpoint_conversion_mapping(_NAME, within_layers)


_register()
