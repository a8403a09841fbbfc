"""The words of the world: nouns by class, adjectives, verbs and adverbs, each English word with its French.

This file has only data and the spelling rules that derive regular forms. A noun belongs to exactly one class
and a verb to exactly one group, so that every English sentence has one derivation. Left out on purpose: forms
that do not show number or tense (sheep, put), French aspirated h, colour words that never agree (marron), and
"new" as a predicate (neuf).

Notation: `english [plural] : french gender [weight | other french gender weight]`; a French feminine follows
`/`, the masculine form before a vowel follows `+`, `<` marks an adjective that precedes its noun and `=` a
verb that takes être.
"""

from functools import cache
from typing import NamedTuple

Forms = tuple[str, str, str, str]  # masculine singular, feminine singular, masculine plural, feminine plural


class Noun(NamedTuple):
    """An English noun and its French renderings, the most frequent first."""

    forms: tuple[str, str]
    french: tuple[tuple[int, str, str, bool], ...]  # weight, singular, plural, feminine


class Adjective(NamedTuple):
    """An English adjective and its four French forms."""

    english: str
    forms: Forms
    liaison: str  # the masculine singular before a vowel: vieil, bel, nouvel
    before: bool


class Verb(NamedTuple):
    """Third-person English forms (base, singular, past) and French
    (singular, plural, participle), with être or avoir."""

    english: tuple[str, str, str]
    french: tuple[str, str]
    participle: Forms
    etre: bool


NOUNS = {
    "animal": "animal:animal m, dog:chien m, cat:chat m, mouse mice:souris f, cow:vache f, horse:cheval m, bird:oiseau m, turtle:tortue f, "
    "wolf wolves:loup m, bee:abeille f, frog:grenouille f",
    "man": "man men:homme m, boy:garçon m, king:roi m, uncle:oncle m",
    "woman": "woman women:femme f, girl:fille f, queen:reine f, aunt:tante f",
    "person": "child children:enfant m, teacher:professeur m, doctor:médecin m, friend:ami m",
    "vehicle": "car:voiture f 9|auto f 1, truck:camion m, bus:bus m, bicycle:vélo m 9|bicyclette f 1, taxi:taxi m",
    "boat": "boat:bateau m, barge:péniche f",
    "road": "street:rue f, road:route f, bridge:pont m, path:chemin m, avenue:avenue f, square:place f",
    "water": "river:rivière f, lake:lac m, stream:ruisseau m, canal:canal m",
    "food": "soup:soupe f, cake:gâteau m, apple:pomme f, egg:œuf m, orange:orange f, carrot:carotte f",
    "thing": "box:boîte f, book:livre m, bag:sac m, letter:lettre f, chair:chaise f, umbrella:parapluie m, lamp:lampe f",
    "building": "house:maison f, school:école f, shop:magasin m 9|boutique f 1, hospital:hôpital m, station:gare f, church:église f, "
    "museum:musée m, castle:château m",
    "ground": "garden:jardin m, park:parc m, forest:forêt f",
    "cover": "tree:arbre m, table:table f, bench:banc m",
    "height": "hill:colline f, island:île f",
}
NAMES = {"man": "Paul:Paul m, Peter:Pierre m, Adam:Adam m", "woman": "Anna:Anna f, Mary:Marie f, Emma:Emma f"}

ADJECTIVES = (
    "small:<petit, big:<grand, old:<vieux/vieille+vieil, young:<jeune, beautiful:<beau/belle+bel, new:<nouveau/nouvelle+nouvel, "
    "black:noir, white:blanc/blanche, red:rouge, green:vert, blue:bleu, grey:gris, tired:fatigué, hungry:affamé, happy:heureux, "
    "sad:triste, sick:malade, brave:courageux, strong:fort, lazy:paresseux, nervous:nerveux, curious:curieux, scared:effrayé, "
    "poor:pauvre, rich:riche, wide:large, long:long/longue, narrow:étroit, dangerous:dangereux, busy:fréquenté, quiet:calme, "
    "safe:sûr, deep:profond, cold:froid, clean:propre, dirty:sale, hot:chaud, salty:salé, sweet:sucré, fresh:frais/fraîche, "
    "heavy:lourd, light:léger, fragile:fragile, useful:utile, slow:lent, fast:rapide, noisy:bruyant, expensive:cher, closed:fermé, "
    "open:ouvert, empty:vide, modern:moderne, muddy:boueux, steep:escarpé, wet:mouillé"
)

