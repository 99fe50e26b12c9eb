"""Everyday fits: estimators with all their defaults beside the specialists with theirs."""
