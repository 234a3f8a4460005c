"""Sub-commands of `strongroom` that the launcher ships."""
