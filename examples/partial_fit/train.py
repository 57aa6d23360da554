"""Train a linear classifier on scikit-learn's digits by partial_fit, batch by batch, on noisy copies."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    rng = np.random.default_rng(3)
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.3, random_state=3)
    scaler, model = StandardScaler(), SGDClassifier(loss="log_loss", random_state=3)
    for epoch in range(args.epochs):
        order = rng.permutation(len(train_x))
        for start in range(0, len(order), args.batch_size):
            batch = order[start : start + args.batch_size]
            noisy = train_x[batch] + rng.normal(0, 2, (len(batch), images.shape[1]))
            scaler.partial_fit(noisy)
            model.partial_fit(scaler.transform(noisy), train_y[batch], classes=np.arange(10))
        score = model.score(scaler.transform(test_x), test_y)
        print(f"epoch {epoch}: accuracy {score:.4f}, {model.t_ - 1:.0f} samples seen")


if __name__ == "__main__":
    main()
