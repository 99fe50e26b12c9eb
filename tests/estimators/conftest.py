"""Data that tests of the estimators share."""

import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


@pytest.fixture(scope="session")
def binary():
    """Rows with standardised features, and labels 0 and 1."""
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y
