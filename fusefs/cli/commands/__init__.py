"""One module per command family. Importing it registers its commands; `fusefs.cli.FAMILIES` lists both."""
