"""README.md of a release: its readers have the package index, and no clone.

The first release replaces the texts for a clone. Later ones only change the version.
"""

from __future__ import annotations

import re

_INSTALL = """\
With Python 3.10 to 3.15 (on Debian: `apt-get install python3-venv`):

```
python3 -m venv .venv
. .venv/bin/activate
pip install 'tfod[datumaro,validator]'
```

`pip install tfod` installs only the library and the checker. [More extras](docs/install.md) are for
training, buckets and CVAT; there are also a single file without Python and container images.
`tfod --version` shows whether your wheel has the fast kernel. The examples on this page are files
of the repository. [uv](https://docs.astral.sh/uv/) runs tfod without installing it:

```
curl -fsSL {repository}/archive/refs/tags/v{version}.tar.gz |
    tar xz --strip-components=1 {name}-{version}/examples
uvx --from 'tfod[validator]' tfod check examples/shapes_good.zip
```

"""
_LINES = {
    "echo 'TFOD_SOURCE=/path/to/this/clone' >> .env": (
        "echo 'TFOD_SOURCE={repository}.git#v{version}' >> .env"
    ),
    "cp /path/to/this/clone/docker/cvat/docker-compose.tfrecord.yml .": (
        "curl -fsSLO {repository}/raw/v{version}/docker/cvat/docker-compose.tfrecord.yml"
    ),
    "(`pip install '.[cvat]'`)": "(`pip install 'tfod[cvat]'`)",
    "`pip install '.[tensorflow]'`; for PyTorch, `'.[torch]'`": (
        "`pip install 'tfod[tensorflow]'`; for PyTorch, `'tfod[torch]'`"
    ),
}
_VERSION = re.compile(r"(?<=[v-])\d+\.\d+\.\d+(?=\.tar\.gz|/examples|/docker/|' >> )")
_SECTION = re.compile(r"(?<=^## Install\n\n).*?(?=^## )", re.MULTILINE | re.DOTALL)


def for_index(text: str, version: str, repository: str) -> str:
    """Return the README of a release.

    Args:
        text: README.md for readers with a clone, or of an earlier release.
        version: version of the release.
        repository: address of the repository, such as ``https://github.com/owner/name``.
    """
    if "pip install 'tfod[" in text:
        return _VERSION.sub(version, text)
    names = {"version": version, "repository": repository, "name": repository.rpartition("/")[2]}
    text, count = _SECTION.subn(lambda _: _INSTALL.format(**names), text)
    for line, replacement in _LINES.items():
        count += text.count(line)
        text = text.replace(line, replacement.format(**names))
    if count != 1 + len(_LINES):
        raise SystemExit("README.md does not have the texts that tests/release/readme.py replaces")
    return text
