"""Other libraries that do the same, each as its users call it."""
