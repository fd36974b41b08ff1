"""The topic words of the micro profile: the only words that a brief's title may have there.

The shipped model was warmed up on titles of these words. A word it has never copied would lead it to write one that
never ends, so a passage is put to it as the topics it mentions.
"""

import re
import zlib

_TEXT = (
    "acid air alloy ant arch atom bank bark beam bean bee bird blood boat bond bone book brain bread brick bridge bulb"
    " cable camp canal card cargo cave cell chain chart chess chord city clay clock cloud coal coast code comet copper"
    " coral corn court crane crop crystal current dairy dam debt deck desert disk dock dough dune dust dye eclipse egg"
    " engine ether eye fare farm fault fern ferry field fire fish flame fleet flight flood flow flute fog forest forge"
    " fossil frame frost fuel fungus fuse garden gas gate gear gene glass glacier grain granite graph grid gulf hail"
    " harbor hearing heart heat herd hill honey hook horn horse hull ice index ink iron island joint kiln knot lake"
    " lamp larva law lease leaf lens lever light lime lock loom lung lunar magnet map maple market mast meal metal mill"
    " mine mold moon moss moth motor mule muscle music nerve nest net noise note oil orbit orchard ore oven oxygen paint"
    " panel paper parcel path pearl pendulum phase piano pigment pilot pipe planet plant plate plow pollen pond port"
    " pressure price prism proof pulley pulse pump queen queue radar radio rail rain ramp reef relay rent resin rhythm"
    " ridge river robot rock roof root rope rotor route ruler rust sail salt sand scale seal seed shaft shelf shell ship"
    " signal silk silver siphon skin slope smoke snow soap soil solar sound spark spice spine spore spring star steam"
    " steel stone storm strata sugar survey switch tariff tax tea tent terrace thread tide tile timber tin tissue token"
    " tool torque tower track trade train tree trench tunnel turbine turtle vaccine valley valve vapor vein vent verb"
    " vessel vine violin virus voltage vote vowel wave wax weave weight well whale wheat wheel wind wine wing wire wood"
    " wool yeast yield zinc"
)
TOPICS = tuple(_TEXT.split())
_KNOWN = frozenset(TOPICS)


def topics_of(*texts: str, most: int = 3) -> list[str]:
    """At most `most` topic words in the order in which the texts mention them; without any, one chosen by the texts."""
    words = dict.fromkeys(re.findall(r"[a-z]+", " ".join(texts).lower()))
    singular = [word if word in _KNOWN else word.removesuffix("s") for word in words]
    found = list(dict.fromkeys(word for word in singular if word in _KNOWN))
    return found[:most] or [TOPICS[zlib.crc32(" ".join(texts).encode()) % len(TOPICS)]]
