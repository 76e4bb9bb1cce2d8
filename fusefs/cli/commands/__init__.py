"""One module per command family. Each registers its commands when it is imported."""
