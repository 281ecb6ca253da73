"""Compatibility rules, pure, one module per schema language."""
