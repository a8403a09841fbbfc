"""Words by their company: counts, PMI, SVD, word2vec, GloVe, vector files, analogies. No torch."""
