"""Objects, dictionaries and strings for a collector that moves them."""


class Node:
    def __init__(self, depth):
        self.children = [Node(depth - 1), Node(depth - 1)] if depth else ()

    def size(self):
        return 1 + sum(child.size() for child in self.children)


kept = Node(18)
total = sum(Node(15).size() for _ in range(6))
table = {number * 7919 % 1000003: str(number) for number in range(400_000)}
print(kept.size(), total, len(table), sum(map(len, table.values())), sorted(table)[200_000])
