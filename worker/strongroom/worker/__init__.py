"""The worker: a sealed gRPC front end on vLLM's serving classes, in process.

Only `engine`, `plugin` and `endpoints` touch vLLM.
"""
