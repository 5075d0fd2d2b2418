"""One file a wire format: what a provider sends, frame by frame, into source events. Sans-IO."""
