"""A convex method on a non-convex problem: a small network on scikit-learn's digits.

AcceleGrad's theorems are about convex functions, so nothing guarantees that it does well here. The
table compares it with optimizers designed for networks, all with default settings (SGD and Adam
with common ones). Optimizers that are not installed are left out.
"""

import importlib
import warnings

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from accelegrad.torch import AcceleGrad

EPOCHS, BATCH, SEEDS = 20, 64, 3
PEERS = {
    "AdamW, Schedule-Free": ("schedulefree", "AdamWScheduleFree"),
    "DoG": ("dog", "DoG"),
    "Prodigy": ("prodigyopt", "Prodigy"),
}


def optimizers():
    """Return a function that creates each optimizer, by name."""
    makers = {
        "SGD 0.1, momentum 0.9": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "Adam 1e-3": lambda p: torch.optim.Adam(p, lr=1e-3),
    }
    for name, (module, kind) in PEERS.items():
        try:
            makers[name] = getattr(importlib.import_module(module), kind)
        except ImportError:
            print(f"{name} is left out: {module} is not installed")
    return {**makers, "AcceleGrad": AcceleGrad}


def mode(optimizer, name):
    """Switch to the training or evaluation point if the optimizer has both."""
    if hasattr(optimizer, name):
        getattr(optimizer, name)()


def trained(make, data, seed):
    """Return the loss on the training rows and the accuracy on the test rows."""
    X, X_test, y, y_test = data
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer, loss = make(network.parameters()), torch.nn.CrossEntropyLoss()
    mode(optimizer, "train")
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            loss(network(X[rows]), y[rows]).backward()
            optimizer.step()
    mode(optimizer, "eval")
    with torch.no_grad():
        right = (network(X_test).argmax(1) == y_test).double().mean()
        return float(loss(network(X), y)), float(right)


def main():
    torch.set_num_threads(1)
    digits = load_digits()
    X = torch.tensor(digits.data / 16, dtype=torch.float32)
    data = train_test_split(X, torch.tensor(digits.target), test_size=0.3, random_state=0)
    print(f"{len(data[0])} digits, {EPOCHS} epochs of batches of {BATCH}, means of {SEEDS} runs")
    print(f"{'optimizer':24} {'loss':>8} {'right':>7}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other optimizers warn about their defaults
        for name, make in optimizers().items():
            found = torch.tensor([trained(make, data, seed) for seed in range(SEEDS)]).mean(0)
            print(f"{name:24} {found[0]:8.4f} {found[1]:7.1%}")


if __name__ == "__main__":
    main()
