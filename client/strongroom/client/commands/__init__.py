"""Sub-commands of `strongroom` that the client ships."""
