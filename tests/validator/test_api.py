"""The HTTP API as clients use it, against the service as users start it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.formats.options import Options
from tfod.formats.table import convert

from tests.checker.reports import SCHEMA
from tests.image_kinds import plain_image
from tests.mutants.sound import CAT_BOX, flip, shard, with_boxes
from tests.validator.conftest import LABEL_MAP, Service, shard_of, zip_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PROBLEM = "application/problem+json"


def problem(response: requests.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer; each is complete."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == PROBLEM
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["detail"] and document["title"] and document["type"] == "about:blank"
    return document


def curl(*arguments: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Exit status and output of curl."""
    found = subprocess.run(
        ["curl", "-sS", *arguments], input=body, capture_output=True, timeout=120, check=False
    )
    return found.returncode, found.stdout


def test_the_readme_s_first_command(service: Service, tmp_path: Path, good_zip: bytes) -> None:
    path = tmp_path / "anno.zip"
    path.write_bytes(good_zip)
    status, out = curl("-F", f"file=@{path}", f"{service.url}/api/v1/validations?wait=30")
    assert status == 0
    found = service.wait_until_over(json.loads(out)["id"])
    assert (found["state"], found["valid"]) == ("finished", True)
    assert found["files"] == [{"name": "anno.zip", "bytes": len(good_zip), "role": "file"}]
    jsonschema.validate(found["report"], SCHEMA)
    assert found["report"]["counts"]["records"] == 3


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_exit_status_for_ci(
    service: Service, tmp_path: Path, good_zip: bytes, bad_zip: bytes, kind: str
) -> None:
    path = tmp_path / "anno.zip"
    path.write_bytes(good_zip if kind == "good" else bad_zip)
    url = f"{service.url}/api/v1/validations?wait=60&fail=error&format=text"
    status, out = 22, b"has not finished in time"
    while b"has not finished in time" in out:  # which is told from the other two
        status, out = curl("--fail-with-body", "-F", f"file=@{path}", url)
    assert status == (0 if kind == "good" else 22)
    assert out.startswith(b"VALID" if kind == "good" else b"INVALID")


def test_fail_looks_at_its_own_level(service: Service, tmp_path: Path) -> None:
    """Not at that of the verdict, which the upload has chosen."""
    shard = shard_of(tmp_path, xmax=0.1)  # boxes without area: warnings
    found = service.end_of(service.upload({"file": ("a.tfrecord", shard)}, wait=0))
    url = service.url + found.json()["links"]["self"]
    assert found.json()["valid"] is True
    for level, status in (("error", 200), ("warning", 422)):
        assert requests.get(url, params={"fail": level}, timeout=30).status_code == status, level


def test_fail_without_a_report_in_time_is_no_success(service: Service, good_zip: bytes) -> None:
    response = service.upload({"file": ("a.zip", good_zip)}, wait=0, fail="error")
    found = problem(response, 409)
    assert "continues at /api/v1/validations/" in found["detail"]
    again = requests.get(service.url + response.headers["Location"], timeout=30)
    assert again.status_code == 200


def test_without_waiting(service: Service, good_zip: bytes) -> None:
    response = service.upload({"file": ("a.zip", good_zip)}, wait=0)
    assert response.status_code == 202
    found = response.json()
    assert response.headers["Location"] == found["links"]["self"]
    assert found["state"] in ("queued", "running")
    assert found["report"] is None and found["valid"] is None
    over = service.wait_until_over(found["id"])
    assert over["valid"] is True
    assert over["progress"]["bytes"] == {"done": len(good_zip), "total": len(good_zip)}
    assert over["progress"]["records"] == {"done": 3, "total": 3}


def test_a_report_is_in_the_answer_as_it_was_written(service: Service, bad_zip: bytes) -> None:
    """It may be long, and is not read into memory."""
    found = service.upload({"file": ('"report": null.zip', bad_zip)}).json()
    assert found["report"] == service.get(found["links"]["json"]).json()
    assert found["files"][0]["name"] == '"report": null.zip' and found["links"]["html"]