# The adjectives of a class: before the noun in French, after it, and as predicates.
ATTRIBUTES = {
    "animal": ("small big old young beautiful", "black white grey brave hungry"),
    "man": ("young beautiful", "happy rich sad poor"),
    "woman": ("young beautiful", "happy rich sad poor"),
    "person": ("old young", "happy curious sad"),
    "vehicle": ("new old big small", "red blue white fast"),
    "boat": ("old big small", "white blue green"),
    "road": ("old small big", "narrow quiet dirty long"),
    "water": ("small big beautiful", "blue cold deep"),
    "food": ("small beautiful", "fresh green cold"),
    "thing": ("small old new big beautiful", "black red heavy blue"),
    "building": ("old new small big beautiful", "white modern grey empty"),
    "ground": ("small big beautiful", "green quiet"),
    "cover": ("old big small", "green wet"),
    "height": ("beautiful small", "green dangerous"),
}
PREDICATES = {
    "animal": "tired hungry small old happy sick lazy black nervous curious brave white scared beautiful",
    "human": "happy tired sad young hungry old sick rich poor brave nervous curious scared strong",
    "vehicle": "fast slow red old expensive noisy heavy dirty blue",
    "boat": "slow old empty white heavy fast",
    "road": "wide long narrow busy quiet dangerous dirty empty",
    "water": "deep cold wide quiet dirty clean dangerous",
    "food": "hot cold sweet fresh salty",
    "thing": "heavy light old fragile useful red dirty",
    "building": "old closed open big empty modern beautiful quiet",
    "ground": "green quiet small beautiful wide wet",
    "cover": "old big green wet",
    "height": "steep green dangerous beautiful",
}
BANKS = {"money": "closed open rich modern expensive", "river": "muddy steep wet green dangerous"}

VERBS = {
    "see": "see saw:voit voient vu, watch:regarder, find found:trouver",
    "hear": "hear heard:entend entendent entendu, follow:suit suivent suivi, love:aimer, chase:poursuit poursuivent poursuivi",
    "eat": "eat ate:manger, taste:goûter, steal stole:voler",
    "carry": "carry:porter, push:pousser, pull:tirer, hide hid:cacher",
    "cross": "cross:traverser",
    "reach": "reach:atteint atteignent atteint, leave left:quitter",
    "buy": "buy bought:achète achètent acheté",
    "repair": "sell sold:vend vendent vendu, clean:nettoie nettoient nettoyé, repair:réparer",
    "give": "give gave:donner, show:montrer, send sent:envoie envoient envoyé",
    "sleep": "sleep slept:dort dorment dormi, run ran:court courent couru, walk:marcher, play:jouer, stay:=rester, fall fell:=tomber",
    "work": "work:travailler, wait:attend attendent attendu",
    "go": "go went:=va vont allé, return:=retourner",
    "arrive": "arrive:=arriver",
    "turn": "turn:tourner, vanish:disparaît disparaissent disparu",
    "open": "open:ouvre ouvrent ouvert, close:fermer",
    "borrow": "borrow:emprunter",
    "deposit": "deposit:déposer",
    "lend": "lend lent:prêter",
}
ADVERBS = {  # weight, French
    "quickly": ((9, "rapidement"), (1, "vite")),
    "slowly": ((1, "lentement"),),
    "outside": ((1, "dehors"),),
    "here": ((1, "ici"),),
    "today": ((1, "aujourd'hui"),),
}

ABSOLUTE = "closed open black white red green blue"  # adjectives that do not combine with very and too


class Frame(NamedTuple):
    """An event caused by a property of its subject or of its object:
    adjectives of both for "didn't … too", and for "did … very"."""

    verbs: str
    subjects: str
    objects: str
    weight: int
    negative: tuple[str, str]
    positive: tuple[str, str]


