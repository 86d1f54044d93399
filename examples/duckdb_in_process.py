#!/usr/bin/env python3
"""Fills a DuckDB database that lives in the process's memory, and asks it two questions.

DuckDB asks how much memory there is, and `millpond run` answers with the budget. So it would write to files of its own
long before the budget is reached. The database here is told to keep all of it in memory, and Millpond does the rest.

    millpond run --ram 256M -- python3 examples/duckdb_in_process.py
"""

import duckdb

ORDERS = 4_000_000


def main() -> None:
    database = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "4GB"})
    # A generator of the arithmetic kind: the same numbers each time, with any number of threads.
    database.execute(f"""
        create table orders as
        select i as id, (i * 48271) % 65537 as customer, (i * 16807) % 9973 as amount,
               md5(cast(i % 1000000 as varchar)) as note
        from range({ORDERS}) numbers(i)
    """)
    best = """
        select customer, sum(amount) as total, count(*) as orders from orders
        group by customer order by total desc, customer limit 5
    """
    same = """
        select count(*), sum(a.amount + b.amount) from orders a join orders b on a.id = b.id + 1
        where a.note < b.note
    """
    for question in (best, same):
        for row in database.execute(question).fetchall():
            print(*row)


if __name__ == "__main__":
    main()