def test_waiting_for_what_was_accepted(service: Service, good_zip: bytes) -> None:
    accepted = service.upload({"file": ("a.zip", good_zip)}, wait=0)
    address = service.url + accepted.headers["Location"]
    answer = service.end_of(accepted, fail="error")  # asks with wait=60
    assert (answer.status_code, answer.json()["valid"]) == (200, True)
    answer = requests.get(address, params={"wait": 60, "format": "text"}, timeout=90)
    assert answer.text.startswith("VALID")
    for value in ("-1", "61", "soon"):
        refused = problem(requests.get(address, params={"wait": value}, timeout=90), 400)
        assert refused["parameter"] == "wait"


def test_shards_and_their_label_map(service: Service, tmp_path: Path) -> None:
    shard = shard_of(tmp_path, text="bird")
    files = [
        ("file", ("train.record-00000-of-00003", shard)),
        ("file", ("train.record-00001-of-00003", shard)),
        ("file", ("label_map.pbtxt", LABEL_MAP)),
    ]
    report = service.upload(files).json()["report"]
    codes = report["counts"]["by_code"]
    assert codes["SET001"] == 1  # the third shard
    assert codes["LAB006"] == 6  # bird is not in the map
    shards = {one["shard"] for one in report["findings"]}
    assert {"train.record-00000-of-00003", "train.record-00001-of-00003"} <= shards
    assert not any("/" in name for name in shards)


def test_the_label_map_beside_a_zip(service: Service, tmp_path: Path) -> None:
    packed = zip_of({"default.tfrecord": shard_of(tmp_path, text="bird")})
    files = [("file", ("a.zip", packed)), ("file", ("names.pbtxt", LABEL_MAP))]
    assert "LAB006" in service.upload(files).json()["report"]["counts"]["by_code"]


def test_a_cvat_task(service: Service, good_zip: bytes) -> None:
    labels = json.dumps([{"name": "bird", "attributes": []}]).encode()
    for part in (("labels.json", labels), (None, labels.decode())):
        files = {"file": ("a.zip", good_zip), "cvat_labels": part}
        found = service.upload(files).json()
        assert "TSK001" in found["report"]["counts"]["by_code"]
        assert str(service.data) not in json.dumps(found)


@pytest.mark.parametrize(
    ("field", "name", "content", "output"),
    [
        ("cvat_labels", "labels.json", b"{", "labels.json"),
        ("profile", "mine.yaml", b"features: [", "mine.yaml"),
        ("profile", "mine.txt", b"", "mine.txt"),
    ],
)
def test_what_cannot_be_used_is_named(
    service: Service, good_zip: bytes, field: str, name: str, content: bytes, output: str
) -> None:
    found = service.upload({"file": ("a.zip", good_zip), field: (name, content)}).json()
    assert found["state"] == "failed"
    assert output in found["failure"]["detail"]
    assert str(service.data) not in found["failure"]["detail"]
    assert found["failure"]["status"] == 422


def test_profiles(service: Service, good_zip: bytes) -> None:
    mine = b"name: mine\nfeatures:\n  image/depth: {kind: FixedLenFeature, dtype: int64, shape: []}"
    for name, part in (
        *((name, (None, name)) for name in ("roboflow", "cvat")),
        ("mine", ("mine.yaml", mine)),
    ):
        report = service.upload({"file": ("a.zip", good_zip), "profile": part}).json()["report"]
        assert report["profile"]["name"] == name
    assert "EXA003" in report["counts"]["by_code"]


def test_receivers(service: Service, good_zip: bytes) -> None:
    found = service.upload({"file": ("a.zip", good_zip)}).json()
    assert (found["options"]["for"], found["report"]["receiver"]) == (None, "any")
    found = service.upload({"file": ("a.zip", good_zip), "for": (None, "cvat")}).json()
    assert (found["options"]["for"], found["report"]["receiver"]) == ("cvat", "cvat")
    assert found["report"]["profile"]["name"] == "cvat"
    assert service.get(found["links"]["text"]).text.startswith("VALID for CVAT: ")


@pytest.mark.parametrize(
    ("decode", "decoded", "verdict"),
    [
        ("", 3, "VALID: 0 errors, 2 warnings, 1 info\n"),
        ("all", 3, "VALID: 0 errors, 2 warnings, 1 info\n"),
        ("2", 2, "2 of 3 images decoded, spread"),
        ("none", 0, "0 of 3 images decoded, as requested"),
    ],
)
def test_images_to_decode(
    service: Service, good_zip: bytes, decode: str, decoded: int, verdict: str
) -> None:
    found = service.upload({"file": ("a.zip", good_zip), "decode": (None, decode)}).json()
    assert found["options"]["decode"] == (decode or None)
    assert found["report"]["counts"]["decoded"] == decoded
    assert verdict in service.get(found["links"]["text"]).text
    page = service.get(found["links"]["html"]).text
    assert ("upload them again with “Decode all images”" in page) is (decoded < 3)


