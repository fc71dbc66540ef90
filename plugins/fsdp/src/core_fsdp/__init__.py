"""Sharded training with torch FSDP2. Registers nothing in this version."""
