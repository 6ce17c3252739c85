"""The schemes, one module a place."""
