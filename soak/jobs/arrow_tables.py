import os

import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

rows = pyarrow.csv.read_csv(os.path.join(os.environ["INPUT"], "records.csv"))
rows = pyarrow.concat_tables([rows] * 2)
ordered = rows.sort_by([("value", "descending"), ("id", "ascending")])
pyarrow.parquet.write_table(ordered, "rows.parquet", compression="zstd")
again = pyarrow.parquet.read_table("rows.parquet")
print(again.equals(ordered), os.path.getsize("rows.parquet") > 0, again.num_rows)
print(again.slice(0, 10).to_pylist())
print(again.group_by("station").aggregate([("value", "sum")]).sort_by("station").slice(0, 10).to_pylist())
print(pyarrow.compute.value_counts(again["note"]).field("counts").to_numpy(zero_copy_only=False).max())
