import os

import pandas

rows = pandas.read_csv(os.path.join(os.environ["INPUT"], "records.csv"))
by_station = rows.groupby("station")["value"].agg(["sum", "min", "max", "count"])
joined = rows.merge(by_station.reset_index(), on="station")
joined["share"] = joined["value"] * 1000 // joined["max"]
best = joined.sort_values(["share", "id"], ascending=[False, True]).head(20)
print(best.to_csv(index=False))
print(joined.groupby("day")["share"].sum().describe().round(3).to_csv())
print(rows["note"].str.upper().value_counts().sort_index().head(20).to_csv())
