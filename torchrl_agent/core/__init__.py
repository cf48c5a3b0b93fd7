"""Modules that every other package may use: errors, bounds of keys, texts, tables, devices, checkpoints, ranks."""
