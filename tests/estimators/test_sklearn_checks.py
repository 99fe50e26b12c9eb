"""scikit-learn's own checks of estimators: all of them, none skipped or expected to fail."""

import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)

SHORT_PATH = {"alphas": [1e-1, 1e-2], "cv": 3}
ESTIMATORS = [
    AcceleGradClassifier(),
    AcceleGradRegressor(),
    AcceleGradClassifierCV(**SHORT_PATH),
    AcceleGradRegressorCV(**SHORT_PATH),
]
# This check wants a SciPy that was loaded with the array API on.
IN_OWN_PROCESS = "check_array_api_input"
IS_CHILD = os.environ.get("SCIPY_ARRAY_API") == "1"


# One check sets max_iter=1000 itself, on weights from 1e-4 to 1e3: the miss is true.
@pytest.mark.filterwarnings("ignore:.*missed tol:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The best alpha:UserWarning")  # it is at an end of the grid
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    if IS_CHILD or getattr(check, "func", check).__name__ != IN_OWN_PROCESS:
        check(estimator)


@pytest.mark.skipif(IS_CHILD, reason="this is the process")
def test_the_check_that_needs_a_process_of_its_own():
    options = ["-q", "-k", f"{IN_OWN_PROCESS} and not process_of", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", __file__, *options]
    env = os.environ | {"SCIPY_ARRAY_API": "1"}
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert "4 passed" in told
