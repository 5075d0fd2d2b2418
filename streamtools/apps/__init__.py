"""What one can start: the command line, and the page of `streamtools serve`."""
