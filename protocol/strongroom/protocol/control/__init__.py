"""Generated messages and stubs of the internal channel between launcher and front ends."""
