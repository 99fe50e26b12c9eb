"""What torch's own tests of optimizers need to know about ours: `OptimizerInfo`s.

torch's module of tests takes seconds to load, and is loaded only where an `OptimizerInfo` is made.
"""

import torch

from accelegrad.torch import AcceleGrad, AdaGradNorm

COMMON = [
    {},
    {"lr": 0.5},
    {"lr": torch.tensor(0.5)},
    {"weight_decay": 0.1},
    {"maximize": True},
    {"weight_decay": 0.1, "maximize": True},
    {"capturable": True},
]
EXTRA = {
    AcceleGrad: [
        {"diameter": 1.0},
        {"diameter": 1.0, "gradient_bound": 0.1, "lr": torch.tensor(0.5)},
        {"diameter": 1.0, "weight_decay": 0.1, "maximize": True},
    ],
}
WRONG = {
    AcceleGrad: [
        ({"diameter": -1.0}, "diameter must be a finite number > 0, but it is -1.0"),
        ({"gradient_bound": -1.0, "diameter": 1.0}, "gradient_bound must be a finite number >= 0"),
        ({"projection": "bal"}, "did you mean 'ball'"),
    ],
}


def options_of(kind):
    """Options to try an optimizer with."""
    return [*COMMON, *EXTRA.get(kind, ())]


def wrong_options_of(kind):
    """Options that it has to refuse, with a pattern of what it says."""
    return [
        ({"lr": -0.1}, "lr must be a finite number >= 0, but it is -0.1"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number >= 0"),
        *WRONG.get(kind, ()),
    ]


def info_of(kind):
    from torch.testing._internal import common_optimizers as common

    def inputs(device, dtype=None):
        return [common.OptimizerInput(None, dict(given), str(given)) for given in options_of(kind)]

    def errors(device, dtype):
        param = torch.nn.Parameter(torch.ones(2, device=device, dtype=dtype))
        found = common.get_error_inputs_for_all_optims(device, dtype)
        for given, message in wrong_options_of(kind):
            wrong = common.OptimizerInput([param], given, message)
            found.append(
                common.ErrorOptimizerInput(wrong, error_type=ValueError, error_regex=message)
            )
        return found

    return common.OptimizerInfo(
        kind,
        optim_inputs_func=inputs,
        optim_error_inputs_func=errors,
        supports_sparse=True,
        metadata_for_sparse=({"lr": 1.0}, []),
        has_capturable_arg=True,
    )


KINDS = [AcceleGrad, AdaGradNorm]
