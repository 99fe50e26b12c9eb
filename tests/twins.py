"""The states of compiled epochs as those of the rules, to be compared field by field."""

import numpy as np


def rule_fields(twin):
    """Return the fields of the rule's state, as numbers and dense arrays."""
    state = twin.state()
    arrays = _dense(state) if "points" in state else _sparse(twin, state)
    fields = {
        "iteration": twin.iteration,
        "step_size": twin.step_size,
        "weighted_sum": arrays["sum"],
        "weight_sum": state["weight_sum"],
    }
    if twin.kind == "adagrad":
        return fields | {"point": arrays["x"], "squares": state["squares"]}
    fields |= {"query_point": arrays["x"], "mirror_point": arrays["z"]}
    fields |= {"gradient_point": arrays["y"], "weighted_squares": state["squares"]}
    if twin.kind == "distance_free":
        fields |= {"start": twin.x0, "radius": twin.radius, "evidence": state["evidence"]}
        fields["gradient_sum"] = arrays["S"]
    return fields


def _dense(state):
    return dict(zip(("x", "sum", "y", "z", "S"), state["points"], strict=False))


def _sparse(twin, state):
    """Expand the combinations of columns and x0: see `accelegrad.kernels.sparse_coupled`."""
    features = twin.x0[: twin.n_features]

    def expanded(zeroth, intercept, *factors):
        total = state["columns"][:, : len(factors)] @ factors + state[zeroth] * features
        return np.append(total, state[intercept]) if twin.fit_intercept else total

    def coefficients(name):
        return [state[f"{name}1"], state[f"{name}2"]]

    starts = state["weight_sum"] * twin.x0
    if twin.kind == "adagrad":
        sums = expanded("rho0", "sum_b", state["rho"], 1.0)
        return {"x": twin.query(), "sum": sums + starts}
    return {
        "x": twin.query(),
        "y": twin.x0 + expanded("ups0", "yb", *coefficients("ups")),
        "z": twin.x0 + expanded("zeta0", "zb", *coefficients("zeta")),
        "sum": expanded("rho0", "sum_b", *coefficients("rho"), 1.0) + starts,
        "S": expanded("sigma0", "sb", *coefficients("sigma"), 0.0, 1.0),
    }
