"""Words of the small texts that tests draw."""

WORDS = [
    *("the", "a", "old", "young", "king", "queen", "dog", "cat", "river", "street"),
    *("sees", "hears", "finds", "and", "but", "then", "never"),
]
OPINIONS = [
    *("good", "fine", "bad", "dull", "odd", "plain", "film", "plot"),
    *("the", "a", "n't", "so", "so-so", ",", "."),
]
