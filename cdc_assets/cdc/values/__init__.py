"""JSON values, their types, and what columns hold of them."""
