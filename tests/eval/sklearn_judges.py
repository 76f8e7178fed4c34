"""Judges exported features with scikit-learn: train.npy, train.labels.npy, test.npy and test.labels.npy of a folder.
Prints one JSON object with accuracies; exits with 77 where scikit-learn is not installed."""
import json
import sys

try:
    import numpy
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
except ImportError as missing:
    print(missing)
    sys.exit(77)

folder = sys.argv[1]
train, train_labels, test, test_labels = (
    numpy.load(f"{folder}/{name}.npy") for name in ("train", "train.labels", "test", "test.labels")
)
neighbours = KNeighborsClassifier(20, weights=lambda distance: 1 / (distance + 1e-8), algorithm="brute")
linear = LogisticRegression(C=1e4, max_iter=2000)
print(
    json.dumps(
        {
            "knn": neighbours.fit(train, train_labels).score(test, test_labels),
            "linear": linear.fit(train, train_labels).score(test, test_labels),
        }
    )
)
