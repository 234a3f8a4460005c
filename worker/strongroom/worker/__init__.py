"""The worker: a sealed gRPC front end on vLLM's serving classes, in process. Only `engine` and `plugin` touch vLLM."""
