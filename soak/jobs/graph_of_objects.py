import random

import networkx

random.seed(6)
graph = networkx.Graph()
edges = ((random.randrange(60_000), random.randrange(60_000)) for _ in range(150_000))
graph.add_edges_from(edge for edge in edges if edge[0] != edge[1])
print(graph.number_of_nodes(), graph.number_of_edges())
print(max(len(part) for part in networkx.connected_components(graph)))
print(sum(networkx.single_source_shortest_path_length(graph, 1).values()))
print(max(networkx.core_number(graph).values()))
