"""The HTTP API as clients use it, against the service as users start it."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.formats.options import Options
from tfod.formats.table import convert

from tests.checker.report_schema import SCHEMA
from tests.commands import run_command
from tests.image_kinds import plain_image
from tests.mutants.sound import CAT_BOX, LABEL_MAP, flip, shard, with_boxes
from tests.validator.conftest import UPLOADS, Service, Start, problem, shard_of, zip_of

EXAMPLES = Path(__file__).parents[2] / "examples"
INVERTED = (0.5, 0.25, 0.25, 0.75)


def names_in(saved: Any) -> set[str]:
    """Return the names in a downloaded zip."""
    with zipfile.ZipFile(io.BytesIO(saved.content)) as archive:
        return set(archive.namelist())


def test_the_readme_s_first_command(service: Service, tmp_path: Path, good_zip: bytes) -> None:
    path = tmp_path / "anno.zip"
    path.write_bytes(good_zip)
    done = run_command("curl", "-sS", "-F", f"file=@{path}", f"{service.url}{UPLOADS}?wait=30")
    assert done.code == 0
    found = service.wait_until_over(json.loads(done.out)["id"])
    assert (found["state"], found["valid"]) == ("finished", True)
    assert found["files"] == [{"name": "anno.zip", "bytes": len(good_zip), "role": "file"}]
    jsonschema.validate(found["report"], SCHEMA)
    assert found["report"]["counts"]["records"] == 3


def test_exit_status_for_ci(
    service: Service, tmp_path: Path, good_zip: bytes, bad_zip: bytes
) -> None:
    path = tmp_path / "anno.zip"
    url = f"{service.url}{UPLOADS}?wait=60&fail=error&format=text"
    command = ("curl", "-sS", "--fail-with-body", "-F", f"file=@{path}", url)
    for content, status, verdict in ((good_zip, 0, "VALID"), (bad_zip, 22, "INVALID")):
        path.write_bytes(content)
        done = run_command(*command)
        while "has not finished in time" in done.out:  # the same status, but another text
            done = run_command(*command)
        assert done.code == status and done.out.startswith(verdict)


def test_fail_has_its_own_level(service: Service, tmp_path: Path) -> None:
    """It does not depend on the level of the verdict, which the upload has chosen."""
    found = service.check(("a.tfrecord", shard_of(tmp_path, xmax=0.1)))  # boxes without area
    assert found["valid"] is True
    for level, status in (("error", 200), ("warning", 422)):
        assert service.get(f"{found['links']['self']}?fail={level}").status_code == status, level


def test_fail_without_a_report_in_time_is_a_failure(service: Service, good_zip: bytes) -> None:
    response = service.upload({"file": ("a.zip", good_zip)}, wait=0, fail="error")
    assert f"continues at {UPLOADS}/" in problem(response, 409)["detail"]
    assert service.get(response.headers["Location"]).status_code == 200


def test_without_waiting(service: Service, good_zip: bytes) -> None:
    response = service.upload({"file": ("a.zip", good_zip)}, wait=0)
    assert response.status_code == 202
    found, address = response.json(), response.headers["Location"]
    assert address == found["links"]["self"] and found["state"] in ("queued", "running")
    assert found["report"] is None and found["valid"] is None
    over = service.wait_until_over(found["id"])
    assert over["valid"] is True
    assert over["progress"]["bytes"] == {"done": len(good_zip), "total": len(good_zip)}
    assert over["progress"]["records"] == {"done": 3, "total": 3}
    answer = service.get(f"{address}?fail=error&wait=60")
    assert (answer.status_code, answer.json()["valid"]) == (200, True)
    assert service.get(f"{address}?format=text&wait=60").text.startswith("VALID")
    for value in ("-1", "61", "soon"):
        refused = problem(service.get(f"{address}?wait={value}"), 400)
        assert refused["parameter"] == "wait"


def test_a_report_is_sent_as_it_was_written(service: Service, bad_zip: bytes) -> None:
    """It may be long, and is not read into memory."""
    found = service.check(('"report": null.zip', bad_zip))
    assert found["report"] == service.get(found["links"]["json"]).json()
    assert found["files"][0]["name"] == '"report": null.zip' and found["links"]["html"]


def test_shards_and_their_label_map(service: Service, tmp_path: Path) -> None:
    shard = shard_of(tmp_path, text="bird")
    names = [f"train.record-0000{number}-of-00003" for number in range(2)]
    files = [*((name, shard) for name in names), ("label_map.pbtxt", LABEL_MAP)]
    report = service.check(*files)["report"]
    codes = report["counts"]["by_code"]
    assert codes["SET001"] == 1  # the third shard
    assert codes["LAB006"] == 6  # bird is not in the map
    shards = {finding["shard"] for finding in report["findings"]}
    assert {*names} <= shards and not any("/" in name for name in shards)


def test_a_zip_and_its_label_map(service: Service, tmp_path: Path) -> None:
    packed = zip_of({"default.tfrecord": shard_of(tmp_path, text="bird")})
    found = service.check(("a.zip", packed), ("names.pbtxt", LABEL_MAP))
    assert "LAB006" in found["report"]["counts"]["by_code"]


def test_a_cvat_task(service: Service, good_zip: bytes) -> None:
    labels = json.dumps([{"name": "bird", "attributes": []}]).encode()
    for part in (("labels.json", labels), (None, labels.decode())):
        files = {"file": ("a.zip", good_zip), "cvat_labels": part}
        found = service.upload(files).json()
        assert "TSK001" in found["report"]["counts"]["by_code"]
        assert str(service.data) not in json.dumps(found)


@pytest.mark.parametrize(
    ("field", "name", "content"),
    [
        ("cvat_labels", "labels.json", b"{"),
        ("profile", "mine.yaml", b"features: ["),
        ("profile", "mine.txt", b""),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    service: Service, good_zip: bytes, field: str, name: str, content: bytes
) -> None:
    found = service.upload({"file": ("a.zip", good_zip), field: (name, content)}).json()
    assert (found["state"], found["failure"]["status"]) == ("failed", 422)
    assert name in found["failure"]["detail"]
    assert str(service.data) not in found["failure"]["detail"]


def test_profiles_and_receivers(service: Service, good_zip: bytes) -> None:
    mine = b"name: mine\nfeatures:\n  image/depth: {kind: FixedLenFeature, dtype: int64, shape: []}"
    parts: dict[str, Any] = {"roboflow": (None, "roboflow"), "mine": ("mine.yaml", mine)}
    for name, part in parts.items():
        report = service.upload({"file": ("a.zip", good_zip), "profile": part}).json()["report"]
        assert report["profile"]["name"] == name
    assert "EXA003" in report["counts"]["by_code"]
    found = service.check(("a.zip", good_zip))
    assert (found["options"]["for"], found["report"]["receiver"]) == (None, "any")
    found = service.check(("a.zip", good_zip), for_="cvat")
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
    found = service.check(("a.zip", good_zip), decode=decode)
    assert found["options"]["decode"] == (decode or None)
    assert found["report"]["counts"]["decoded"] == decoded
    assert verdict in service.get(found["links"]["text"]).text
    page = service.get(found["links"]["html"]).text
    assert ("check them again with “Decode all images”" in page) is (decoded < 3)


@pytest.mark.parametrize("kind", ["json", "html", "junit", "text"])
def test_formats(service: Service, bad_zip: bytes, kind: str) -> None:
    links = service.check(("a.zip", bad_zip))["links"]
    saved = service.get(links[kind])
    assert saved.status_code == 200
    assert saved.headers["Content-Disposition"].startswith("attachment; filename=tfod-report.")
    types = {"json": "application/json", "junit": "application/xml", "text": "text/plain"}
    accept = types.get(kind, "text/html")
    assert saved.headers["Content-Type"] == accept + "; charset=utf-8" * (kind != "json")
    requested = service.get(f"{links['self']}?format={kind}")
    assert requested.text == service.get(links["self"], headers={"Accept": accept}).text
    if kind == "html":
        policy = requested.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and policy.endswith("sandbox")
    if kind == "json":
        jsonschema.validate(saved.json(), SCHEMA)
        assert requested.json()["report"] == saved.json()
    else:
        assert requested.text == saved.text and "BOX" in requested.text


def test_delete_needs_the_token_of_the_upload(service: Service, good_zip: bytes) -> None:
    uploaded = service.upload({"file": ("a.zip", good_zip)}, wait=0).json()
    token, key = uploaded["token"], uploaded["id"]
    links = service.wait_until_over(key)["links"]
    assert "token" not in service.get(links["self"]).json()
    for wrong in ("", "?token=x", f"?token={token[:-1]}"):
        problem(service.ask("DELETE", links["self"] + wrong), 403)
    address = f"{links['self']}?token={token}"
    assert service.ask("DELETE", address).status_code == 204
    for name in ("self", "html"):
        problem(service.get(links[name]), 404)
    problem(service.ask("DELETE", address), 404)
    assert not list(service.data.glob(f"*/{key}"))


class TestRepair:
    def upload(self, service: Service, content: bytes) -> Any:
        files = {"file": ("a.zip", content), "for": (None, "cvat")}
        return service.upload(files, wait=0).json()

    def test_a_copy(self, service: Service, tmp_path: Path) -> None:
        """It is another validation; its zip can be uploaded, and the upload does not change."""
        shard = flip(shard_of(tmp_path), -1)  # the checksum of the last record
        broken = zip_of({"default.tfrecord": shard, "label_map.pbtxt": LABEL_MAP})
        uploaded = self.upload(service, broken)
        found = service.change(uploaded)
        assert (found["state"], found["valid"]) == ("finished", True)
        assert found["repair"]["records_dropped"] == 1
        assert [change["code"] for change in found["repair"]["changes"]] == ["TFR004"]
        assert found["repair_of"] == uploaded["id"]
        saved = service.get(found["links"]["repaired"])
        assert "filename=a_repaired.zip" in saved.headers["Content-Disposition"]
        assert names_in(saved) == {"default.tfrecord", "label_map.pbtxt"}
        again = service.check(("again.zip", saved.content))
        assert (again["valid"], again["report"]["counts"]["records"]) == (True, 2)
        assert service.get(uploaded["links"]["self"]).json()["valid"] is False

    def test_shards_with_their_label_map(self, service: Service, tmp_path: Path) -> None:
        names = [f"train.record-0000{number}-of-00002" for number in range(2)]
        files = [("file", (name, flip(shard_of(tmp_path), -1))) for name in names]
        uploaded = service.upload([*files, ("file", ("label_map.pbtxt", LABEL_MAP))], wait=0)
        saved = service.get(service.change(uploaded.json())["links"]["repaired"])
        assert names_in(saved) == {*names, "label_map.pbtxt"}

    def test_boxes_that_need_a_decision(self, service: Service) -> None:
        boxes = [CAT_BOX, (0.5, 0.25, 1.3, 0.75), INVERTED]
        files = {"default.tfrecord": shard(with_boxes(boxes)), "label_map.pbtxt": LABEL_MAP}
        uploaded = self.upload(service, zip_of(files))
        failure = service.change(uploaded)["failure"]
        assert failure["status"] == 422 and "your decision (1 error)" in failure["detail"]
        clipped = service.change(uploaded, odd_boxes="clip")
        assert [change["code"] for change in clipped["repair"]["changes"]] == ["BOX003"]
        remaining = clipped["report"]["counts"]["by_code"]
        assert "BOX006" in remaining and "BOX003" not in remaining
        address = f"{clipped['links']['self']}/repair?token={clipped['token']}&odd_boxes="
        dropped = service.end_of(service.post(f"{address}drop&wait=60")).json()
        assert dropped["valid"] and "BOX006" not in dropped["report"]["counts"]["by_code"]
        for odd_boxes in ("refuse", "Clip", ""):
            refused = problem(service.post(address + odd_boxes), 400)
            assert refused["parameter"] == "odd_boxes"

    def test_a_bomb_is_not_unpacked(self, start_service: Start, good_zip: bytes) -> None:
        running = start_service(TFOD_MAX_ARCHIVE_BYTES="100")
        failure = running.change(self.upload(running, good_zip))["failure"]
        assert (failure["status"], failure["limit"]) == (422, "max_archive_bytes")

    def test_a_repair_of_a_repair_whose_name_becomes_long(
        self, service: Service, tmp_path: Path
    ) -> None:
        name = "cats and dogs" + "x" * 220 + ".tfrecord"
        files = [("file", (name, shard_of(tmp_path))), ("label_map", ("m.pbtxt", LABEL_MAP))]
        found = service.upload(files, wait=0).json()
        for _ in range(3):
            service.wait_until_over(found["id"])
            found = service.post(f"{found['links']['self']}/repair?token={found['token']}").json()
            assert service.wait_until_over(found["id"])["state"] == "finished"
            assert found["files"][0]["name"].endswith("_repaired.zip")

    def test_refusals(self, service: Service, bad_zip: bytes) -> None:
        uploaded = self.upload(service, bad_zip)
        service.wait_until_over(uploaded["id"])
        address = uploaded["links"]["self"]
        problem(service.post(f"{address}/repair?token=x"), 403)
        problem(service.get(f"{address}/repaired"), 404)
        shutil.rmtree(service.data / "reports" / uploaded["id"] / "upload")  # it has expired
        gone = problem(service.post(f"{address}/repair?token={uploaded['token']}"), 410)
        assert "Upload it again" in gone["detail"]
        two = [("file", (name, bad_zip)) for name in ("a.zip", "b.zip")]
        found = service.change(service.upload(two, wait=0).json())
        assert found["state"] == "failed" and "several zips" in found["failure"]["detail"]


class TestConvert:
    def convert(self, service: Service, name: str, content: bytes, **form: str) -> Any:
        """Return the validation of the converted copy of an upload."""
        uploaded = service.upload({"file": (name, content)}, wait=0).json()
        return service.change(uploaded, "convert", **form)

    @pytest.mark.parametrize("target", ["voc", "coco", "yolo", "csv", "cvat_xml"])
    def test_a_zip_of_annotations(self, service: Service, tmp_path: Path, target: str) -> None:
        """It becomes a zip of shards that is valid, and is valid again when it is uploaded."""
        convert(str(EXAMPLES / "shapes_good.zip"), str(tmp_path / "data"), Options(), None, target)
        archive = shutil.make_archive(str(tmp_path / "data"), "zip", tmp_path / "data")
        found = self.convert(service, "my data.zip", Path(archive).read_bytes())
        assert (found["state"], found["valid"], found["failure"]) == ("finished", True, None)
        counts = found["conversion"]
        assert (counts["images"], counts["objects"]) == (12, 34)
        saved = service.get(found["links"]["converted"])
        assert "my data_converted.zip" in saved.headers["Content-Disposition"]
        again = service.check(("again.zip", saved.content))
        assert again["valid"] and again["report"]["counts"]["boxes"] == 34

    def test_boxes_that_need_a_decision(self, service: Service) -> None:
        header = b"filename,width,height,class,xmin,ymin,xmax,ymax\n"
        rows = header + b"a.jpg,64,32,cat,8,8,16,16\na.jpg,64,32,cat,32,8,96,16\n"
        content = zip_of({"x.csv": rows, "a.jpg": plain_image((64, 32))})
        refused = self.convert(service, "a.zip", content)["failure"]["detail"]
        assert "x.csv" in refused and "clip or drop" in refused and "--" not in refused
        for odd_boxes, objects in (("clip", 2), ("drop", 1)):
            found = self.convert(service, "a.zip", content, odd_boxes=odd_boxes)
            assert found["valid"] and found["conversion"]["objects"] == objects
            assert "extend beyond" in str(found["conversion"]["notes"])

    def test_refusals(self, service: Service, start_service: Start, good_zip: bytes) -> None:
        shards = self.convert(service, "a.zip", good_zip)
        assert "already contains shards" in shards["failure"]["detail"]
        problem(service.get(f"{shards['links']['self']}/repaired"), 404)
        problem(service.get(shards["links"]["converted"]), 410)
        outside = b"filename,width,height,class,xmin,ymin,xmax,ymax\n../secret.jpg,9,9,a,1,1,5,5\n"
        bomb = zip_of({f"{number}.xml": b"<annotation/>" for number in range(3)})
        for running, name, content, detail in (
            (service, "a.record", b"x" * 99, "only a single zip"),
            (service, "a.zip", zip_of({"x.csv": outside}), "secret.jpg"),
            (start_service(TFOD_MAX_ARCHIVE_ENTRIES="2"), "a.zip", bomb, "entries"),
        ):
            found = self.convert(running, name, content)
            assert found["state"] == "failed" and detail in found["failure"]["detail"]


@pytest.mark.parametrize(
    "sent",
    [
        *("../../etc/passwd", "..\\..\\windows\\win.ini", "/tmp/x.tfrecord", "..", "CON"),
        *("x\x00y.tfrecord", "кадр 1.tfrecord", "a" * 5000, "%2e%2e%2fx.tfrecord"),
    ],
)
def test_names_never_become_paths(service: Service, tmp_path: Path, sent: str) -> None:
    before = {*service.data.iterdir()}
    found = service.check((sent, shard_of(tmp_path)))
    assert found["report"]["counts"]["records"] == 3
    name = found["files"][0]["name"]
    assert "/" not in name and "\\" not in name and len(name) <= 200
    files = (service.data / "reports" / found["id"]).rglob("file/*")
    assert [file.name for file in files] == [name] and {*service.data.iterdir()} == before


@pytest.mark.parametrize(
    ("fields", "parameters", "detail"),
    [
        ({"files": ("a.zip", b"x")}, {}, "files is not a field"),
        ({"file": (None, "text")}, {}, "file is not a field"),
        ({"file": None, "cvat_labels": ("l.json", b"[]")}, {}, "form has no file"),
        ({"decod": (None, "yes")}, {}, "decod is not a field"),
        ({"for": (None, "tpu")}, {}, "for=tpu: expected one of cvat, "),
        ({"profile": (None, "tpu")}, {}, "profile=tpu: "),
        ({"decode": (None, "-1")}, {}, "decode=-1: expected all, none"),
        ({"label_map": (None, "x")}, {}, "expected a file, or one of"),
        ({}, {"fial": "error"}, "fial is not a parameter"),
        ({}, {"wait": "soon"}, "wait=soon"),
        ({}, {"wait": "nan"}, "wait=nan"),
        ({}, {"wait": -1}, "wait=-1: expected seconds, from 0 to 60"),
        ({}, {"fail": "info"}, "expected one of error, warning"),
    ],
)
def test_invalid_requests(
    service: Service, fields: dict[str, Any], parameters: dict[str, Any], detail: str
) -> None:
    files = {"file": ("a.zip", b"x"), **fields}
    refused = problem(service.upload(files, **parameters), 400)
    assert detail in refused["detail"]
    if "=" in detail:
        assert refused["parameter"] == detail.partition("=")[0]


def test_files_of_the_same_name(service: Service, tmp_path: Path) -> None:
    found = service.check(*((f"{folder}/train.record", shard_of(tmp_path)) for folder in "abc"))
    names = ["train.record", "train (2).record", "train (3).record"]
    assert [file["name"] for file in found["files"]] == names
    assert found["report"]["counts"]["shards"] == 3


def test_uploads_without_a_form_or_a_shard(service: Service) -> None:
    refused = problem(service.post(UPLOADS, data=b"x"), 415)
    assert "curl -F file=@anno.zip" in refused["detail"]
    found = service.check(("label_map.pbtxt", LABEL_MAP))
    assert (found["state"], found["failure"]["status"]) == ("failed", 422)
    detail = found["failure"]["detail"]
    assert "neither a shard nor a zip" in detail and "only label maps; add the shards" in detail
    response = service.upload({"file": ("label_map.pbtxt", LABEL_MAP)}, fail="error")
    assert "neither a shard" in problem(response, 422)["detail"]
    problem(service.get(found["links"]["html"]), 422)


def test_unknown_addresses(service: Service) -> None:
    for path in ("/api/v1/nothing", "/nothing", f"{UPLOADS}/unknown", "/api/v1/rules/BOX999"):
        problem(service.get(path), 404)
    response = service.ask("PUT", UPLOADS)
    assert problem(response, 405) and "POST" in response.headers["Allow"]


def test_profiles_and_rules_are_listed(service: Service) -> None:
    profiles = service.get("/api/v1/profiles").json()["profiles"]
    assert [profile["name"] for profile in profiles] == list(READY)
    rules = service.get("/api/v1/rules").json()["rules"]
    assert [rule["code"] for rule in rules] == list(all_rules())
    assert service.get("/api/v1/rules/BOX006").json() in rules


def test_health(service: Service, good_zip: bytes) -> None:
    assert service.check(("a.zip", good_zip))["valid"] is True
    assert service.get("/healthz").json() == {"status": "ok"}
    checks = service.get("/readyz").json()["checks"]
    assert checks == dict.fromkeys(("disk", "folder", "workers"), "ok")
    text = service.get("/metrics").text
    assert 'tfod_checks_total{outcome="valid"}' in text
    assert "tfod_http_request_seconds_bucket" in text


def test_headers(service: Service) -> None:
    headers = service.get("/").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store" and "Server" not in headers


def test_other_sites_cannot_make_a_browser_upload(service: Service, good_zip: bytes) -> None:
    for name, value, status in (
        ("Sec-Fetch-Site", "same-origin", 202),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
    ):
        response = service.upload({"file": ("a.zip", good_zip)}, {name: value}, wait=0)
        assert response.status_code == status, value


def test_other_names_for_loopback_are_refused(service: Service) -> None:
    assert service.get("/", headers={"Host": f"localhost:{service.port}"}).status_code == 200
    problem(service.get("/healthz", headers={"Host": "rebound.example"}), 400)
