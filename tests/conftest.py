"""Fixtures for all tests."""

from browser import open_page

__all__ = ["open_page"]
