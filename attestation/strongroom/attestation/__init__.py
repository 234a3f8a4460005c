"""Evidence: collecting it, reading it, and appraising it against a policy (roles as in RFC 9334)."""
