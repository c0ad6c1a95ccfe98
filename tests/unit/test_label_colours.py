"""Colours of labels: the same everywhere, and far apart where there are few."""

from itertools import combinations

import numpy as np

from otel_logger.label_colours import TABLE, colour_of, colours_of


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Bytes of sRGB in OKLab, where distances are about those that an eye sees."""
    linear = rgb.astype(np.float64) / 255
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(
        linear
        @ np.array(
            [
                [0.4122214708, 0.2119034982, 0.0883024619],
                [0.5363325363, 0.6806995451, 0.2817188376],
                [0.0514459929, 0.1073969566, 0.6299787005],
            ]
        )
    )
    return cones @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )


def test_the_first_labels_are_far_apart() -> None:
    """Any two of the first 32 colours, and each from black and white, are told apart at a glance."""
    places = oklab(colours_of(np.arange(32)))
    distances = [float(np.linalg.norm(a - b)) for a, b in combinations(places, 2)]
    assert min(distances) > 0.13
    black, white = oklab(np.array([[0, 0, 0], [255, 255, 255]]))
    assert min(float(np.linalg.norm(place - end)) for place in places for end in (black, white)) > 0.11


def test_a_colour_is_that_of_the_number_alone() -> None:
    """It is the same in every type, shape and company, and as text; and the one that it always was."""
    for label in (0, 1, 31, 32, 100, 255):
        colour = "#" + bytes(colours_of(np.array([label]))[0]).hex()
        assert colour == colour_of(label)
        for dtype in (np.uint8, np.uint16, np.int32, np.int64):
            assert colour == "#" + bytes(colours_of(np.array([[7, label]], dtype))[0, 1]).hex()
    assert ["#a596d2", "#ff3c2d", "#0000ff"] == [colour_of(label) for label in range(3)]
    assert ["#7ba65e", "#a5f6f0", "#e6cb76"] == [colour_of(label) for label in (-1, 255, 2**31 - 1)]


def test_later_colours_differ_and_are_not_dark() -> None:
    """Numbers beyond the table have mixed colours, few of them alike, all of which are seen on black."""
    colours = colours_of(np.arange(32, 1032))
    assert len({bytes(colour) for colour in colours}) > 990
    assert int(colours.min()) >= 64
    assert (32, 3) == TABLE.shape
