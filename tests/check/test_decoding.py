"""Which images a check decodes, and what its reports say of it."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfod.check.check import Options, check_sources
from tfod.check.records.images.decoding import Decoding
from tfod.cli.main import main

from tests.check.test_datasets import noisy_image, noisy_record
from tests.commands import Run
from tests.records import encode, image, write_shard


def damaged_in_the_middle(number: int) -> bytes:
    """A record whose PNG has one other byte; its checksums are those of what it holds."""
    data = bytearray(noisy_image(number, "PNG"))
    data[len(data) // 2] ^= 1
    return noisy_record(number, "PNG", **{"image/encoded": bytes(data)})


class TestByDefault:
    def test_damage_in_the_middle_is_found(self, tmp_path: Path, check: Run) -> None:
        shard = write_shard(tmp_path, "train", noisy_record(0, "PNG"), damaged_in_the_middle(1))
        code, out, _ = check(shard)
        assert code == 1 and "IMG003" in out and "record 1" in out
        assert "\nDecoded: 2 of 2 images\n" in out

    @pytest.mark.parametrize(
        ("form", "output"),
        [
            ("json", '"undecoded": "not asked for"'),
            ("html", "; decoded: 0 of 2 images (not asked for)</summary>"),
            ("junit", '<property name="decoded" value="0 of 2 images (not asked for)" />'),
            ("text", "\nDecoded: 0 of 2 images (not asked for)\n"),
        ],
    )
    def test_every_report_says_so_where_it_is_not(
        self, tmp_path: Path, check: Run, form: str, output: str
    ) -> None:
        shard = write_shard(tmp_path, "train", noisy_record(0, "PNG"), damaged_in_the_middle(1))
        code, out, _ = check(shard, "--decode", "none", "--format", form)
        assert output in out and code == 0

    def test_without_pillow(self, tmp_path: Path) -> None:
        shard = write_shard(tmp_path, "train", damaged_in_the_middle(1))
        code = (
            "import sys; sys.modules['PIL'] = None;"
            "from tfod.cli.main import main; sys.exit(main(['check', sys.argv[1]]))"
        )
        command = [sys.executable, "-c", code, shard]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        reason = "Pillow is not installed: pip install Pillow"
        assert f"\nDecoded: 0 of 1 image ({reason})\n" in done.stdout

    def test_where_the_rule_is_off(self, tmp_path: Path, check: Run) -> None:
        shard = write_shard(tmp_path, "train", damaged_in_the_middle(1))
        code, out, _ = check(shard, "--severity", "IMG003=off")
        assert "\nDecoded: 0 of 1 image (IMG003 is off)\n" in out and code == 0

    @pytest.mark.parametrize("decode", ["1000", "all"])
    def test_an_image_that_is_little_but_pixels(
        self, tmp_path: Path, check: Run, decode: str
    ) -> None:
        stream = io.BytesIO()
        Image.new("RGB", (2000, 2000)).save(stream, "PNG")
        assert len(stream.getvalue()) < 15_000  # where every byte stands for 256 pixels or more
        features = image("a.png", 2000, 2000)
        one = encode({**features, "image/encoded": stream.getvalue(), "image/format": "png"})
        shard = write_shard(tmp_path, "train", one, noisy_record(0))
        report = json.loads(check(shard, "--decode", decode, "--format", "json")[1])
        assert report["counts"]["decoded"] == (2 if decode == "all" else 1)
        assert ("many more pixels" in report["undecoded"]) == (decode != "all")


class TestSample:
    @pytest.fixture(scope="class")
    def shards(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("shards")
        write_shard(folder, "train", *map(noisy_record, range(31)))
        write_shard(folder, "val", *map(noisy_record, range(40, 49)))
        return folder

    @pytest.mark.parametrize("most", [1, 7, 39])
    def test_an_even_sample(self, shards: Path, check: Run, most: int) -> None:
        code, out, _ = check(shards, "--decode", most)
        found = re.search(r"Decoded: (\d+) of 40 images \((.*?)\)", " ".join(out.split()))
        assert code == 0 and found is not None
        assert found[2] == "an even sample; choose to decode all for every one"
        assert abs(int(found[1]) - most) <= 1

    @pytest.mark.parametrize("most", ["40", "all"])
    def test_no_more_images_than_may_be(self, shards: Path, check: Run, most: str) -> None:
        assert "\nDecoded: 40 of 40 images\n" in check(shards, "--decode", most)[1]

    @pytest.mark.parametrize("form", ["gz", "zip"])
    def test_of_what_is_packed(self, shards: Path, tmp_path: Path, check: Run, form: str) -> None:
        path = tmp_path / f"train.record.{form}"
        if form == "gz":
            path.write_bytes(gzip.compress((shards / "train.tfrecord").read_bytes()))
        else:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                file.write(shards / "train.tfrecord", "train.record")
        assert "Decoded: 5 of 31 images" in check(path, "--decode", "5")[1]
        assert "Decoded: 31 of 31 images" in check(path, "--decode", "31")[1]

    def test_the_same_images_whatever_the_jobs(self, tmp_path: Path) -> None:
        for subset in ("train", "val"):
            write_shard(tmp_path, subset, *map(damaged_in_the_middle, range(40)))
        options = Options(decode=20, part_bytes=100_000)
        reports = [
            check_sources([str(tmp_path)], replace(options, jobs=jobs)).to_json() for jobs in (1, 2)
        ]
        for report in reports:
            del report["duration"]
        counts: Any = reports[0]["counts"]
        assert counts["decoded"] == counts["by_code"]["IMG003"] == 20
        assert reports[0] == reports[1]

    @pytest.mark.parametrize("place", [0, 1, 1234])
    @pytest.mark.parametrize(("part", "whole"), [(0, 1), (1, 1), (3, 100), (99, 100), (7, 10**9)])
    def test_gaps_are_equal(self, part: int, whole: int, place: int) -> None:
        decoding = Decoding(part, whole)
        chosen = [number for number in range(1000) if decoding.has(place, number)]
        assert abs(len(chosen) - 1000 * part / whole) <= 1
        gaps = {after - before for before, after in itertools.pairwise(chosen)}
        assert gaps <= {whole // max(part, 1), whole // max(part, 1) + 1}


@pytest.mark.parametrize("value", ["some", "-1", "1.5", ""])
def test_what_is_no_number(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path), f"--decode={value}"])
    assert ended.value.code == 2
    assert f"{value!r} is not all, none or a whole number" in capsys.readouterr().err
