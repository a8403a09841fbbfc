"""Pictures and sounds as arrays. Pillow and soundfile are imported when they are first used."""
