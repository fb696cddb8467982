"""What a process meets on a machine: files of others, YAML, its environment, and terminals for its texts."""
