"""The story grammar's plots: what can happen, sentence by sentence.

Rules that every template keeps, so that skills can be measured on the text alone:

* he, him, his, she and her always mean the person who was named last;
* "an" stands before a vowel letter, "a" before any other letter;
* sentences are in the past tense, apart from speech;
* no sentence has a full stop, exclamation or question mark but its last character;
* "the" stands before a toy or an animal only after the story has introduced it.
"""

from llmcourse.data.corpus.grammar import Grammar
from llmcourse.data.corpus.story_lexicon import CLASSES, VARIABLES

# Beats that several plots share.
_OPENING = (
    "One day {hero} went to {place.goal}.",
    "On {day} {hero} was {place}.",
    "It was {weather.a} day, and {hero} was {place}.",
    "Once there was a {hero.child} named {hero}.",
)
_TOY = (
    "{hero.he} had {color.a} {toy} and loved it.",
    "{hero.he} played with {look.a} {toy}.",
    "{hero.his} best toy was {color.a} {toy}.",
)
_BREAK = ("", "Then they sat down and ate some {food}.")
_TOGETHER = (
    "They played {game} and went home.",
    "From that day they were best friends.",
    "{hero} and {friend} ran home to {adult}.",
    "It was a good day for {hero} and {friend}.",
)
_ALONE = (
    "That night {hero} slept very well.",
    "{hero} went home and ate some {food}.",
    "It was the best day ever for {hero}.",
)

