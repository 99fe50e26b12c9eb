"""Reading data sets from files, whole or in blocks."""
