import hashlib
import io
import os

from lxml import etree

root = etree.Element("records")
with open(os.path.join(os.environ["INPUT"], "records.csv")) as lines:
    next(lines)
    for line in lines:
        number, station, day, value, note = line.rstrip().split(",")
        record = etree.SubElement(root, "record", id=number, station=station)
        etree.SubElement(record, "value", day=day).text = value
        etree.SubElement(record, "note").text = note
text = etree.tostring(root)
print(len(text), hashlib.sha256(text).hexdigest())
again = etree.parse(io.BytesIO(text))
print(again.xpath("sum(//record[@station='s7']/value)"), len(again.xpath("//value[@day='3']")))
