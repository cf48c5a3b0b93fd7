"""Targets that a configuration of any origin may name, and those that need its reader's trust (docs/security.md)."""
