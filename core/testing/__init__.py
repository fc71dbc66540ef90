"""What tests whether a plugin is right. Public, as the contracts are:

- `core.testing.processor.ProcessorConformance`, `core.testing.strategy.StrategyConformance` and
  `core.testing.loader.LoaderConformance`: what every processor, strategy and loader has to pass. A plugin's tests
  subclass the kit and name the plugin; the kit's docstring shows how.
- `core.testing.loader.stored_split`: a split as preprocessing keeps it, whose columns tell the row's number.
- `core.testing.workers.Launcher`: groups of worker processes, started in a fraction of a second each.
- `core.testing.plugin`: loaded by pytest on its own; it has the fixture `ray_cluster`, and the kits' assertions show
  their values.

Everything else in this package may change. It needs pytest, which core itself does not bring.
"""
