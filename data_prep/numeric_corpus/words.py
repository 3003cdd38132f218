"""The words of the passages."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb of one kind: what its subject does to a number of people.

    kind: have, gain, lose, take (from another) or give (to another)
    """

    kind: str
    past: str
    base: str


AGENTS = (
    "commander,general,king,queen,governor,emperor,duke,admiral,captain,marshal,baron,prince"
).split(",")
NOUNS = (
    "troops,households,families,soldiers,archers,sailors,settlers,miners,farmers,masons,horsemen,"
    "merchants"
).split(",")
ATTRIBUTES = (
    "Italian,French,Spanish,Polish,Irish,Dutch,Swedish,Turkish,Persian,Russian,Native American,"
    "Portuguese"
).split(",")
PLACES = (
    "France,Spain,Poland,Ireland,Holland,Sweden,Persia,Russia,Portugal,Bohemia,Bavaria,Hungary"
).split(",")
VERBS = tuple(
    Verb(kind, *words.split("/"))
    for kind, table in {
        "have": "had/have",
        "gain": "recruited/recruit hired/hire gathered/gather enlisted/enlist raised/raise",
        "lose": "lost/lose dismissed/dismiss abandoned/abandon released/release",
        "take": "took/take captured/capture received/receive bought/buy",
        "give": "gave/give sent/send sold/sell lent/lend",
    }.items()
    for words in table.split()
)
