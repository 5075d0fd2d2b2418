"""Adapters for the wire formats of providers, with one module per format. Sans-IO."""
