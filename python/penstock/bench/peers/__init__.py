"""Other libraries for the same work, called as their users call them."""
