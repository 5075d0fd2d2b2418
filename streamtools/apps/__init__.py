"""The applications: the command line, and the web page of `streamtools serve`."""
