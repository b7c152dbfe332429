import matplotlib.pyplot as plt
import numpy as np

import nearjoin

radius, stray = np.linspace(2, 9, 20_000), np.random.default_rng(0).standard_t(2, 20_000)
angle = radius / 3 + np.arange(20_000) % 7 * 2 * np.pi / 7 + stray / 30  # seven arms of a galaxy
points = np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))
pairs = nearjoin.eps_join(points, eps=0.2)  # the neighbours of points[i] are points[pairs[i]]
labels = nearjoin.dbscan(points, eps=0.2, min_points=20)  # the cluster of points[i], -1 for noise
plt.scatter(*points.T, s=2, c=labels, cmap="Dark2_r").axes.set_axis_off()
plt.savefig("quickstart.png", transparent=True, bbox_inches="tight")
