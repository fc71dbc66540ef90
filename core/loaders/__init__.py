"""The batch loaders that come with core."""