_LOST = (
    _OPENING,
    _TOY,
    (
        "But soon {hero.he} could not find the {toy}.",
        "But then the {toy} was lost.",
        "Then the wind took the {toy} away.",
    ),
    ("{hero} was {upset} and began to cry.", "{hero} looked {wrong_spot}, but it was not there."),
    (
        "{friend} came to help.",
        "{hero} asked {friend} for help.",
        "{friend} saw it and wanted to help.",
    ),
    ("{friend} found the {toy} {spot}.", "Then {friend.he} saw the {toy} {spot}."),
    (
        '"Thank you so much," said {hero}.',
        "{hero} was {glad} and thanked {friend}.",
        "{hero} was {glad} and gave {friend} a hug.",
    ),
    _BREAK,
    _TOGETHER,
)
_GIVE_AWAY = (
    _OPENING,
    (
        "{hero.he} had {less.start} {treat}.",
        "{hero.he} found {less.start} {treat}.",
        "{hero.he} had {less.start} {treat} in {hero.his} bag.",
    ),
    (
        "{friend} had no {treat} and was {upset}.",
        "{friend} saw the {treat} and wanted some too.",
        "Then {friend} came and asked for some {treat}.",
    ),
    (
        "{hero} gave {less.change} of them to {friend}.",
        "So {hero} gave {friend} {less.change} of the {treat}.",
    ),
    (
        '"You are so kind," said {friend}.',
        "{friend} was {glad} and thanked {hero}.",
        "{friend} was {glad} and gave {hero} a hug.",
    ),
    (
        "Now {hero} had {less.result} {treat} left.",
        "There were {less.result} {treat} left for {hero}.",
    ),
    _BREAK,
    _TOGETHER,
)
_GET_MORE = (
    _OPENING,
    (
        "{hero.he} had {more.start} {treat}.",
        "{hero.he} found {more.start} {treat}.",
        "{hero.he} wanted to count {hero.his} {more.start} {treat}.",
    ),
    (
        "Then {adult} came and gave {hero} {more.change} more.",
        "{hero} looked {spot} and found {more.change} more.",
        "Then {hero} saw {more.change} more {spot}.",
    ),
    (
        "",
        "{hero} put them all {wrong_spot}.",
        "{hero.he} began to count them.",
    ),
    ("Now {hero} had {more.result} {treat} in all.", "There were {more.result} {treat} in all."),
    (
        "{hero} was {glad} and began to {skill}.",
        '"Look at my {treat}," said {hero}.',
        "{hero} was {glad} and asked {adult} to look.",
    ),
    _ALONE,
)
_ANIMAL = (
    _OPENING,
    (
        "{hero.he} saw {look.a} {animal} {spot}.",
        "{hero.he} met {color.a} {animal}.",
        "There was {look.a} {animal} {spot}.",
    ),
    (
        "The {animal} was {upset} and very hungry.",
        "The {animal} was lost and {upset}.",
        "The {animal} was hurt and could not {skill}.",
    ),
    ("{hero} gave the {animal} some {food}.", "{hero} {move} home to get some {food}."),
    (
        "The {animal} ate the {food} and felt better.",
        "Soon the {animal} was {glad}.",
        "Soon the {animal} began to {skill}.",
    ),
    (
        "",
        '"You can stay with me," said {hero}.',
        "{adult} said that the {animal} could stay.",
    ),
    (
        "{hero} and the {animal} were best friends.",
        "That night the {animal} slept next to {hero}.",
        "{hero} was {glad} and named the {animal} {pet}.",
    ),
)
_SHARE = (
    _OPENING,
    _TOY,
    (
        "{friend} wanted to play with the {toy} too.",
        "{friend} came and took the {toy}.",
        '"Please give me the {toy}," said {friend}.',
    ),
    ('"No, it is my {toy}," said {hero}.', "{hero} did not want to share the {toy}."),
    ("{friend} was {upset} and {move} away.", "{friend} sat {spot} and began to cry."),
    (
        "{adult} asked {hero} to be kind.",
        '"Good friends share," said {adult}.',
        "{adult} saw it and asked {hero} to share.",
    ),
    ("{hero} was sorry and gave {friend} the {toy}.", "So {hero} gave the {toy} to {friend}."),
    (
        "",
        "{friend} was {glad} and thanked {hero}.",
        "Then they played with the {toy} all day.",
    ),
    _TOGETHER,
)
_BAKE = (
    ("On {day} {hero} was very hungry.", "It was {weather.a} day, and {hero} was at home."),
    (
        '"Let us make some {food}," said {adult}.',
        "{adult} asked {hero} to make some {food}.",
        "{hero} wanted to make some {food} with {adult}.",
    ),
    (
        "They put some {ingredient} in {look.a} bowl.",
        "{hero} took {look.a} bowl and some {ingredient}.",
        "{adult} gave {hero} some {ingredient} and a spoon.",
    ),
    ("", "But then {hero} could not find the spoon.", "{adult} helped {hero} all the time."),
    ("Soon the {food} was done.", "Now the {food} was hot and very good."),
    (
        "{friend} came and ate some {food} too.",
        "{hero} gave some of the {food} to {friend}.",
        "They ate the {food} with {friend}.",
    ),
    (
        '"I like your {food}," said {friend}.',
        "{friend} was {glad} and thanked {hero}.",
        "",
    ),
    _TOGETHER,
)
_FIX = (
    _OPENING,
    _TOY,
    (
        "But the {toy} fell down and broke.",
        "{friend} sat on the {toy}, and it broke.",
        "Then the wind took the {toy}, and it broke.",
    ),
    (
        "{hero} was {upset} and went to {adult}.",
        "{hero} took the {toy} to {adult}.",
        "{hero} asked {adult} for help.",
    ),
    ('"I can fix it," said {adult}.', "{adult} looked at the {toy} for a long time."),
    ("Then {adult} used some {tool} to fix it.", "{adult} put some {tool} on the {toy}."),
    ("Soon the {toy} was as good as new.", "Now the {toy} was even better."),
    (
        '"Thank you so much," said {hero}.',
        "{hero} was {glad} and thanked {adult}.",
        "{hero} was {glad} and gave {adult} a hug.",
    ),
    _ALONE,
)
_GIFT = (
    (
        "On {day} {hero} had a birthday.",
        "It was the birthday of {hero}.",
        "One {time} {hero} had a birthday.",
    ),
    ("{friend} came and gave {hero} {color.a} box.", "{friend} had {look.a} box for {hero}."),
    (
        "{hero} wanted to open it.",
        "{friend} asked {hero} to open it.",
        "",
    ),
    ("There was {toy.a} in the box.", "{hero} looked in the box and saw {toy.a}."),
    (
        '"I like your {toy}," said {adult}.',
        "{hero} was {glad} and thanked {friend}.",
        "{hero} loved the {toy} very much.",
    ),
    ("{hero} and {friend} played with the {toy} all day.", "Then {adult} came with some {food}."),
    _TOGETHER,
)
_NOISE = (
    ("One {time} {hero} was in bed.", "On {day} {hero} could not sleep."),
    ("{hero.he} heard {noise.a} noise {spot}.", "There was {noise.a} noise {spot}."),
    ("{hero} was {upset} and asked {adult} for help.", '"Please help me," said {hero}.'),
    ("{adult} came with a light.", "{adult} came and looked {spot}."),
    ("There was {look.a} {animal} {spot}.", "Then they saw {look.a} {animal}."),
    (
        "{hero} gave the {animal} some {food}.",
        "The {animal} was lost and {upset}.",
        "The {animal} {move} away.",
    ),
    (
        "",
        '"You can sleep now," said {adult}.',
        "{hero} was {glad} and named the {animal} {pet}.",
    ),
    _ALONE,
)

STORY_GRAMMAR = Grammar(
    classes=CLASSES,
    variables=VARIABLES,
    plots=(_LOST, _GIVE_AWAY, _GET_MORE, _ANIMAL, _SHARE, _BAKE, _FIX, _GIFT, _NOISE),
)
"""The grammar of `stories`: nine plots."""
