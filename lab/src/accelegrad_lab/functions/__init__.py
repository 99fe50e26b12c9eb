"""Convex functions with exact gradients: a suite of them, methods for them, and a comparison."""
