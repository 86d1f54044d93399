import os

import polars

rows = polars.scan_csv(os.path.join(os.environ["INPUT"], "records.csv"))
by_station = rows.group_by("station").agg(polars.col("value").sum().alias("sum"), polars.len().alias("count"))
joined = rows.join(by_station, on="station").with_columns((polars.col("value") % 1000).alias("rest"))
best = joined.sort(["rest", "id"], descending=[True, False]).head(20).collect()
print(best.write_csv())
print(joined.group_by("note").agg(polars.col("sum").max()).sort("note").head(30).collect().write_csv())
