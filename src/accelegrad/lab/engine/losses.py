"""What the lab knows of losses beyond their formulas, in one place."""

from __future__ import annotations

from typing import Any, NamedTuple

from accelegrad.problems.linear_model import LinearModel


class LossFacts(NamedTuple):
    """How a loss is called elsewhere."""

    estimator: str  # the name that the scikit-learn estimators know it by
    words: str  # the problem, in words
    parameter: str = ""  # the name of its parameter


LOSSES = {
    "logistic": LossFacts("log_loss", "logistic regression"),
    "hinge": LossFacts("hinge", "SVM (hinge loss)"),
    "squared_hinge": LossFacts("squared_hinge", "SVM (squared hinge loss)"),
    "squared": LossFacts("squared_error", "least squares"),
    "absolute": LossFacts("absolute_error", "least absolute deviations"),
    "huber": LossFacts("huber", "regression with Huber's loss", "delta"),
    "quantile": LossFacts("quantile", "quantile regression", "quantile"),
    "epsilon_insensitive": LossFacts(
        "epsilon_insensitive", "regression with the epsilon-insensitive loss", "epsilon"
    ),
}


def loss_options(model: LinearModel) -> dict[str, Any]:
    """Return the parameter of a model's loss as a keyword; none where it has none."""
    name = LOSSES[model.loss.name].parameter
    return {name: model.loss.parameter} if name else {}
