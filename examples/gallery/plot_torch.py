"""
Training a torch model without a learning rate
==============================================

Compare SGD with five learning rates to AcceleGrad, which needs none. The model is convex: a linear
classifier for scikit-learn's digits.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from accelegrad.torch import AcceleGrad

torch.set_num_threads(1)
digits = load_digits()
X = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
loss = torch.nn.CrossEntropyLoss()


def losses(make, epochs=8):
    torch.manual_seed(0)
    model, found = torch.nn.Linear(64, 10), []
    optimizer = make(model.parameters())
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            loss(model(X[rows]), labels[rows]).backward()
            optimizer.step()
        if isinstance(optimizer, AcceleGrad):
            with optimizer.evaluating(), torch.no_grad():  # at the average
                found.append(float(loss(model(X), labels)))
        else:
            with torch.no_grad():
                found.append(float(loss(model(X), labels)))
    return found


for rate in (0.01, 0.1, 1.0, 10.0, 100.0):
    curve = losses(lambda p, rate=rate: torch.optim.SGD(p, lr=rate))
    plt.semilogy(range(1, 9), curve, color="tab:gray", alpha=0.7)
    plt.annotate(f"SGD {rate:g}", (8, curve[-1]), fontsize=8)
plt.semilogy(range(1, 9), losses(AcceleGrad), color="tab:blue", linewidth=2.5, label="AcceleGrad")
plt.xlabel("epoch")
plt.ylabel("loss on all rows")
plt.legend()
plt.show()
