"""scikit-learn estimators: linear models without tuning, with a certified gap."""

from accelegrad.sklearn.classifier import AcceleGradClassifier
from accelegrad.sklearn.cv import AcceleGradClassifierCV, AcceleGradRegressorCV
from accelegrad.sklearn.regressor import AcceleGradRegressor

__all__ = [
    "AcceleGradClassifier",
    "AcceleGradClassifierCV",
    "AcceleGradRegressor",
    "AcceleGradRegressorCV",
]
