"""Training of ranking models: labelled views, one loop for every architecture, and how good predictions are."""
