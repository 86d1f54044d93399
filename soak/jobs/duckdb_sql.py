import os

import duckdb

base = duckdb.connect(config={"threads": 2})
path = os.path.join(os.environ["INPUT"], "records.csv")
base.execute(f"create table t as select * from read_csv('{path}')")
base.execute("insert into t select id + 10000000, station, day + 1, value * 7 % 1000003, note from t")
questions = [
    "select station, sum(value), count(distinct note) from t group by station order by station limit 20",
    "select a.station, count(*) from t a join t b on a.day = b.day and a.value = b.value group by 1 order by 2 desc, 1 limit 20",
    "select id, value, rank() over (partition by station order by value desc, id) r from t order by r, id limit 20",
]
for question in questions:
    for row in base.execute(question).fetchall():
        print(*row)
