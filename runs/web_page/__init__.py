"""Pages of one file that need no server: their template engine, and the style and script they share."""
