"""Logistic regression and a linear SVM on text, without tuning, in torch and in JAX.

The text is RCV1 if it is in the folder ACCELEGRAD_DATA, otherwise it is generated.
The rows are sparse: a batch is one array of word numbers and one of their weights, padded with
word 0 of weight 0. Both runs see the same batches. A proof bounds their final distance from the
minimum.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import accelegrad as ag
from accelegrad.optax import accelegrad, eval_params
from accelegrad.torch import AcceleGrad
from accelegrad_lab.datasets import find, read, sparse_text

L2, BATCH, EPOCHS, MOST_ROWS = 1e-4, 32, 10, 6000


def text():
    """Return sparse rows and labels of -1 and 1."""
    path = find("rcv1_subsets_binary")
    data = sparse_text(2000, 3000, seed=0) if path is None else read(path)
    X, y = data.X[:MOST_ROWS], np.asarray(data.y[:MOST_ROWS])
    return X.tocsr(), np.where(y == y.max(), 1.0, -1.0)


def padded(X):
    """Return the word numbers and weights of all rows, padded to the longest row."""
    words = np.zeros((X.shape[0], np.diff(X.indptr).max()), dtype=np.int64)
    weights = np.zeros(words.shape)
    for row in range(X.shape[0]):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        count = entries.stop - entries.start
        words[row, :count], weights[row, :count] = X.indices[entries], X.data[entries]
    return words, weights


def batches(words, weights, y):
    rng = np.random.default_rng(0)
    for _ in range(EPOCHS):
        order = rng.permutation(len(y))
        for first in range(0, len(y) - BATCH + 1, BATCH):
            rows = order[first : first + BATCH]
            yield words[rows], weights[rows], y[rows]


def fit_with_torch(words, weights, y, features, loss):
    w = torch.nn.Parameter(torch.zeros(features, dtype=torch.float64))
    optimizer = AcceleGrad([w])
    for batch in batches(words, weights, y):
        numbers, sizes, labels = map(torch.from_numpy, batch)
        margins = labels * (w[numbers] * sizes).sum(1)
        if loss == "logistic":
            losses = torch.nn.functional.softplus(-margins)
        else:
            losses = torch.relu(1 - margins)
        optimizer.zero_grad()
        (losses.mean() + L2 / 2 * w.square().sum()).backward()
        optimizer.step()
    with optimizer.evaluating():
        return w.detach().numpy().copy()


def fit_with_jax(words, weights, y, features, loss):
    optimizer = accelegrad()

    def objective(w, numbers, sizes, labels):
        margins = labels * (w[numbers] * sizes).sum(1)
        losses = jax.nn.softplus(-margins) if loss == "logistic" else jax.nn.relu(1 - margins)
        return losses.mean() + L2 / 2 * (w * w).sum()

    @jax.jit
    def step(w, state, batch):
        updates, state = optimizer.update(jax.grad(objective)(w, *batch), state, w)
        return optax.apply_updates(w, updates), state

    w = jnp.zeros(features)
    state = optimizer.init(w)
    for batch in batches(words, weights, y):
        w, state = step(w, state, batch)
    return np.asarray(eval_params(state, w), dtype=np.float64)


def main():
    X, y = text()
    words, weights = padded(X)
    print(f"{X.shape[0]} documents, {X.shape[1]} words, {EPOCHS} epochs of batches of {BATCH}")
    for loss in ("logistic", "hinge"):
        model = ag.LinearModel(X, y, loss, l2=L2)
        for name, fit in (("torch", fit_with_torch), ("JAX", fit_with_jax)):
            w = fit(words, weights, y, X.shape[1], loss)
            right = np.mean(np.sign(X @ w) == y)
            print(
                f"{loss:8} {name:5}  objective {model.value(w):.4f}, proven to be within "
                f"{model.dual_gap(w):.4f} of the minimum; {right:.1%} right"
            )


if __name__ == "__main__":
    main()
