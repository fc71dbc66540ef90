"""The dataframe engine that core brings along."""
