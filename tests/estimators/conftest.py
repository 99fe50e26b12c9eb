"""Data that tests of the estimators share."""

import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="session")
def binary():
    """Rows with standardised features, and labels 0 and 1."""
    return standardised(load_breast_cancer)


@pytest.fixture(scope="session")
def flowers():
    """Rows of three classes."""
    return standardised(load_iris)


@pytest.fixture(scope="session")
def numbers():
    """Rows with numbers as targets."""
    return standardised(load_diabetes)
