"""The launcher: the first process in the enclave. It owns the keys, starts the front ends, and reports."""
