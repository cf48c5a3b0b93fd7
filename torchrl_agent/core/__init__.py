"""What every other room may use: errors, bounds of keys, texts, tables, devices, checkpoints, and several processes."""
