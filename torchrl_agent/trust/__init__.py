"""What a configuration of any origin may name, and what needs its reader's trust: see ``docs/security.md``."""
