"""What stops the receivers' own decoders, and what they read with losses."""

from __future__ import annotations

import numpy as np

from tests.mutants.sound import CAT_BOX, DOG_BOX, HEIGHT, WIDTH, record
from tests.receivers.decoders import model_maker, od_api, tf_vision


def test_a_sound_record() -> None:
    payload = record(source_id="7")
    for read in (tf_vision(), model_maker(), od_api()):
        found = read(payload)
        assert found.image.shape == (HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(found.boxes, np.float32([CAT_BOX, DOG_BOX]))
        assert list(found.classes) == [1, 2]
        assert int(found.source_id) == 7
