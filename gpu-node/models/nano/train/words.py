"""Words that the generated tasks are made of."""

NAMES = """Ada Alice Amos Anna Arthur Basil Bella Ben Bertha Boris Clara Conrad Daisy David Dora Edgar Edith Ella Emma Ethan
Fanny Felix Flora Frank George Greta Hannah Harry Hector Helen Henry Hugo Ida Iris Ivan Jack Jane Jasper Jenny John Julia
Karl Kate Laura Leo Lily Linda Louis Lucy Mabel Maggie Marcus Martha Mary Max May Mina Molly Nancy Ned Nell Nina Noah Nora
Olga Oliver Oscar Otto Paul Peter Philip Polly Rachel Ralph Robert Rosa Rose Ruth Sally Sam Sarah Simon Sophie Stella Susan
Theo Thomas Tilda Tom Vera Victor Viola Walter Wendy Will""".split()

ANIMALS = """badger bear beaver cat cow crow deer dog donkey duck eagle fox frog goat goose hare hawk hedgehog hen horse lamb
lion mole monkey mouse otter owl parrot pig pony rabbit rat raven robin seal sheep snail spider squirrel swan tiger toad
turtle whale wolf""".split()

THINGS = """apple arrow barrel basket bell blanket boat book boot bottle bowl box bread brick broom brush bucket button cake
candle cap carpet chain chair chest clock cloak coat coin cup desk doll door drum egg fan feather flag flute fork garden gate
glass glove hammer hat helmet horn jar kettle key kite knife ladder lamp lantern letter lock map mirror nail necklace needle
net oven paper pear pen pencil pillow pipe plate plum pot purse ring rope saddle scarf shell shield ship shirt shoe shovel
spoon stick stone stool sword table tent thimble ticket towel tower trumpet umbrella vase violin wagon wheel whistle window
""".split()

COLOURS = "amber black blue brown copper crimson golden green grey ivory orange pink purple red scarlet silver white yellow".split()
ADJECTIVES = """ancient bright broken busy calm clever cold cosy crooked dark deep dusty empty fancy fast fresh gentle great
happy heavy hidden hollow honest hungry kind lazy little lonely lost loud lucky merry modest narrow noisy old pale plain polite
poor proud quick quiet rich round royal rusty sharp shiny silent simple sleepy slow small smooth soft strange strong sweet
tall tame tidy tiny warm wet wide wild wise young""".split()
PLACES = """attic barn bridge castle cave cellar chapel church cottage farm field forest fountain garden harbour hill hotel
house inn island kitchen lake library market meadow mill mountain museum orchard palace park river school shop shore stable
station street theatre tower tunnel valley village well wood""".split()
CITIES = """Berlin Boston Cairo Delhi Dublin Geneva Lima Lisbon London Madrid Milan Moscow Nairobi Oslo Paris Prague Rome Seoul
Sydney Tokyo Toronto Vienna Warsaw Zurich""".split()
TRADES = """baker barber butcher captain carpenter clerk cook doctor farmer fisher gardener hunter judge king knight miller
miner nurse painter pilot poet porter potter prince queen sailor shepherd singer smith soldier tailor teacher weaver""".split()
PLURALS = """apples books bottles buttons cakes candles coins cups eggs feathers flowers keys letters marbles nuts oranges pears
pencils plums shells stamps stones tickets toys""".split()
VERBS = "add book call check clear close count create delete edit fetch find get list lock make move open order play print read remove rename save send set show start stop sync turn update".split()
NOUNS = "account alarm album call card device door event file folder item lamp letter light list map meeting message note order page photo plan report room route sensor song stock table task ticket timer trip user value".split()
PARAMETERS = "amount area city code color count date day depth email floor group id key label level limit mode month name number path place price query rate reason size speed state status subject target title topic type unit user value weight width year".split()

SORTABLE = sorted(set(ANIMALS + THINGS + ADJECTIVES + PLACES + TRADES + COLOURS))
