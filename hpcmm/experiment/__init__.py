"""From config.yaml to a plan: the points to measure, their upper bounds in time, and when to measure them again."""
