"""
A support vector machine on text
================================

With thousands of sparse columns and few rows, the dual problem has fewer variables, and the default
solves it. ``gap_`` bounds the distance of each fit from the optimal objective.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from accelegrad.sklearn import AcceleGradClassifier

rng = np.random.default_rng(0)
words = np.array([f"word{i}" for i in range(5000)])
common = 1 / np.arange(1, 5001)


def text(topic):
    chances = common * (rng.random(5000) < 0.3)
    chances[topic * 40 + 200 : topic * 40 + 240] += 2e-3
    return " ".join(rng.choice(words, 80, p=chances / chances.sum()))


topics = rng.integers(0, 2, 900)
X = TfidfVectorizer().fit_transform([text(topic) for topic in topics])
learnt, tested = slice(0, 600), slice(600, None)

alphas, scores, gaps = np.logspace(-5, -1, 9), [], []
for alpha in alphas:
    svm = AcceleGradClassifier("hinge", alpha=alpha).fit(X[learnt], topics[learnt])
    scores.append(svm.score(X[tested], topics[tested]))
    gaps.append(svm.gap_ / svm.objective_)
print(f"{X.shape[1]} words; every fit is proved to {max(gaps):.0e}, relatively")
plt.semilogx(alphas, scores, "o-")
plt.xlabel("alpha, the strength of the penalty")
plt.ylabel("right on new texts")
plt.show()
