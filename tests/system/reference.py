"""vLLM's own answers, without a line of Strongroom, not even its plug-in.

`python -m tests.system.reference MODEL NAME ENGINE_JSON`."""

import asyncio
import json
import os
import sys

REQUESTS = {
    "greedy": {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 40},
    "seeded": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Roll the dice."}],
        "temperature": 0.9,
        "top_p": 0.95,
        "seed": 1234,
        "max_tokens": 60,
    },
    "penalised": {
        "messages": [{"role": "user", "content": "x" * 300}],
        "temperature": 0.5,
        "seed": 7,
        "presence_penalty": 1.0,
        "logit_bias": {"70": 5},
        "max_tokens": 32,
    },
}


async def main(model: str, name: str, engine: dict[str, int | bool]) -> None:
    from starlette.datastructures import State
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = [
        f"--max-model-len={engine['max_model_len']}",
        f"--max-num-seqs={engine['max_num_seqs']}",
        "--enforce-eager",
    ]
    arguments = [f"--model={model}", f"--served-model-name={name}", *flags]
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    async with build_async_engine_client(args) as client:
        state = State()
        await init_app_state(client, state, args, await client.get_supported_tasks())
        texts = {}
        for label, body in REQUESTS.items():
            answer = await state.openai_serving_chat.create_chat_completion(ChatCompletionRequest(model=name, **body))
            texts[label] = answer.choices[0].message.content
        print(json.dumps(texts), flush=True)


if __name__ == "__main__":
    settings = json.loads(sys.argv[3])
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(settings["cpu_kv_cache_gib"]),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_PLUGINS": "",
    }
    asyncio.run(main(sys.argv[1], sys.argv[2], settings))
