"""What a runner keeps for one set of sizes: a graph, its engines, and the outputs to compute and to judge."""
