"""Where time goes: measured (``profile``), or computed for a GPU that is not there (``roofline``)."""
