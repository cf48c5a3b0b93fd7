"""A run: its folder, its checkpoints, its evaluation, its film, its model card; and runs side by side."""
