"""TRL's and verl's own code, made to work on plain tensors."""

import dataclasses
import importlib.util
import sys
import types
from pathlib import Path

import torch
import yaml


def trl_defaults() -> dict:
    """Option of the installed GRPOConfig -> its default."""
    from trl import GRPOConfig

    return {field.name: field.default for field in dataclasses.fields(GRPOConfig)}


def verl_defaults(option: str):
    """The default of an option of `python -m verl.trainer.main_ppo`, by its whole name, in the installed files."""
    (root,) = importlib.util.find_spec("verl").submodule_search_locations
    found = yaml.safe_load(Path(root, "trainer/config/_generated_ppo_trainer.yaml").read_text(encoding="utf-8"))
    for name in option.split("."):
        found = found[name]
    return found


def trl_trainer(folder, **options):
    """A GRPOTrainer, whole and real, on a language model of a few numbers; its rewards are what `trl_advantages` says."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    inner = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1, "b": 2, "</s>": 3}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="<pad>", padding_side="left")
    size = GPT2Config(vocab_size=4, n_positions=32, n_embd=8, n_layer=1, n_head=1, bos_token_id=None, eos_token_id=3, pad_token_id=0)
    GPT2LMHeadModel(size).save_pretrained(folder / "model")
    earned: list[float] = []
    config = GRPOConfig(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 4,
            "num_generations": 4,
            "max_completion_length": 6,
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "disable_tqdm": True,
        }
        | options
    )
    trainer = GRPOTrainer(
        model=str(folder / "model"),
        args=config,
        reward_funcs=lambda completions, **_: earned,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * 4),
        processing_class=tokenizer,
    )
    trainer.earned = earned
    return trainer


def trl_loss(trainer, new, old, ref, advantages, mask):
    """What `_compute_loss` makes of log-probs [N, T] that no model gave."""
    n, t = new.shape
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (new, torch.zeros(n, t), None)
    trainer.model.eval()  # a batch is not divided by the steps of gradient accumulation
    return trainer._compute_loss(
        trainer.model,
        {
            "prompt_ids": torch.ones(n, 1, dtype=torch.long),
            "prompt_mask": torch.ones(n, 1, dtype=torch.long),
            "completion_ids": torch.ones(n, t, dtype=torch.long),
            "completion_mask": mask.long(),
            "advantages": advantages,
            "old_per_token_logps": old,
            "ref_per_token_logps": ref,
            "num_items_in_batch": mask.sum(),
        },
    )


def trl_advantages(trainer, rewards):
    """What `_generate_and_score_completions` makes of the rewards [N] of one group."""
    trainer.earned[:] = rewards
    trainer.model.train()
    return trainer._generate_and_score_completions([{"prompt": "a"}] * len(rewards))["advantages"]


def verl_core():
    """verl's core_algos and torch_functional, of the installed files, without Ray, Hydra and what else `import verl` brings."""

    def module(name, **names):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(names)

    (root,) = importlib.util.find_spec("verl").submodule_search_locations
    before = dict(sys.modules)
    try:
        for name in ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo", "verl.workers"):  # folders, their __init__ not run
            module(name, __path__=[root + name.removeprefix("verl").replace(".", "/")], as_torch_index=None, group_mean_std=None)
        module("omegaconf", DictConfig=dict)
        module("tensordict", TensorDict=dict)
        module("verl.trainer.config", AlgoConfig=type("AlgoConfig", (), {}))
        module("verl.workers.config", ActorConfig=type("ActorConfig", (), {}))
        core = importlib.import_module("verl.trainer.ppo.core_algos")
        return core, sys.modules["verl.utils.torch_functional"]
    finally:  # whoever imports verl later gets the whole
        for name in [name for name in sys.modules if name.split(".")[0] in ("verl", "omegaconf", "tensordict")]:
            del sys.modules[name]
        sys.modules.update({name: m for name, m in before.items() if name.split(".")[0] in ("verl", "omegaconf", "tensordict")})
