"""Client quotas: rates of users and clients, their limits, and the delays that keep them."""
