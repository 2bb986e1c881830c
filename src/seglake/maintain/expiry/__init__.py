"""Expiry: what leaves a topic by its age, its size or an operator's word."""
