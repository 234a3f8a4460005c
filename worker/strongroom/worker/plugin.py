"""What vLLM loads in each of its processes (entry-point groups `vllm.general_plugins`, `vllm.stat_logger_plugins`)."""

import multiprocessing
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from strongroom.worker.environment import die_with_parent


def register() -> None:
    """In the engine core and its workers: end with the parent, leave no core dump."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)


class EngineLoad(StatLoggerBase):  # type: ignore[misc] # vLLM is not followed
    """Keeps the scheduler's last two counts, and nothing about requests or cache hits."""

    running = 0
    waiting = 0

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        """Take what vLLM passes; one engine, so the counts live in the class."""

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Called after each step of the engine."""
        if scheduler_stats is not None:
            EngineLoad.running = scheduler_stats.num_running_reqs
            EngineLoad.waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
