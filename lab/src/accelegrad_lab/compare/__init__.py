"""Methods compared on a user's data."""