@pytest.mark.parametrize("field", ["for", "profile"])
def test_a_field_is_named(service: Service, good_zip: bytes, field: str) -> None:
    response = service.upload({"file": ("a.zip", good_zip), field: (None, "tpu")})
    assert problem(response, 400)["parameter"] == field


@pytest.mark.parametrize("kind", ["json", "html", "junit", "text"])
def test_formats(service: Service, bad_zip: bytes, kind: str) -> None:
    links = service.upload({"file": ("a.zip", bad_zip)}).json()["links"]
    saved = service.get(links[kind])
    assert saved.status_code == 200
    assert saved.headers["Content-Disposition"].startswith("attachment; filename=tfod-report.")
    types = {"json": "application/json", "junit": "application/xml", "text": "text/plain"}
    accept = types.get(kind, "text/html")
    assert saved.headers["Content-Type"] == accept + "; charset=utf-8" * (kind != "json")
    accepted = service.get(links["self"], headers={"Accept": accept})
    asked = service.get(f"{links['self']}?format={kind}")
    assert asked.text == accepted.text
    if kind == "html":
        policy = asked.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and policy.endswith("sandbox")
    if kind == "json":
        jsonschema.validate(saved.json(), SCHEMA)
        assert asked.json()["report"] == saved.json()
    else:
        assert asked.text == saved.text
        assert "BOX" in asked.text


def test_delete(service: Service, good_zip: bytes) -> None:
    """Only who has the token may."""
    uploaded = service.upload({"file": ("a.zip", good_zip)}, wait=0).json()
    token, key = uploaded["token"], uploaded["id"]
    links = service.wait_until_over(key)["links"]
    address = service.url + links["self"]
    assert "token" not in service.get(links["self"]).json()
    for wrong in ({}, {"token": "x"}, {"token": token[:-1]}):
        problem(requests.delete(address, params=wrong, timeout=30), 403)
    assert requests.delete(address, params={"token": token}, timeout=30).status_code == 204
    for name in ("self", "html"):
        problem(service.get(links[name]), 404)
    problem(requests.delete(address, params={"token": token}, timeout=30), 404)
    assert not list(service.data.glob(f"*/{key}"))


