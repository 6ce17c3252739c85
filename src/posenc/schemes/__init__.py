"""The schemes, by place; those that need more than a few lines have a module of their own."""
