"""Generated messages and stubs of the wire format, package `strongroom.v1`."""
