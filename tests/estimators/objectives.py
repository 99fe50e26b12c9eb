"""The estimators' objectives, by the formulas of `reference`."""

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss

from reference.losses import OTHER_NAMES, PARAMETER, loss_values


def mean_loss(fitted, X, y, weights=None):
    name = OTHER_NAMES.get(fitted.loss, fitted.loss)
    if not is_classifier(fitted):
        parameter = getattr(fitted, PARAMETER.get(name, ""), 0.0)
        scale = 1.0 if name == "quantile" else fitted.target_scale_
        losses = loss_values(name, fitted.predict(X), y, parameter=parameter * scale)
    elif fitted.loss == "log_loss":
        return log_loss(y, fitted.predict_proba(X), sample_weight=weights)
    else:
        margins = fitted.decision_function(X).reshape(y.size, -1)
        signs = np.where(y[:, None] == fitted.classes_[-margins.shape[1] :], 1, -1)
        losses = loss_values(name, margins, signs).sum(axis=1)
    return np.average(losses, weights=weights)


def objective(fitted, X, y):
    """Return the mean loss plus alpha times the penalty."""
    share = {None: 0.0, "l1": 1.0, "l2": 0.0, "elasticnet": fitted.l1_ratio}[fitted.penalty]
    l1, l2 = np.abs(fitted.coef_).sum(), (fitted.coef_**2).sum() / 2
    return mean_loss(fitted, X, y) + fitted.alpha * (share * l1 + (1 - share) * l2)
