"""The relations that FIND lists (its Table A2) by name: what goes in, what comes out, and the two parts of its domain
where each is undefined. Names are facts, told in our words; the published prompts, inputs and tests are not here.

A fact table of ours answers some of them. A language model can answer all: for those that no table covers, `INPUTS` has
things to ask about, so that unit tests can be made of what the model itself replies.
"""

#: Input, output, and the two exceptions of each relation, in the order of the table.
LISTED: tuple[tuple[str, str, str, str], ...] = (
    ("a country", "the capital of that country", "the country is in Asia", "the country is in South America"),
    ("a city", "the country where that city is located", "the city is in Mexico", "the city is in the United States"),
    (
        "a head of state",
        "the country of which that person was head of state",
        "the head of state is a man",
        "the head of state is a woman",
    ),
    (
        "a monument",
        "the country where that monument is located",
        "the monument is in New York City",
        "the monument is in France",
    ),
    (
        "a monument",
        "the continent where that monument is located",
        "the monument is in South America",
        "the monument is in Australia",
    ),
    (
        "a city in the United States",
        "the state in which that city is located",
        "the city is in California",
        "the city is in Texas",
    ),
    (
        "a country",
        "the official language of that country",
        "the country is in North America",
        "the country is in South America",
    ),
    ("a well-known person", "the occupation of that person", "the person is a woman", "the person is a man"),
    (
        "the name of a person",
        "the most likely gender of that person",
        "the name begins with T",
        "the name begins with S",
    ),
    (
        "a country",
        "the continent where that country is located",
        "the country is in Asia",
        "the country is in Europe",
    ),
    ("an opera", "the composer of that opera", "the opera is in Italian", "the opera is in German"),
    (
        "the title of a book",
        "the author of that book",
        "the book was written before 1900",
        "the book was written after 1900",
    ),
    (
        "a country",
        "another country on the border of that country",
        "the country is in Africa",
        "the country is in North America",
    ),
    ("a politician", "the political party of that politician", "the politician is a man", "the politician is a woman"),
    ("a river", "the continent where that river is located", "the continent is Africa", "the continent is Europe"),
    ("a city", "the time zone of that city", "the city is in North America", "the city is in Asia"),
    ("an opera", "the language of that opera", "the opera is in English", "the opera is in Italian"),
    ("an animal", "the main food of that animal", "the animal is a carnivore", "the animal is a herbivore"),
    ("an animal", "the typical habitat of that animal", "the animal lives on land", "the animal lives in the ocean"),
    ("a gemstone", "the color of that gemstone", "the gemstone is red", "the gemstone is blue"),
    (
        "a country",
        "the colors of the flag of that country",
        "the country is in North America",
        "the country is in Asia",
    ),
    ("a river", "the length of that river in km", "the river is in North America", "the river is in Europe"),
    (
        "a country",
        "the highest elevation in that country in km",
        "the country is in South America",
        "the country is in Africa",
    ),
    (
        "a country",
        "the height in m of the tallest skyscraper in that country",
        "the country is in North America",
        "the country is in Asia",
    ),
    (
        "a country",
        "the average height in m of a man in that country",
        "the country is in Europe",
        "the country is in South America",
    ),
)

_COUNTRIES = (
    *("France", "Japan", "Brazil", "Kenya", "Canada", "India", "Spain", "Egypt", "Mexico", "Peru", "Norway", "Vietnam"),
    *("Nigeria", "Poland", "Chile", "Turkey", "Cuba", "Austria", "Thailand", "Morocco"),
)
_CITIES = (
    *("Paris", "Tokyo", "Nairobi", "Chicago", "Lima", "Cairo", "Mumbai", "Madrid", "Toronto", "Sydney", "Berlin"),
    *("Seoul", "Boston", "Lagos", "Rome", "Bangkok", "Havana", "Oslo", "Denver", "Athens"),
)
#: Things to ask about, by what goes in; inputs that our fact tables have are taken from those.
INPUTS: dict[str, tuple[str, ...]] = {
    "a country": _COUNTRIES,
    "a city": _CITIES,
    "a head of state": (
        *("Abraham Lincoln", "Charles de Gaulle", "Nelson Mandela", "Elizabeth II", "Queen Victoria"),
        *("Mikhail Gorbachev", "Catherine the Great", "Mary Robinson", "Michelle Bachelet", "Dilma Rousseff"),
        *("George Washington", "Josip Broz Tito", "Mao Zedong", "Margrethe II", "Vaclav Havel", "Corazon Aquino"),
    ),
    "a monument": (
        *("the Eiffel Tower", "the Statue of Liberty", "the Taj Mahal", "Machu Picchu", "the Colosseum"),
        *("the Great Pyramid of Giza", "the Brandenburg Gate", "the Sydney Opera House", "Christ the Redeemer"),
        *("Stonehenge", "the Empire State Building", "the Arc de Triomphe", "Mount Rushmore", "Angkor Wat", "Petra"),
    ),
    "a well-known person": (
        *("Albert Einstein", "Marie Curie", "Pablo Picasso", "Serena Williams", "Ludwig van Beethoven", "Jane Austen"),
        *("Pele", "Meryl Streep", "Charles Darwin", "Frida Kahlo", "Muhammad Ali", "Maria Callas", "Isaac Newton"),
        *("Virginia Woolf", "Neil Armstrong", "Florence Nightingale"),
    ),
    "the name of a person": (
        *("Anna", "Thomas", "Susan", "Peter", "Tina", "Samuel", "Maria", "David", "Theresa", "Sophie", "John"),
        *("Laura", "Steven", "Emily", "Tom", "Robert"),
    ),
    "a politician": (
        *("Barack Obama", "Margaret Thatcher", "Ronald Reagan", "Hillary Clinton", "Angela Merkel", "Tony Blair"),
        *("Winston Churchill", "John F. Kennedy", "Nancy Pelosi", "Helmut Kohl", "Theresa May", "Justin Trudeau"),
        *("Golda Meir", "Francois Mitterrand", "Jacinda Ardern", "Richard Nixon"),
    ),
    "a river": (
        *("the Nile", "the Amazon", "the Danube", "the Mississippi", "the Ganges", "the Rhine", "the Congo"),
        *("the Yangtze", "the Volga", "the Niger", "the Missouri", "the Mekong", "the Parana", "the Thames"),
        *("the Zambezi", "the Murray"),
    ),
    "an animal": (
        *("lion", "cow", "whale", "eagle", "shark", "horse", "wolf", "octopus", "rabbit", "penguin", "deer"),
        *("dolphin", "snake", "camel", "goat", "seal"),
    ),
    "a gemstone": (
        *("ruby", "sapphire", "emerald", "amethyst", "garnet", "topaz", "jade", "opal", "diamond", "turquoise"),
        *("lapis lazuli", "peridot", "onyx", "aquamarine", "citrine", "tanzanite"),
    ),
}
