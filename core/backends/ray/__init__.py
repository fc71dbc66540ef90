"""Jobs on a Ray cluster: joining or starting it, placing workers, and training on them with Ray Train."""
