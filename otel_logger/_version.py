"""The version of the distribution, read by the build and written to the scope of every record."""

__version__ = "0.1.0.dev0"
