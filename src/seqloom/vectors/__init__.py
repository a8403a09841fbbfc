"""Word vectors: counts, PMI, SVD, word2vec, GloVe, vector files, benchmarks, and classical text classifiers.

No torch.
"""
