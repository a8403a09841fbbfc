"""A picture file as an array of pixels: opened safely, upright, in three channels, cut to one size.

Every form that Pillow reads becomes uint8 (H, W, 3): palettes and CMYK are converted, 16 bits are scaled to 8, what is
transparent shows the background, and the rotation that a camera noted is applied. The size of a picture is read from its
header and checked before its pixels are decoded, so that a small file cannot fill the memory.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqloom.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 64_000_000  # of a file: 8,000 × 8,000
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
Fit = Literal["crop", "pad", "stretch"]


def pillow() -> None:
    """Raises if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise DataError(
            "reading pictures needs Pillow; install it with: pip install 'seqloom[image]'"
        ) from error


def read_picture(path: str | Path) -> bytes:
    """Returns the bytes of a picture file."""
    try:
        if Path(path).is_dir():
            raise DataError(f"{path}: a folder, not a picture; give a picture file")
        return Path(path).read_bytes()
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise DataError(f"{path}: {reason}; give a picture file") from error


def decode_picture(
    data: bytes, location: str, height: int, width: int, fit: Fit = "crop", background: int = 255
) -> np.ndarray:
    """Returns the pixels of a picture file, uint8 (height, width, 3). `location` names it in errors.

    crop fills the size and cuts what is too much at both ends, pad shows the whole picture on the background, stretch
    changes its proportions.
    """
    pillow()
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our own limit is below Pillow's
            picture = Image.open(io.BytesIO(data), formats=FORMATS)
            if picture.width * picture.height > MAX_PIXELS:
                raise DataError(
                    f"{location}: {picture.width:,} × {picture.height:,} pixels are more than {MAX_PIXELS:,}; make the picture smaller"
                )
            if picture.format == "JPEG":
                picture.draft(
                    "RGB", (2 * width, 2 * height)
                )  # decodes a large photograph at a fraction of its size
            picture.load()
            upright = ImageOps.exif_transpose(picture)
            image = to_rgb(upright, background)
    except DataError:
        raise
    except Image.DecompressionBombError:
        raise DataError(f"{location}: more than {MAX_PIXELS:,} pixels; make the picture smaller") from None
    except Image.UnidentifiedImageError:
        raise DataError(
            f"{location}: not a picture{kind_of(data)}; give a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file"
        ) from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        IndexError,
        TypeError,
        KeyError,
        MemoryError,
    ) as error:
        raise DataError(
            f"{location}: the picture is damaged ({' '.join(str(error).split()) or type(error).__name__}); save it again"
        ) from None
    return np.asarray(resize(image, height, width, fit, background))


def fit_pixels(pixels: np.ndarray, height: int, width: int, fit: Fit, background: int) -> np.ndarray:
    """Returns pixels of any size, uint8 (H, W, 3), in the given size."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise DataError(
            f"a picture of shape {pixels.shape} and type {pixels.dtype}; give uint8 of shape (height, width, 3)"
        )
    if pixels.shape[:2] == (height, width):
        return pixels
    pillow()
    from PIL import Image

    return np.asarray(resize(Image.fromarray(pixels), height, width, fit, background))


def kind_of(data: bytes) -> str:
    """Returns what a file that is not a picture is, if its first bytes say so."""
    if not data:
        return ", the file is empty"
    for start, kind in (
        (b"%PDF", "a PDF"),
        (b"PK", "a zip"),
        (b"<svg", "an SVG"),
        (b"<?xml", "XML"),
        (b"<", "HTML"),
    ):
        if data[:64].lstrip().startswith(start):
            return f", but {kind}"
    return ""


def to_rgb(picture: Image, background: int) -> Image:
    """Returns the picture with 8 bits for each of red, green and blue."""
    from PIL import Image

    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        values = np.asarray(picture, np.float64)
        wide = picture.mode == "F" and values.max(initial=0) <= 1
        scale = 255.0 if wide else 1 / 256 if values.max(initial=0) > 255 else 1.0
        return Image.fromarray(np.clip(values * scale, 0, 255).astype(np.uint8)).convert("RGB")
    if "transparency" in picture.info or picture.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        coloured = picture.convert("RGBA")
        under = Image.new("RGBA", coloured.size, (background, background, background, 255))
        return Image.alpha_composite(under, coloured).convert("RGB")
    return picture.convert("RGB")


def resize(picture: Image, height: int, width: int, fit: Fit, background: int) -> Image:
    """Returns the picture in the given size."""
    from PIL import Image, ImageOps

    if picture.size == (width, height):
        return picture
    if fit == "stretch":
        return picture.resize((width, height), Image.Resampling.BICUBIC)
    if fit == "pad":
        return ImageOps.pad(picture, (width, height), Image.Resampling.BICUBIC, color=(background,) * 3)
    return ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)


def encode_png(pixels: np.ndarray) -> bytes:
    """Returns pixels, uint8 (H, W, 3), as a PNG file."""
    pillow()
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