# In a frame the adjectives of the subject and of the object are disjoint: only they tell which of the two a
# pronoun refers to.
WEARY, BOLD = "tired scared sick lazy nervous", "brave curious"
FRAMES = (
    Frame(
        "cross", "animal human", "road", 8, (WEARY, "wide long dangerous busy"), (BOLD, "empty safe narrow")
    ),
    Frame(
        "cross", "animal human", "water", 6, (WEARY, "wide deep cold dangerous"), (BOLD, "clean safe narrow")
    ),
    Frame(
        "cross",
        "vehicle",
        "road",
        4,
        ("heavy slow old", "narrow dangerous busy muddy"),
        ("fast light", "wide safe"),
    ),
    Frame(
        "cross", "boat", "water", 2, ("heavy slow old", "narrow dangerous muddy"), ("fast light", "wide deep")
    ),
    Frame(
        "eat",
        "animal human",
        "food",
        5,
        ("tired sick sad nervous", "hot cold salty sweet"),
        ("hungry curious", "fresh hot sweet"),
    ),
    Frame(
        "carry",
        "animal human",
        "thing",
        4,
        ("tired sick lazy", "heavy big fragile"),
        ("strong brave", "light small useful"),
    ),
    Frame(
        "buy",
        "human",
        "vehicle thing",
        3,
        ("poor sad nervous", "expensive heavy fragile"),
        ("rich happy", "safe light useful"),
    ),
)


@cache
def vowel(word: str) -> bool:
    """Returns whether a French word of this lexicon begins with
    a vowel sound, so that le, de, ne and que elide before it."""
    return word[0].lower() in "aeiouàâéèêîôûœh"  # every h of this lexicon is mute


def article_an(word: str) -> bool:
    """Returns whether an English word of this lexicon takes "an"."""
    return word[:1].lower() in {"a", "e", "i", "o", "u"} and word != "useful"


def entries(text: str) -> list[tuple[list[str], str]]:
    """Splits a table into its comma-separated entries: the English forms, and the French as written."""
    pairs = (entry.strip().split(":") for entry in text.split(","))
    return [(english.split(), french) for english, french in pairs]


def nouns(text: str) -> list[Noun]:
    """Parses a table of nouns."""
    parsed = []
    for english, french in entries(text):
        plural = english[1] if len(english) > 1 else third_person(english[0])
        options = []
        for option in french.split("|"):
            word, gender, *weight = option.split()
            options.append((int(weight[0]) if weight else 1, word, french_plural(word), gender == "f"))
        parsed.append(Noun((english[0], plural), tuple(options)))
    return parsed


def adjectives() -> dict[str, Adjective]:
    """Returns every adjective by its English word."""
    parsed = {}
    for (english,), french in entries(ADJECTIVES):
        word, _, liaison = french.lstrip("<").partition("+")
        masculine, _, feminine = word.partition("/")
        forms = agreeing(masculine, feminine)
        parsed[english] = Adjective(english, forms, liaison or masculine, french.startswith("<"))
    return parsed


def verbs(text: str) -> list[Verb]:
    """Parses a table of verbs."""
    parsed = []
    for english, french in entries(text):
        base = english[0]
        past = english[1] if len(english) > 1 else third_person(base).removesuffix("s").rstrip("e") + "ed"
        words = french.lstrip("=").split()
        if len(words) == 1:  # a regular -er verb is given by its infinitive
            stem = words[0][:-2]
            words = [stem + "e", stem + "ent", stem + "é"]
        singular, plural, participle = words
        forms = (base, third_person(base), past)
        parsed.append(Verb(forms, (singular, plural), agreeing(participle, ""), french.startswith("=")))
    return parsed


def third_person(word: str) -> str:
    """Adds the English -s of a plural noun or of a verb."""
    if word.endswith(("s", "x", "ch", "sh", "go")):
        return word + "es"
    return word[:-1] + "ies" if word[-1] == "y" and word[-2] not in "aeou" else word + "s"


def french_plural(word: str) -> str:
    """Returns the plural of a French noun or masculine adjective."""
    if word.endswith(("s", "x")):
        return word
    if word.endswith("eau"):
        return word + "x"
    return word[:-1] + "ux" if word.endswith("al") else word + "s"


def agreeing(masculine: str, feminine: str) -> Forms:
    """Returns the four forms of an adjective or participle; an empty feminine is derived by the rules."""
    if not feminine:
        if masculine.endswith("eux"):
            feminine = masculine[:-1] + "se"
        elif masculine.endswith("er"):
            feminine = masculine[:-2] + "ère"
        else:
            feminine = masculine if masculine.endswith("e") else masculine + "e"
    return masculine, feminine, french_plural(masculine), feminine + "s"
