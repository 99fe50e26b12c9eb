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
TWO_ALPHAS = "ignore:The best alpha:UserWarning"  # either is at an end of the grid
ESTIMATORS = [
    AcceleGradClassifier(),
    AcceleGradRegressor(),
    AcceleGradClassifierCV(**SHORT_PATH),
    AcceleGradRegressorCV(**SHORT_PATH),
]
# This check wants a SciPy that was loaded with the array API on.
IN_OWN_PROCESS = "check_array_api_input"
CHILD = f"""
import accelegrad.sklearn
from sklearn.utils.estimator_checks import estimator_checks_generator
estimators = [
    getattr(accelegrad.sklearn, name)(**({SHORT_PATH!r} if name.endswith("CV") else {{}}))
    for name in accelegrad.sklearn.__all__
]
done = 0
for estimator in estimators:
    for checked, check in estimator_checks_generator(estimator):
        if getattr(check, "func", check).__name__ == {IN_OWN_PROCESS!r}:
            check(checked)
            done += 1
print(done)
"""


def name_of(check):
    return getattr(check, "func", check).__name__


# One check sets max_iter=1000 itself, on weights from 1e-4 to 1e3: the miss is true.
@pytest.mark.filterwarnings("ignore:.*missed tol:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings(TWO_ALPHAS)
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    if name_of(check) != IN_OWN_PROCESS:
        check(estimator)


def test_the_check_that_needs_a_process_of_its_own():
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["4"]