class TestRepair:
    def upload(self, service: Service, content: bytes) -> Any:
        files = {"file": ("a.zip", content), "for": (None, "cvat")}
        return service.upload(files, wait=0).json()

    def test_a_copy(self, service: Service, tmp_path: Path) -> None:
        """Is a validation of its own, whose zip can be loaded; the upload stays as it was."""
        shard = flip(shard_of(tmp_path), -1)  # the checksum of the last record
        broken = zip_of({"default.tfrecord": shard, "label_map.pbtxt": LABEL_MAP})
        uploaded = self.upload(service, broken)
        found = service.repair(uploaded)
        assert (found["state"], found["valid"]) == ("finished", True)
        assert found["repair"]["records_dropped"] == 1
        assert [one["code"] for one in found["repair"]["changes"]] == ["TFR004"]
        assert found["repair_of"] == uploaded["id"]
        saved = service.get(found["links"]["repaired"])
        assert "filename=a_repaired.zip" in saved.headers["Content-Disposition"]
        with zipfile.ZipFile(io.BytesIO(saved.content)) as archive:
            assert set(archive.namelist()) == {"default.tfrecord", "label_map.pbtxt"}
        again = service.upload({"file": ("again.zip", saved.content)}).json()
        assert (again["valid"], again["report"]["counts"]["records"]) == (True, 2)
        assert service.get(uploaded["links"]["self"]).json()["valid"] is False

    def test_of_shards_with_their_label_map(self, service: Service, tmp_path: Path) -> None:
        names = [f"train.record-0000{number}-of-00002" for number in range(2)]
        files = [("file", (name, flip(shard_of(tmp_path), -1))) for name in names]
        uploaded = service.upload([*files, ("file", ("label_map.pbtxt", LABEL_MAP))], wait=0)
        saved = service.get(service.repair(uploaded.json())["links"]["repaired"])
        with zipfile.ZipFile(io.BytesIO(saved.content)) as archive:
            assert set(archive.namelist()) == {*names, "label_map.pbtxt"}

    def test_boxes_that_need_a_decision(self, service: Service) -> None:
        boxes = [CAT_BOX, (0.5, 0.25, 1.3, 0.75), (0.5, 0.25, 0.25, 0.75)]
        files = {"default.tfrecord": shard(with_boxes(boxes)), "label_map.pbtxt": LABEL_MAP}
        uploaded = self.upload(service, zip_of(files))
        found = service.repair(uploaded)
        assert (found["state"], found["failure"]["status"]) == ("failed", 422)
        assert "can be repaired without your decision (1 error)" in found["failure"]["detail"]
        clipped = service.repair(uploaded, odd_boxes="clip")
        assert [one["code"] for one in clipped["repair"]["changes"]] == ["BOX003"]
        left = clipped["report"]["counts"]["by_code"]
        assert "BOX006" in left and "BOX003" not in left
        url = f"{service.url}{clipped['links']['self']}/repair"
        asked = {"token": clipped["token"], "odd_boxes": "drop", "wait": 60}
        dropped = service.end_of(requests.post(url, params=asked, timeout=90)).json()
        assert dropped["valid"] and "BOX006" not in dropped["report"]["counts"]["by_code"]
        for odd_boxes in ("refuse", "Clip", ""):
            wrong = {"token": clipped["token"], "odd_boxes": odd_boxes}
            found = problem(requests.post(url, params=wrong, timeout=90), 400)
            assert found["parameter"] == "odd_boxes"

    def test_a_bomb_is_not_unpacked(self, start_service: Any, good_zip: bytes) -> None:
        running = start_service(TFOD_MAX_ARCHIVE_BYTES="100")
        failure = running.repair(self.upload(running, good_zip))["failure"]
        assert (failure["status"], failure["limit"]) == (422, "max_archive_bytes")

    def test_of_a_repair_whose_name_becomes_long(self, service: Service, tmp_path: Path) -> None:
        name = "cats and dogs" + "x" * 220 + ".tfrecord"
        files = [("file", (name, shard_of(tmp_path))), ("label_map", ("m.pbtxt", LABEL_MAP))]
        found = service.upload(files, wait=0).json()
        for _ in range(3):
            service.wait_until_over(found["id"])
            url = f"{service.url}{found['links']['self']}/repair?token={found['token']}"
            found = requests.post(url, timeout=90).json()
            assert service.wait_until_over(found["id"])["state"] == "finished"
            assert found["files"][0]["name"].endswith("_repaired.zip")

    def test_refusals(self, service: Service, bad_zip: bytes) -> None:
        uploaded = self.upload(service, bad_zip)
        service.wait_until_over(uploaded["id"])
        url = f"{service.url}{uploaded['links']['self']}/repair"
        problem(requests.post(url, params={"token": "x"}, timeout=60), 403)
        problem(service.get(f"{uploaded['links']['self']}/repaired"), 404)
        upload = service.data / "reports" / uploaded["id"] / "upload"
        shutil.rmtree(upload)  # its time is over
        asked = {"token": uploaded["token"]}
        found = problem(requests.post(url, params=asked, timeout=60), 410)
        assert "Upload it again" in found["detail"]
        two = [("file", (name, bad_zip)) for name in ("a.zip", "b.zip")]
        found = service.repair(service.upload(two, wait=0).json())
        assert found["state"] == "failed"
        assert "cannot be repaired: there are several zips" in found["failure"]["detail"]


