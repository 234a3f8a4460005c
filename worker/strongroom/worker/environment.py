"""The process environment of a front end and its engine, fixed before vLLM is imported."""

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4

# vLLM reads its environment at import. The launcher already dropped whatever was set outside.
_FIXED = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # No plug-in but ours, whatever is installed.
    "VLLM_PLUGINS": "strongroom",
    # Between the engine's processes, nothing but the loopback address and Unix sockets in our own folder.
    "VLLM_HOST_IP": "127.0.0.1",
    # Under confidential computing the V2 runner returned wrong output silently (vllm#57224).
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}


def fix_environment(cpu_kv_cache_gib: int | None) -> None:
    """Set what vLLM must see; `cpu_kv_cache_gib` is the size of the KV cache on the CPU platform."""
    os.environ.update(_FIXED)
    if cpu_kv_cache_gib is not None:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(cpu_kv_cache_gib)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` ends, and keep its memory out of core dumps."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_PDEATHSIG, signal.SIGKILL), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getppid() != parent:
        # It ended before the kernel was told.
        os.kill(os.getpid(), signal.SIGKILL)
