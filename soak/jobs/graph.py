"""Prints a graph for Graphviz: graph.py NODES."""
import random
import sys

random.seed(8)
nodes = int(sys.argv[1])
print("digraph {")
for node in range(1, nodes):
    print(f"n{node} -> n{random.randrange(max(0, node - 60), node)}")
print("}")
