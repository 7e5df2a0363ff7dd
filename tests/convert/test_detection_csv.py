"""The detection CSV: read as people write it, written as the raccoon script reads it."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.convert.csv import (
    COLUMNS,
    CsvBox,
    CsvError,
    CsvImage,
    is_detection_csv,
    read_detection_csv,
    write_detection_csv,
)
from tfod.tfrecord.storage.publishing import WriteError

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

    def test_other_columns_are_named(self, tmp_path: Path) -> None:
        text = f",{HEADER},difficult\n0,r-1.jpg,640,480,raccoon,81,88,522,408,1\n"
        found = read_detection_csv(write_csv(tmp_path, text))
        assert found.images == (R1,) and found.other_columns == ("", "difficult")

    def test_sizes_may_be_missing(self, tmp_path: Path) -> None:
        text = "filename,class,xmin,ymin,xmax,ymax\nr.jpg,x,1,2,3,4\n"
        (found,) = read_detection_csv(write_csv(tmp_path, text)).images
        assert (found.width, found.height) == (None, None)

    def test_a_image_without_boxes(self, tmp_path: Path) -> None:
        found = read_detection_csv(write_csv(tmp_path, f"{HEADER}\nn.jpg,10,20,,,,,\n"))
        assert found.images == (CsvImage("n.jpg", 10, 20),)

    def test_only_a_header(self, tmp_path: Path) -> None:
        assert read_detection_csv(write_csv(tmp_path, HEADER)).images == ()

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
    ("r.jpg,10,10,x,1,nan,3,4", "ymin is 'nan', and should be a number of pixels"),
    ("r.jpg,10,10,x,1,2,inf,4", "xmax is 'inf', and should be a number of pixels"),
    ("r.jpg,10,10,x,1,2,3,", "ymax is '', and should be a number of pixels"),
    ("r.jpg,ten,10,x,1,2,3,4", "width is 'ten', and should be a whole number of pixels"),
    ("r.jpg,10,0,x,1,2,3,4", "height is '0', and should be a whole number of pixels"),
    ("r.jpg,10,1.5,x,1,2,3,4", "height is '1.5', and should be a whole number of pixels"),
    ("r.jpg,10,10,x,5,2,3,4", "xmin 5 is greater than xmax 3"),
    ("r.jpg,10,10,x,1,9,3,4", "ymin 9 is greater than ymax 4"),
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
        output = []
        found = read_detection_csv(path, lambda error, number: output.append((str(error), number)))
        assert output == [(str(raised.value), 3)]
        assert [len(one.boxes) for one in found.images] == [2]

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


def test_known_by_its_header(tmp_path: Path, corpus: Path) -> None:
    assert is_detection_csv(corpus / "hyphal-tips" / "test_labels.csv")
    assert is_detection_csv(write_csv(tmp_path, RACCOON.replace(",", ";")))
    for text in (
        "",
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n",
        "filename,class,xmin,ymin,xmax,ymax\n",
        RACCOON.partition("\n")[2],
        "\x89PNG\r\n\x1a\n",
    ):
        assert not is_detection_csv(write_csv(tmp_path, text, "latin-1")), text
    assert not is_detection_csv(tmp_path / "absent.csv")


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
corners = st.tuples(
    *[st.one_of(st.integers(-9, 9999).map(float), st.floats(-9, 1e9)) for _ in range(4)]
).map(lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3])))
images = st.lists(
    st.builds(
        CsvImage,
        names,
        st.integers(1, 10_000),
        st.integers(1, 10_000),
        st.lists(st.builds(CsvBox, names, corners), min_size=1, max_size=4).map(tuple),
    ),
    max_size=5,
    unique_by=lambda one: one.filename,
).map(tuple)


class TestWriting:
    @given(written=images)
    def test_what_is_written_is_read(self, tmp_path: Path, written: tuple) -> None:
        path = tmp_path / "x.csv"
        write_detection_csv(path, written)
        first = path.read_bytes()
        assert read_detection_csv(path).images == written
        write_detection_csv(path, written)
        assert path.read_bytes() == first

    def test_the_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        boxes = (CsvBox("a,b", (1.0, 2.5, 3.0, 4.0)), CsvBox("é", (0, 0, 1e6, 0.1)))
        write_detection_csv(path, [CsvImage("n.jpg", 5, 6), CsvImage("r.jpg", 7, 8, boxes)])
        assert path.read_bytes().decode().split("\r\n") == [
            HEADER,
            'r.jpg,7,8,"a,b",1,2.5,3,4',
            "r.jpg,7,8,é,0,0,1000000,0.1",
            "",
        ]

    def test_pandas_reads_it_as_the_script_does(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        write_detection_csv(tmp_path / "x.csv", [R1, CsvImage("n.jpg", 5, 6)])
        frame = pandas.read_csv(tmp_path / "x.csv")
        assert frame.values.tolist() == [["r-1.jpg", 640, 480, "raccoon", 81, 88, 522, 408]]

    def test_the_corpus_comes_back_byte_for_byte(self, tmp_path: Path, corpus: Path) -> None:
        """pandas wrote it with bare line feeds; ours are those of RFC 4180."""
        path = corpus / "hyphal-tips" / "test_labels.csv"
        write_detection_csv(tmp_path / "x.csv", read_detection_csv(path).images)
        with open(path, newline="") as file:
            rows = list(csv.reader(file))
        assert (tmp_path / "x.csv").read_bytes() == "".join(
            ",".join(row) + "\r\n" for row in rows
        ).encode()

    def test_a_full_disk_leaves_what_was_there(self, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        path.write_text("before")
        code = (
            "import resource, signal, sys; from tfod.convert.csv import *;"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16));"
            "box = CsvBox('x', (1.0, 2.0, 3.0, 4.0));"
            "many = (CsvImage(f'{i}.jpg', 1, 1, (box,)) for i in range(1 << 17));"
            "write_detection_csv(sys.argv[1], many)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
        )
        assert "WriteError" in done.stderr and "cannot be written" in done.stderr
        assert path.read_text() == "before" and os.listdir(tmp_path) == ["x.csv"]

    def test_no_such_folder_can_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(WriteError, match="cannot write there"):
            write_detection_csv(tmp_path / "file" / "x.csv", [R1])


def test_a_box_without_one_finite_number(tmp_path: Path) -> None:
    path = write_csv(tmp_path, ",".join(COLUMNS) + "\na.jpg,5,5,x,nan,nan,inf,nan\n")
    (image,) = read_detection_csv(path, odd_boxes=True).images
    assert len(image.boxes) == 1
    with pytest.raises(CsvError, match="row 2: xmin is 'nan'"):
        read_detection_csv(path)
