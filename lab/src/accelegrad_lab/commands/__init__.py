"""Commands that join `accelegrad` through the entry-point group `accelegrad.commands`."""
