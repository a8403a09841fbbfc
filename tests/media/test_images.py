"""Every form of a picture becomes the same pixels; what is no picture is one clear line."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from seqloom.errors import DataError
from seqloom.media.images import decode_picture, encode_png, fit_pixels


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def quarters() -> np.ndarray:
    """Red, green, blue and white quarters of 16 × 16 pixels."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8, :8, 0] = pixels[:8, 8:, 1] = pixels[8:, :8, 2] = 255
    pixels[8:, 8:] = 255
    return pixels


def decode(data: bytes, size: int = 16, **options: object) -> np.ndarray:
    return decode_picture(data, "a.jpg", size, size, **options)


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_forms_without_loss_keep_every_pixel(form: str):
    np.testing.assert_array_equal(decode(saved(Image.fromarray(quarters()), form)), quarters())


def test_png_is_written_and_read():
    np.testing.assert_array_equal(decode(encode_png(quarters())), quarters())


@pytest.mark.parametrize("mode", ["P", "CMYK", "L", "1", "YCbCr", "RGBA", "LA"])
def test_modes_become_three_channels(mode: str):
    form = "TIFF" if mode in ("CMYK", "YCbCr") else "PNG"
    found = decode(saved(Image.fromarray(quarters()).convert(mode), form)).astype(int)
    expected = np.asarray(Image.fromarray(quarters()).convert(mode).convert("RGB")).astype(int)
    assert found.shape == (16, 16, 3) and np.abs(found - expected).max() <= 2


def test_sixteen_bits_are_scaled_to_eight():
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    found = decode(saved(Image.fromarray(values), "PNG"))
    np.testing.assert_array_equal(found[..., 0], values // 256)


def test_what_is_transparent_shows_the_background():
    image = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    assert (decode(saved(image, "PNG")) == 255).all()
    assert (decode(saved(image, "PNG"), background=0) == 0).all()


def test_a_palette_with_transparency_shows_the_background():
    image = Image.fromarray(quarters()).convert("P")
    red = image.getpixel((0, 0))
    found = decode(saved(image, "PNG", transparency=red))
    assert (found[0, 0] == 255).all() and (found[0, 15] == [0, 255, 0]).all()


def test_the_rotation_of_a_camera_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    data = saved(Image.fromarray(quarters()), "PNG", exif=exif)
    np.testing.assert_array_equal(decode(data), np.rot90(quarters(), -1))


def test_crop_pad_and_stretch():
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = 200  # the middle
    data = saved(Image.fromarray(wide), "PNG")
    assert (decode(data, 8) == 200).all()
    padded = decode(data, 24, fit="pad", background=90)
    assert (padded[0] == 90).all() and (padded[12, 12] == 200).all() and (padded[12, 0] == 0).all()
    stretched = decode(data, 12, fit="stretch")[6, :, 0].astype(int)
    assert abs(stretched[6] - 200) < 5 and stretched[0] == stretched[11] == 0


def test_pixels_of_the_user_are_fitted_too():
    assert fit_pixels(quarters(), 16, 16, "crop", 255) is not None
    np.testing.assert_array_equal(
        fit_pixels(quarters(), 8, 8, "crop", 255), decode(encode_png(quarters()), 8)
    )
    with pytest.raises(DataError, match=r"uint8 of shape \(height, width, 3\)"):
        fit_pixels(np.zeros((4, 4)), 8, 8, "crop", 255)


def bomb(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header promises so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "data, message",
    [
        (b"%PDF-1.7", "not a picture, but a PDF; give a JPEG"),
        (b"", "not a picture, the file is empty"),
        (b"PK\x03\x04", "not a picture, but a zip"),
        (b"<html></html>", "not a picture, but HTML"),
        (b"hello", "not a picture; give a JPEG"),
        (bomb(9_000, 9_000), "9,000 × 9,000 pixels are more than 64,000,000; make the picture smaller"),
        (bomb(20_000, 20_000), "more than 64,000,000 pixels; make the picture smaller"),
        (saved(Image.fromarray(quarters()), "JPEG")[:300], "the picture is damaged"),
        (
            saved(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)), "PNG")[
                :900
            ],
            "the picture is damaged",
        ),
    ],
    ids=["pdf", "empty", "zip", "html", "text", "bomb", "large bomb", "cut jpeg", "cut png"],
)
def test_what_is_no_picture_is_one_clear_line(data: bytes, message: str):
    with pytest.raises(DataError) as caught:
        decode(data)
    assert str(caught.value).startswith("a.jpg: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)