class TestConvert:
    def convert(self, service: Service, files: Any, **form: str) -> Any:
        """What is said of the converted copy of an upload when its check has ended."""
        uploaded = service.upload(files, wait=0).json()
        service.wait_until_over(uploaded["id"])
        url = f"{service.url}{uploaded['links']['self']}/convert"
        asked = {"token": uploaded["token"], "wait": 60}
        return service.end_of(requests.post(url, data=form, params=asked, timeout=90)).json()

    @pytest.mark.parametrize("target", ["voc", "coco", "yolo", "csv", "cvat_xml"])
    def test_a_zip_of_annotations(self, service: Service, tmp_path: Path, target: str) -> None:
        """Becomes a zip of shards that is valid, and is valid again when it is uploaded."""
        convert(str(EXAMPLES / "shapes_good.zip"), str(tmp_path / "data"), Options(), None, target)
        archive = shutil.make_archive(str(tmp_path / "data"), "zip", tmp_path / "data")
        files = {"file": ("my data.zip", Path(archive).read_bytes())}
        found = self.convert(service, files)
        assert (found["state"], found["valid"], found["failure"]) == ("finished", True, None)
        numbers = {name: found["conversion"][name] for name in ("images", "objects")}
        assert numbers == {"images": 12, "objects": 34}
        saved = service.get(found["links"]["converted"])
        assert "my data_converted.zip" in saved.headers["Content-Disposition"]
        again = service.upload({"file": ("again.zip", saved.content)}).json()
        assert again["valid"] and again["report"]["counts"]["boxes"] == 34

    def test_boxes_that_need_a_decision(self, service: Service) -> None:
        header = b"filename,width,height,class,xmin,ymin,xmax,ymax\n"
        rows = header + b"a.jpg,64,32,cat,8,8,16,16\na.jpg,64,32,cat,32,8,96,16\n"
        files = {"file": ("a.zip", zip_of({"x.csv": rows, "a.jpg": plain_image((64, 32))}))}
        refused = self.convert(service, files)["failure"]["detail"]
        assert "x.csv" in refused and "clip or drop" in refused and "--" not in refused
        for odd_boxes, objects in (("clip", 2), ("drop", 1)):
            found = self.convert(service, files, odd_boxes=odd_boxes)
            assert found["valid"] and found["conversion"]["objects"] == objects
            assert "extend beyond" in str(found["conversion"]["notes"])

    def test_refusals(self, service: Service, start_service: Any, good_zip: bytes) -> None:
        already = self.convert(service, {"file": ("a.zip", good_zip)})
        assert "already contains shards" in already["failure"]["detail"]
        problem(service.get(f"{already['links']['self']}/repaired"), 404)
        problem(service.get(already["links"]["converted"]), 410)
        shard = self.convert(service, {"file": ("a.record", b"x" * 99)})
        assert "only a single zip" in shard["failure"]["detail"]
        outside = b"filename,width,height,class,xmin,ymin,xmax,ymax\n../secret.jpg,9,9,a,1,1,5,5\n"
        secret = self.convert(service, {"file": ("a.zip", zip_of({"x.csv": outside}))})
        assert secret["state"] == "failed" and "secret.jpg" in secret["failure"]["detail"]
        running = start_service(TFOD_MAX_ARCHIVE_ENTRIES="2")
        rows = {f"{number}.xml": b"<annotation/>" for number in range(3)}
        bomb = self.convert(running, {"file": ("a.zip", zip_of(rows))})
        assert "entries" in bomb["failure"]["detail"]


@pytest.mark.parametrize(
    "sent",
    [
        *("../../etc/passwd", "..\\..\\windows\\win.ini", "/tmp/x.tfrecord", "..", "CON"),
        *("x\x00y.tfrecord", "кадр 1.tfrecord", "a" * 5000, "%2e%2e%2fx.tfrecord"),
    ],
)
def test_names_never_become_paths(service: Service, tmp_path: Path, sent: str) -> None:
    files = {"file": (sent, shard_of(tmp_path))}
    before = {one.name for one in service.data.iterdir()}
    found = service.upload(files).json()
    assert found["state"] == "finished"
    name = found["files"][0]["name"]
    assert "/" not in name and "\\" not in name and len(name) <= 200
    assert found["report"]["counts"]["records"] == 3
    assert [one.name for one in (service.data / "reports" / found["id"]).rglob("file/*")] == [name]
    assert {one.name for one in service.data.iterdir()} == before


