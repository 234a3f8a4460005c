"""The client: a verified, sealed channel to a worker, and an OpenAI-compatible proxy on top of it."""
