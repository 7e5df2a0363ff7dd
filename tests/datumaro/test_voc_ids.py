"""Pascal VOC without labelmap.txt, whose classes Datumaro numbers with its background."""

from __future__ import annotations

from pathlib import Path

import pytest
from datumaro.components.dataset import Dataset
from PIL import Image
from tfod.detection.labels.label_map import load_label_map, read_label_map
from tfod.sources.reading import read_detections

XML = """<annotation><filename>a.jpg</filename>
<size><width>200</width><height>100</height><depth>3</depth></size>
<object><name>aeroplane</name><bndbox>
<xmin>10</xmin><ymin>10</ymin><xmax>50</xmax><ymax>60</ymax></bndbox></object>
<object><name>tvmonitor</name><bndbox>
<xmin>10</xmin><ymin>10</ymin><xmax>50</xmax><ymax>60</ymax></bndbox></object>
</annotation>"""


@pytest.mark.parametrize("name", ["voc", "voc_detection"])
def test_vocs_classes_get_vocs_ids(tmp_path: Path, name: str) -> None:
    voc = tmp_path / "voc"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (voc / folder).mkdir(parents=True)
    (voc / "Annotations" / "a.xml").write_text(XML)
    (voc / "ImageSets" / "Main" / "train.txt").write_text("a\n")
    Image.new("RGB", (200, 100)).save(voc / "JPEGImages" / "a.jpg")
    Dataset.import_from(str(voc), name).export(
        str(tmp_path / "out"), "tf_detection_api", save_media=True
    )
    (one,) = read_detections(str(tmp_path / "out"))
    assert one.class_text == ["aeroplane", "tvmonitor"] and one.class_label == [1, 20]
    written = {
        item.id: item.name for item in read_label_map(tmp_path / "out/label_map.pbtxt")[0].items
    }
    vocs = {item.id: item.name for item in load_label_map("voc2007")[0].items}
    assert len(vocs) == 20 and {number: written[number] for number in vocs} == vocs
    assert written[0] == "background" and written[21] == "ignored"
    assert sorted(written) == list(range(len(written)))  # "voc" has parts of persons, too
