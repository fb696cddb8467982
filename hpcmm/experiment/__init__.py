"""From config.yaml to a plan: what to measure, how long it may take, and when to measure it again."""
