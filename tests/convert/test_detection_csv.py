"""The detection CSV: read as people write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod.convert.csv import (
    COLUMNS,
    CsvBox,
    CsvError,
    CsvImage,
    read_detection_csv,
)

HEADER = ",".join(COLUMNS)
RACCOON = f"{HEADER}\nr-1.jpg,640,480,raccoon,81,88,522,408\n"
R1 = CsvImage("r-1.jpg", 640, 480, (CsvBox("raccoon", (81, 88, 522, 408)),))


def write_csv(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


class TestReading:
    @pytest.mark.parametrize(
        "text",
        [
            RACCOON,
            RACCOON.replace("\n", "\r\n"),
            RACCOON.replace("\n", "\r\n").rstrip(),
            "\ufeff" + RACCOON,
            RACCOON + "\n\n",
            RACCOON.replace("raccoon", '"raccoon"').replace("r-1.jpg", '"r-1.jpg"'),
            RACCOON.replace("640", "640.0").replace("88", " 88 "),
            RACCOON.replace("filename", "Filename").replace("class", "Class "),
            "class,xmin,xmax,ymin,ymax,height,width,filename\n"
            "raccoon,81,522,88,408,480,640,r-1.jpg\n",
        ],
    )
    def test_spellings_of_one_image(self, tmp_path: Path, text: str) -> None:
        found = read_detection_csv(write_csv(tmp_path, text))
        assert (found.images, found.other_columns, found.liberties) == ((R1,), (), ())

    @pytest.mark.parametrize(
        ("text", "liberty"),
        [
            (RACCOON.replace(",", ";"), "separated by semicolons"),
            (RACCOON.replace(",", "\t"), "separated by tabs"),
            (RACCOON.partition("\n")[2], "has no header"),
        ],
    )
    def test_liberties_are_said(self, tmp_path: Path, text: str, liberty: str) -> None:
        found = read_detection_csv(write_csv(tmp_path, text))
        assert found.images == (R1,)
        assert len(found.liberties) == 1 and liberty in found.liberties[0]

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
    def test_names_of_any_script(self, tmp_path: Path, encoding: str) -> None:
        text = f'{HEADER}\n"кадр, 1.jpg",10,10,"étoile ""x""",1,2,3,4\n'
        (found,) = read_detection_csv(write_csv(tmp_path, text, encoding)).images
        assert (found.filename, found.boxes[0].class_name) == ("кадр, 1.jpg", 'étoile "x"')

    def test_rows_are_grouped_in_the_order_of_first_appearance(self, tmp_path: Path) -> None:
        rows = ["b.jpg,10,10,x,1,1,2,2", "a.jpg,10,10,y,1,1,2,2", "b.jpg,10,10,z,0,0.5,2,2.25"]
        found = read_detection_csv(write_csv(tmp_path, "\n".join([HEADER, *rows])))
        assert [(p.filename, [b.class_name for b in p.boxes]) for p in found.images] == [
            ("b.jpg", ["x", "z"]),
            ("a.jpg", ["y"]),
        ]
        assert found.images[0].boxes[1].corners == (0, 0.5, 2, 2.25)

    def test_sizes_may_be_missing(self, tmp_path: Path) -> None:
        text = "filename,class,xmin,ymin,xmax,ymax\nr.jpg,x,1,2,3,4\n"
        (found,) = read_detection_csv(write_csv(tmp_path, text)).images
        assert (found.width, found.height) == (None, None)

    def test_normalized_coordinates_are_suspected(self, tmp_path: Path) -> None:
        text = f"{HEADER}\nr.jpg,640,480,x,0.1,0.1,0.5,1\n"
        (output,) = read_detection_csv(write_csv(tmp_path, text)).liberties
        assert "look normalized" in output

    def test_the_corpus(self, corpus: Path) -> None:
        found = read_detection_csv(corpus / "hyphal-tips" / "train_labels.csv")
        assert len(found.images) == 226 and sum(len(p.boxes) for p in found.images) == 967


BAD_ROWS = [
    ("r.jpg,10,10,x,1,2,3", "has 7 fields, and should have 8"),
    ("r.jpg,10,10,x,1,2,3,4,5", "has 9 fields, and should have 8"),
    (",10,10,x,1,2,3,4", "has no filename"),
    ("r.jpg,10,10,,1,2,3,4", "has no class"),
    ("r.jpg,10,10,x,one,2,3,4", "xmin is 'one', and should be a number of pixels"),
    ("r.jpg,10,10,x,1,2,3,", "ymax is '', and should be a number of pixels"),
    ("r.jpg,ten,10,x,1,2,3,4", "width is 'ten', and should be a whole number of pixels"),
    ("r.jpg,10,0,x,1,2,3,4", "height is '0', and should be a whole number of pixels"),
    ("r.jpg,10,1.5,x,1,2,3,4", "height is '1.5', and should be a whole number of pixels"),
    (
        "good.jpg,30,10,x,1,2,3,4",
        "says 30 x 10 pixels, and row 2 of the same image says 10 x 10",
    ),
]
GOOD = "good.jpg,10,10,x,1,2,3,4"


class TestBadRows:
    @pytest.mark.parametrize(("row", "cause"), BAD_ROWS)
    def test_the_row_is_named(self, tmp_path: Path, row: str, cause: str) -> None:
        path = write_csv(tmp_path, "\n".join([HEADER, GOOD, row, GOOD]))
        with pytest.raises(CsvError) as raised:
            read_detection_csv(path)
        assert str(raised.value) == f"{path}, row 3: {cause}"

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            (f'{HEADER}\n"r.jpg,10,10,x,1,2,3,4\n', "row 2: not a CSV (unexpected end of data)"),
            (f'{HEADER}\n"r"x.jpg,10,10,x,1,2,3,4\n', "row 2: not a CSV (',' expected after"),
            (f"{HEADER}\n{'r' * 200_000},10,10,x,1,2,3,4\n", "row 2: not a CSV (field larger"),
            (f"{HEADER},xmin\n", "has the column xmin twice"),
            ("", "not a detection CSV; its first line should be filename,width"),
            ("ImageID,Source,LabelName\n1,2,3\n", "not a detection CSV"),
            ("a,b,c,d,e,f,g,h\n", "not a detection CSV"),
            ("filename,class,xmin,ymin,xmax\n", "its header lacks ymax; its first"),
        ],
    )
    def test_what_is_no_such_csv(self, tmp_path: Path, text: str, cause: str) -> None:
        path = write_csv(tmp_path, text)
        with pytest.raises(CsvError) as raised:
            read_detection_csv(path)
        assert str(path) in str(raised.value) and cause in str(raised.value)

    def test_another_encoding(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path, RACCOON.replace("raccoon", "étoile"), "latin-1")
        with pytest.raises(CsvError, match="is not UTF-8; save it as UTF-8"):
            read_detection_csv(path)


def test_a_box_without_one_finite_number(tmp_path: Path) -> None:
    path = write_csv(tmp_path, ",".join(COLUMNS) + "\na.jpg,5,5,x,nan,nan,inf,nan\n")
    (image,) = read_detection_csv(path).images
    assert len(image.boxes) == 1
