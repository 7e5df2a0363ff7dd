"""Detection CSVs become the records that generate_tfrecord.py writes."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.images.mask_images import encode_mask_png
from tfod.errors import TfodError
from tfod.formats.csv import COLUMNS, CsvImage, read_detection_csv
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.objects import AnnotatedObject
from tfod.formats.table import convert as convert_dataset
from tfod.sources.reading import read_detections

from tests.commands import Run
from tests.files import write_file, write_files
from tests.formats.conftest import IMAGES, Read, Refuse, float32

HEADER = ",".join(COLUMNS)
RACCOON = f"{HEADER}\nr-1.jpg,640,480,raccoon,81,88,522,408\n"
IMAGE = encode_mask_png(np.zeros((100, 200), bool))
GOOD = "good.jpg,10,10,x,1,2,3,4"


def write_csv(folder: Path, text: str, encoding: str = "utf-8") -> str:
    return str(write_file(folder / "labels.csv", text.encode(encoding)))


def read_text(folder: Path, text: str) -> tuple[dict[str, CsvImage], list[str]]:
    """Return the images of a CSV, and messages."""
    problems = ConversionProblems()
    return read_detection_csv(write_csv(folder, text), problems), problems.sentences()


class TestReading:
    @pytest.mark.parametrize(
        "text",
        [
            *(RACCOON, RACCOON.replace("\n", "\r\n"), RACCOON.replace("\n", "\r\n").rstrip()),
            *("\ufeff" + RACCOON, RACCOON + "\n\n"),
            RACCOON.replace("raccoon", '"raccoon"').replace("r-1.jpg", '"r-1.jpg"'),
            RACCOON.replace("640", "640.0").replace("88", " 88 "),
            RACCOON.replace("filename", "Filename").replace("class", "Class "),
            *(RACCOON.replace(",", comma) for comma in (", ", " , ", ";", "\t")),
            '"' + RACCOON.replace(",", '", "').replace("\n", '"\n').replace("r-", '"r-'),
            RACCOON.replace("raccoon", '" raccoon "').replace("r-1.jpg", '"r-1.jpg" '),
            RACCOON.replace("raccoon", ' "raccoon" ').replace(",408", ', "408" '),
            "class,xmin,xmax,ymin,ymax,height,width,filename\n"
            "raccoon,81,522,88,408,480,640,r-1.jpg\n",
        ],
    )
    def test_spellings_of_one_image(self, tmp_path: Path, text: str) -> None:
        found, said = read_text(tmp_path, text)
        place = f"{tmp_path}/labels.csv, row 2"
        raccoon = CsvImage((480, 640), 2, [AnnotatedObject("raccoon", [81, 88, 522, 408], place)])
        assert (found, bool(said)) == ({"r-1.jpg": raccoon}, "raccoon " in text)

    def test_rows_are_grouped_in_the_order_of_first_appearance(self, tmp_path: Path) -> None:
        rows = ["b.jpg,x,1,1,2,2", "a.jpg,y,1,1,2,2", "b.jpg,z,0,0.5,2,2.25", "c.jpg,z,nan,0,inf,1"]
        found, _ = read_text(tmp_path, "\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows]))
        counts = [(name, len(one.objects)) for name, one in found.items()]
        assert counts == [("b.jpg", 2), ("a.jpg", 1), ("c.jpg", 1)]
        assert {one.size for one in found.values()} == {(None, None)}
        assert [one.box for one in found["b.jpg"].objects] == [[1, 1, 2, 2], [0, 0.5, 2, 2.25]]

    def test_the_corpus(self, corpus: Path) -> None:
        path = str(corpus / "hyphal-tips" / "train_labels.csv")
        found = read_detection_csv(path, ConversionProblems())
        assert len(found) == 226 and sum(len(one.objects) for one in found.values()) == 967

    @pytest.mark.parametrize(
        ("row", "cause"),
        [
            ("r.jpg,10,10,x,1,2,3", "7 fields instead of 8"),
            ("r.jpg,10,10,x,1,2,3,4,5", "9 fields instead of 8"),
            (",10,10,x,1,2,3,4", "the filename is missing"),
            ("r.jpg,10,10,,1,2,3,4", "the class is missing"),
            ("r.jpg,10,10,x,one,2,3,4", "xmin is 'one' instead of a number; correct it"),
            ("r.jpg,10,10,x,1,2,3,", "ymax is '' instead of a number; correct it"),
            ("r.jpg,ten,10,x,1,2,3,4", "width is 'ten' instead of a number; correct it"),
            ("r.jpg,10,0,x,1,2,3,4", "height is '0' instead of a whole number of pixels"),
            ("r.jpg,10,1.5,x,1,2,3,4", "height is '1.5' instead of a whole number of pixels"),
            ("good.jpg,30,10,x,1,2,3,4", "the width or height differs from row 2"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path: Path, row: str, cause: str) -> None:
        path = write_csv(tmp_path, "\n".join([HEADER, GOOD, row, GOOD]))
        with pytest.raises(TfodError) as raised:
            read_detection_csv(path, ConversionProblems())
        assert str(raised.value).startswith(f"{path}, row 3: {cause}")

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            (f'{HEADER}\n"r.jpg,10,10,x,1,2,3,4\n', "row 2: not a CSV (unexpected end of data)"),
            (f'{HEADER}\n"r"x.jpg,10,10,x,1,2,3,4\n', "row 2: not a CSV (',' expected after"),
            (f"{HEADER}\n{'r' * 200_000},10,10,x,1,2,3,4\n", "row 2: not a CSV (field larger"),
            (f"{HEADER},xmin\n", "has the column xmin twice"),
            ("", "not a detection CSV; its first line should be filename,width"),
            ("a,b,c,d,e,f,g,h\n", "not a detection CSV; its first line"),
            (RACCOON.partition("\n")[2], "not a detection CSV; its first line"),
            ("filename,class,xmin,ymin,xmax\n", "its header lacks ymax; its first"),
            # VoTT; fastai and keras-retinanet; Open Images
            ('"image","xmin","ymin","xmax","ymax","label"\n', "label to class, image to filename;"),
            ("image_name, x1, y1, x2, y2, label\n", "image_name to filename, x2 to xmax, x1 to"),
            ("ImageID,LabelName,XMin,XMax,YMin,YMax\n", "LabelName to class, ImageID to filename;"),
        ],
    )
    def test_other_csvs(self, tmp_path: Path, text: str, cause: str) -> None:
        path = write_csv(tmp_path, text)
        with pytest.raises(TfodError) as raised:
            read_detection_csv(path, ConversionProblems())
        assert path in str(raised.value) and cause in str(raised.value)

    def test_another_encoding(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path, RACCOON.replace("raccoon", "étoile"), "latin-1")
        with pytest.raises(TfodError, match="is not UTF-8; save it as UTF-8"):
            read_detection_csv(path, ConversionProblems())


CAFE = "caf{0}/{0}t{0}.jpg"
ROWS = f"""{HEADER}
shapes_02.jpg,240,320,circle,71,188,149,266
shapes_01.jpg,320,240,étoile,196,63,289,158
shapes_02.jpg,240,320,square,0,0,240,320
"""
STAR = float32([[196 / 320, 63 / 240, 289 / 320, 158 / 240]])


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "train_labels.csv"
    path.write_text(ROWS)
    (tmp_path / "images").mkdir()
    for name in ("shapes_01.jpg", "shapes_02.jpg"):
        shutil.copy(IMAGES / name, tmp_path / "images")
    return path


class TestRecords:
    def test_in_the_order_of_their_names(self, read: Read, csv: Path) -> None:
        """Each with the boxes of all its rows."""
        found, said = read(csv)
        assert said == "" and list(found) == ["shapes_01.jpg", "shapes_02.jpg"]
        one, other = found.values()
        boxes = [[71 / 240, 188 / 320, 149 / 240, 266 / 320], [0, 0, 1, 1]]
        assert one.boxes.tolist() == STAR and other.boxes.tolist() == float32(boxes)
        assert other.class_text == ["circle", "square"] and other.class_label == [1, 2]
        assert (one.class_label, one.source_id, one.format) == ([3], "1", "jpeg")
        assert one.encoded == (IMAGES / "shapes_01.jpg").read_bytes()

    @pytest.mark.parametrize(
        ("folder", "names", "options"),
        [
            ("images", ("shapes_01", "shapes_02"), ()),  # some generate_tfrecord.py add .jpg
            ("images", ("a\\shapes_01.jpg", "C:\\x\\shapes_02.jpg"), ()),
            ("images/train", ("shapes_01.png", "data/shapes_02.JPG"), ()),
            ("train", ("/home/me/shapes_01.jpg", "./shapes_02.jpg"), ()),
            (".", ("shapes_01.jpg", "images/shapes_02.jpg"), ()),
            ("elsewhere", ("shapes_01.jpg", "shapes_02.jpg"), ("--images={}/elsewhere",)),
        ],
    )
    def test_where_images_are_found(
        self, read: Read, tmp_path: Path, folder: str, names: tuple[str, ...], options: Any
    ) -> None:
        text = ROWS
        for file, name in zip(("shapes_01.jpg", "shapes_02.jpg"), names, strict=True):
            write_file(tmp_path / folder / file, (IMAGES / file).read_bytes())
            text = text.replace(file, name)
        source = write_file(tmp_path / "train.csv", text)
        found, said = read(source, *(one.format(tmp_path) for one in options))
        assert said == "" and sorted(found) == ["shapes_01.jpg", "shapes_02.jpg"]
        assert found["shapes_01.jpg"].boxes.tolist() == STAR

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            *((name, "a.v2.jpg") for name in ("a.v2", "a.v2.jpeg")),
            *((name, "a.jpg") for name in ("a", "a.jpg")),
            ("a.jpg.png", "a.jpg.png"),
            ("frame.0001", "frame.0001.png"),
            *((name, "train/1.jpg") for name in ("1.jpg", "other/1")),
            *((name, "val/1.jpg") for name in ("val/1.jpg", "{}/images/val/1.jpg")),
            *((name, "val/1.jpg") for name in ("../{1}/images/val/1.jpg", "/elsewhere/val/1.png")),
            ("D:\\data\\val\\1.jpg", "val/1.jpg"),
            (CAFE.format("é"), CAFE.format("e\u0301")),  # the same letters in NFC and NFD
            ("e\u0301", "é.png"),
            ("j", "j.jfif"),
            ("j.jpg", "j.jfif"),
            ("no_extension", "no_extension"),
        ],
    )
    def test_the_right_one_of_several(
        self, read: Read, tmp_path: Path, name: str, found: str
    ) -> None:
        files = (
            *("a.jpg", "a.v2.jpg", "a.jpg.png", "frame.0001.png", "train/1.jpg", "val/1.jpg"),
            *(CAFE.format("e\u0301"), "é.png", "j.jfif", "no_extension"),
        )
        write_files(tmp_path / "images", {"j.xml": b"no image", "no_extension.txt": b""})
        kinds = {one: IMAGE + bytes([number]) for number, one in enumerate(files)}
        write_files(tmp_path / "images", kinds)
        name = name.format(tmp_path, tmp_path.name)
        (tmp_path / "train.csv").write_text(f"{HEADER}\n{name},200,100,x,20,10,90,80\n")
        (one,) = read(tmp_path / "train.csv")[0].values()
        assert one.encoded == kinds[found] and found.endswith(one.filename or "?")

    @pytest.mark.parametrize("name", ["{}/other/1.jpg", "../other/1.jpg", "link.jpg", "link/1.jpg"])
    def test_an_unpacked_archive_names_no_file_outside(self, tmp_path: Path, name: str) -> None:
        """An upload could contain the path of an image in another upload, or a link to it."""
        write_files(tmp_path, {"other/1.jpg": IMAGE, "upload/images/2.jpg": IMAGE})
        (tmp_path / "upload/link.jpg").symlink_to(tmp_path / "other/1.jpg")
        (tmp_path / "upload/link").symlink_to(tmp_path / "other")
        path, options = tmp_path / "upload/a.csv", Options(unpacked_folder=str(tmp_path / "upload"))
        for row, is_missing in ((name.format(tmp_path), True), ("x/2.jpg", False)):
            path.write_text(f"{HEADER}\n{row},200,100,x,20,10,90,80\n")
            with pytest.raises(TfodError, match="missing: 1") if is_missing else nullcontext():
                convert_dataset(str(path), str(tmp_path / "out"), options)

    def test_a_folder_of_csvs(self, convert: Run, csv: Path, tmp_path: Path) -> None:
        """Each detection CSV is a subset. Together they have one label map."""
        (tmp_path / "test_labels.csv").write_text(ROWS.replace("circle", "arch"))
        write_files(
            tmp_path, {f"{name}.csv": "epoch,loss\n1,2\n" for name in ("results", "metrics")}
        )
        out = tmp_path.with_name("out_of_csvs")
        done = convert(tmp_path, out, "--no-images")
        subsets = "test: 2 images, 3 objects\ntrain: 2 images, 3 objects\n"
        assert done.out.replace(f"{out}: ", "").startswith(subsets)
        assert f"skipped: 2 (the first: {tmp_path}/metrics.csv)" in done.err
        labels = [one.class_label for one in read_detections(str(out / "test.tfrecord"))]
        assert labels == [[4], [1, 3]]
        line = convert(tmp_path, out, "--set", "val").refused()
        assert "no subset 'val'; choose another --set: test, train\n" in line

    def test_boxes_fit_the_size_in_the_csv(self, read: Read, csv: Path) -> None:
        """The images were scaled after they were annotated."""
        csv.write_text(
            ROWS.replace("320,240,étoile,196,63,289,158", "640,960,étoile,392,252,578,632")
        )
        found, said = read(csv)
        where = f"{csv}, shapes_01.jpg: 640x960, the image 320x240)\n"
        assert "images whose size differs from the annotation; " in said and said.endswith(where)
        one = found["shapes_01.jpg"]
        assert one.boxes.tolist() == STAR and (one.width, one.height) == (320, 240)

    @pytest.mark.parametrize(
        ("after", "says"),
        [("shapes_99", "/images/shapes_99.jpg, of "), ("../../x", "images that are missing: 1 (")],
    )
    def test_missing_images(self, refuse: Refuse, csv: Path, after: str, says: str) -> None:
        csv.write_text(ROWS.replace("shapes_01", after))
        assert says in refuse(csv)

    def test_unread_rows_and_columns(self, convert: Run, csv: Path, tmp_path: Path) -> None:
        """The index of pandas, and two names of an image."""
        first, *rows = ROWS.splitlines()
        rows[2] = "./" + rows[2]
        numbered = (f"{number},{row},1" for number, row in enumerate(rows))
        last = f",shapes_01.jpg,320,240,NaN{',nan' * 4},1\n"
        csv.write_text("\n".join([f",{first},score", *numbered, last]))
        done = convert(csv, tmp_path / "out")
        for text in (
            f"rows whose class is nan, left out: 1 (the first: {csv}, row 5)",
            f"unknown columns, ignored: 2 (the first: {csv}: without a name); ",
            "images with several annotations, written as one record per annotation: 1 (the first: ",
        ):
            assert text in done.succeeded()
        assert "train: 3 images, 3 objects" in done.out

    @pytest.mark.parametrize("row", ["shapes_01.jpg,,,,,,,", "shapes_01.jpg", "shapes_01.jpg,,"])
    def test_a_name_is_an_image_without_objects(self, read: Read, csv: Path, row: str) -> None:
        csv.write_text("\n".join([*ROWS.splitlines()[:2], row]))
        found, said = read(csv)
        assert said == "" and [len(one.boxes) for one in found.values()] == [0, 1]
