"""ZeRO training with DeepSpeed. Registers nothing in this version."""
