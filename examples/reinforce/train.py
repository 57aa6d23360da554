"""REINFORCE: a policy learns to balance a pole on a cart. Policy, gradient and cart are NumPy and Python."""

import argparse
import math

import numpy as np


class Cart:
    """A cart of 1 kg with a pole of 0.1 kg and 1 m, pushed by 10 N to either side every 20 ms."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, action):
        _, speed, angle, spin = self.state
        sin, cos = math.sin(angle), math.cos(angle)
        push = ((10.0 if action else -10.0) + 0.05 * spin * spin * sin) / 1.1
        spin_change = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        speed_change = push - 0.05 * spin_change * cos / 1.1
        change = np.array([speed, speed_change, spin, spin_change])
        self.state = self.state + 0.02 * change
        failed = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state, 1.0, failed


class Policy:
    """One hidden layer, and the probability of a push to the right."""

    def __init__(self, rng, hidden=16):
        self.w1 = rng.normal(0, 0.5, (hidden, 4))
        self.w2 = rng.normal(0, 0.25, hidden)

    def act(self, state, rng):
        hidden = np.tanh(self.w1 @ state)
        right = 1 / (1 + math.exp(-float(self.w2 @ hidden)))
        action = int(rng.random() < right)
        return action, hidden, action - right


def play(cart, policy, rng, limit):
    states, hiddens, errors, rewards = [], [], [], []
    state = cart.reset()
    for _ in range(limit):
        action, hidden, error = policy.act(state, rng)
        states.append(state)
        hiddens.append(hidden)
        errors.append(error)
        state, reward, failed = cart.step(action)
        rewards.append(reward)
        if failed:
            break
    return states, hiddens, errors, rewards


def discounted(rewards, gamma):
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return np.array(returns[::-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=10, help="episodes in an iteration")
    parser.add_argument("--limit", type=int, default=300, help="the most steps of an episode")
    parser.add_argument("--lr", type=float, default=3.0)
    args = parser.parse_args()

    rng = np.random.default_rng(11)
    cart, policy = Cart(rng), Policy(rng)
    for iteration in range(args.iterations):
        batch = [play(cart, policy, rng, args.limit) for _ in range(args.episodes)]
        states = np.concatenate([np.array(episode[0]) for episode in batch])
        hidden = np.concatenate([np.array(episode[1]) for episode in batch])
        errors = np.concatenate([episode[2] for episode in batch])
        returns = np.concatenate([discounted(episode[3], 0.99) for episode in batch])
        advantage = (returns - returns.mean()) / (returns.std() + 1e-8)

        weighted = advantage * errors / len(errors)
        grad2 = weighted @ hidden
        grad1 = (weighted[:, None] * policy.w2 * (1 - hidden**2)).T @ states
        policy.w1 += args.lr * grad1
        policy.w2 += args.lr * grad2
        print(f"iteration {iteration}: mean length {len(errors) / args.episodes:.1f}")


if __name__ == "__main__":
    main()
