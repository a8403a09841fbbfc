"""The systems of Table 2 of the Transformer paper: our presets of them, and the published figures.

Published and measured figures never share a column: data, sizes and scripts differ.
"""

from __future__ import annotations

from typing import NamedTuple

TABLE2 = ("seq2seq", "encdec", "rnnsearch", "bytenet", "deep-att", "gnmt", "convs2s", "moe", "transformer")


class Reported(NamedTuple):
    """BLEU on newstest2014 and training FLOPs from Table 2 of Vaswani et al. (2017); None if the table has no figure."""

    system: str
    german: float | None
    french: float | None
    flops_german: float | None
    flops_french: float | None


SOURCE = "Vaswani et al., Attention Is All You Need (2017), Table 2: WMT 2014, newstest2014"
REPORTED = (
    Reported("ByteNet", 23.75, None, None, None),
    Reported("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Reported("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Reported("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Reported("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Reported("Deep-Att + PosUnk, ensemble", None, 40.4, None, 8.0e20),
    Reported("GNMT + RL, ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Reported("ConvS2S, ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Reported("Transformer, base", 27.3, 38.1, 3.3e18, 3.3e18),
    Reported("Transformer, big", 28.4, 41.0, 2.3e19, 2.3e19),
)
