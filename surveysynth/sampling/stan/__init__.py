"""Stan programs: sources, compilation, and the interfaces that run them."""