@pytest.mark.parametrize(
    ("files", "parameters", "output"),
    [
        ({"files": ("a.zip", b"x")}, {}, "files is not a field"),
        ({"file": (None, "text")}, {}, "file is not a field"),
        ({"cvat_labels": ("l.json", b"[]")}, {}, "form has no file"),
        ({"file": ("a.zip", b"x"), "decod": (None, "yes")}, {}, "decod is not a field"),
        ({"file": ("a.zip", b"x"), "for": (None, "tpu")}, {}, "for=tpu: expected one of cvat, "),
        ({"file": ("a.zip", b"x"), "decode": (None, "-1")}, {}, "decode=-1: expected all, none"),
        ({"file": ("a.zip", b"x"), "label_map": (None, "x")}, {}, "expected a file, or one of"),
        ({"file": ("a.zip", b"x")}, {"fial": "error"}, "fial is not a parameter"),
        ({"file": ("a.zip", b"x")}, {"wait": "soon"}, "wait=soon"),
        ({"file": ("a.zip", b"x")}, {"wait": "nan"}, "wait=nan"),
        ({"file": ("a.zip", b"x")}, {"wait": -1}, "wait=-1: expected seconds, from 0 to 60"),
        ({"file": ("a.zip", b"x")}, {"fail": "info"}, "expected one of error, warning"),
    ],
)
def test_requests_that_make_no_sense(
    service: Service, files: Any, parameters: dict[str, Any], output: str
) -> None:
    assert output in problem(service.upload(files, **parameters), 400)["detail"]


def test_files_of_the_same_name(service: Service, tmp_path: Path) -> None:
    shard = shard_of(tmp_path)
    files = [("file", (f"{folder}/train.record", shard)) for folder in "abc"]
    found = service.upload(files).json()
    names = ["train.record", "train (2).record", "train (3).record"]
    assert [one["name"] for one in found["files"]] == names
    assert found["report"]["counts"]["shards"] == 3


def test_no_form(service: Service) -> None:
    response = requests.post(f"{service.url}/api/v1/validations", data=b"x", timeout=30)
    assert "curl -F file=@anno.zip" in problem(response, 415)["detail"]


def test_nothing_to_check(service: Service) -> None:
    found = service.upload({"file": ("label_map.pbtxt", LABEL_MAP)}).json()
    assert (found["state"], found["failure"]["status"]) == ("failed", 422)
    detail = found["failure"]["detail"]
    assert "neither a shard nor a zip" in detail
    assert "only label maps; add the shards" in detail
    response = service.upload({"file": ("label_map.pbtxt", LABEL_MAP)}, fail="error")
    assert "neither a shard" in problem(response, 422)["detail"]
    problem(service.get(found["links"]["html"]), 422)


def test_addresses_that_are_not_there(service: Service) -> None:
    problem(service.get("/api/v1/nothing"), 404)
    problem(service.get("/nothing"), 404)
    problem(service.get("/api/v1/validations/nobody-knows"), 404)
    response = requests.put(f"{service.url}/api/v1/validations", timeout=30)
    assert problem(response, 405) and "POST" in response.headers["Allow"]


def test_what_is_checked(service: Service) -> None:
    assert [one["name"] for one in service.get("/api/v1/profiles").json()["profiles"]] == list(
        READY
    )
    rules = service.get("/api/v1/rules").json()["rules"]
    assert [one["code"] for one in rules] == list(all_rules())
    assert service.get("/api/v1/rules/BOX006").json() in rules
    problem(service.get("/api/v1/rules/BOX999"), 404)


def test_health(service: Service, good_zip: bytes) -> None:
    assert service.upload({"file": ("a.zip", good_zip)}).json()["valid"] is True
    assert service.get("/healthz").json() == {"status": "ok"}
    checks = service.get("/readyz").json()["checks"]
    assert checks == dict.fromkeys(("disk", "folder", "workers"), "ok")
    text = service.get("/metrics").text
    assert 'tfod_checks_total{outcome="valid"}' in text
    assert "tfod_http_request_seconds_bucket" in text


def test_headers(service: Service) -> None:
    headers = service.get("/").headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Server" not in headers


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
    ],
)
def test_other_sites_cannot_make_a_browser_upload(
    service: Service, good_zip: bytes, headers: dict[str, str], allowed: bool
) -> None:
    response = service.upload({"file": ("a.zip", good_zip)}, headers, wait=0)
    assert response.status_code == (202 if allowed else 403)


def test_other_names_for_loopback_are_refused(service: Service) -> None:
    port = service.url.rpartition(":")[2]
    assert service.get("/", headers={"Host": f"localhost:{port}"}).status_code == 200
    problem(service.get("/healthz", headers={"Host": "rebound.example"}), 400)
