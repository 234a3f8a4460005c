"""The wire format of Strongroom: keys, sealing, attestation binding and cache derivations, without any I/O."""
