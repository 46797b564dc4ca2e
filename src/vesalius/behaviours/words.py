"""The pools of words. Order matters: item i belongs to train, validation or test by i mod 3, so only append.

More common words come first within a pool, so that all three splits have enough of them with small vocabularies.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """'France: Paris; Italy: Rome' as (country, capital) pairs."""
    pairs = (pair.split(":") for pair in text.split(";"))
    return tuple((country.strip(), capital.strip()) for country, capital in pairs)


NAMES = _words(
    """
    Mary John Tom James Sarah Michael Robert Jennifer David Linda William Patricia Richard Susan Joseph Karen Charles
    Nancy Daniel Lisa Anna Mark Paul Emily Andrew George Alice Peter Jane Kevin Laura Brian Emma Jason Julia Ryan Kate
    Eric Helen Adam Rachel Steven Maria Scott Ruth Simon Rose Edward Henry Claire Frank Amy Martin Jessica Stephen
    Rebecca Jack Elizabeth Patrick Victoria Alex Sophie Ben Lucy Sam Martha Luke Diana Oliver Barbara Arthur Catherine
    Philip Dorothy Anthony Margaret Albert Charlotte Louis Hannah Roger Alexander Samuel Jonathan Matthew Thomas
    Christopher Nicholas Benjamin Jacob Gary Greg Ian Joe Kim Jim Bob Dan Tim Mike Steve Chris Tony Fred Carl Joan
    Marie Ann Ellen Amanda Kelly Bill Bruce Craig Donald Douglas Gordon Howard Keith Kenneth Larry Leonard Neil Oscar
    Ralph Raymond Ronald Walter Wayne Harry Harold Eva Ella Clara Olivia
    """
)

PLACES = _words(
    """
    store park school office restaurant library garden station market hospital museum beach church theater airport
    bakery farm hotel kitchen bank gym cafe harbor castle village zoo studio warehouse workshop factory
    """
)

OBJECTS = _words(
    """
    drink book ball letter ring key pen watch guitar computer bottle snack picture camera coat hat ticket map basket
    flower bag phone blanket lamp knife shirt coin gift box card
    """
)

PARAMETERS = _words(
    """
    size name data file path type value index label key files state mode shape config user option limit count weight
    depth result target source token color scale rate offset flag items width height length level order group table
    column row field format text word line page title image video point node edge graph tree list array matrix vector
    model layer batch step time date year month day hour start stop end first last total mean score rank price cost
    tax fee account bank client server host port address city country region event task job queue stack message error
    warning reason status code version test sample seed noise signal
    """
)
FUNCTIONS = _words(
    """
    load read open send make find move save run call draw add build parse write check sort merge split join copy clear
    close print fetch update create delete filter select
    """
)

DESCRIPTIONS = _words(
    """
    crime river garden summer music winter island history kitchen animal village forest letter teacher police mountain
    weather ocean market window castle bridge engine doctor farmer planet desert valley harbor temple soldier artist
    flower candle mirror bottle silver copper marble dinner coffee sugar butter cotton leather paper
    """
)
PERIODS = _words(
    """
    war siege reign project trial expedition voyage dynasty conflict campaign drought mission rebellion alliance
    occupation famine partnership journey construction plague dispute strike tour investigation exhibition feud survey
    blockade regime treaty
    """
)

CENTURIES = ("17", "16", "18", "15", "14", "13", "12", "11", "19")

CAPITALS = _pairs(
    """
    France: Paris; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Germany: Berlin; Austria: Vienna; Poland: Warsaw;
    Russia: Moscow; Greece: Athens; Egypt: Cairo; Japan: Tokyo; China: Beijing; Iran: Tehran; Iraq: Baghdad; Syria:
    Damascus; Cuba: Havana; Peru: Lima; Chile: Santiago; Canada: Ottawa; Australia: Canberra; Ireland: Dublin;
    Scotland: Edinburgh; England: London; Wales: Cardiff; Norway: Oslo; Sweden: Stockholm; Finland: Helsinki; Denmark:
    Copenhagen; Belgium: Brussels; Hungary: Budapest; Bulgaria: Sofia; Switzerland: Bern; Kenya: Nairobi; Afghanistan:
    Kabul; Tunisia: Tunis; Jamaica: Kingston; the Netherlands: Amsterdam; the Philippines: Manila; the Czech Republic:
    Prague; South Korea: Seoul; New Zealand: Wellington; Northern Ireland: Belfast; Sierra Leone: Freetown; Guyana:
    Georgetown; Turkey: Ankara; Lebanon: Beirut; Jordan: Amman; Romania: Bucharest; Serbia: Belgrade; Croatia: Zagreb;
    Ukraine: Kyiv; Ghana: Accra; Thailand: Bangkok; Vietnam: Hanoi; Pakistan: Islamabad; Bangladesh: Dhaka; Nepal:
    Kathmandu; Taiwan: Taipei; North Korea: Pyongyang; Venezuela: Caracas; Ecuador: Quito; Uruguay: Montevideo; Saudi
    Arabia: Riyadh; Qatar: Doha; Libya: Tripoli; Algeria: Algiers; Morocco: Rabat; Sudan: Khartoum; Senegal: Dakar;
    Nigeria: Abuja; Uganda: Kampala; Zimbabwe: Harare; Zambia: Lusaka; Somalia: Mogadishu; Iceland: Reykjavik; Latvia:
    Riga; Estonia: Tallinn; Lithuania: Vilnius; Belarus: Minsk; Armenia: Yerevan; Albania: Tirana; Slovakia:
    Bratislava; Slovenia: Ljubljana; Bosnia: Sarajevo; Cyprus: Nicosia; Rwanda: Kigali; Angola: Luanda; the Bahamas:
    Nassau; Nicaragua: Managua; Azerbaijan: Baku; Uzbekistan: Tashkent; Liberia: Monrovia
    """
)

DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("January February March April May June July August September October November December")
NUMBERS = _words(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
    """
)
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
