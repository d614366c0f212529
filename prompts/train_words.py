"""Word lists for build_train.py, written for this project (semicolon- or line-separated)."""


def _items(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", " ").split(";") if part.strip()]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


TOPICS = _items("""
photosynthesis; black holes; plate tectonics; the water cycle; DNA replication; natural selection; vaccines;
antibiotic resistance; the greenhouse effect; ocean tides; the speed of light; gravity; superconductors; entropy;
the periodic table; acids and bases; electric motors; semiconductors; nuclear fusion; radioactive decay; comets;
the rings of Saturn; eclipses; the northern lights; earthquakes; volcanoes; coral reefs; rainforests; permafrost;
migration of birds; honey bees; octopus intelligence; the human immune system; sleep cycles; the liver; memory;
the placebo effect; colour vision; fermentation; crystals; magnetism; sound waves; lightning; glaciers; deserts;
the Roman Republic; the Silk Road; the printing press; the Black Death; the French Revolution; the Cold War;
the Industrial Revolution; ancient Egypt; the Ottoman Empire; the Renaissance; the Meiji Restoration; Viking trade;
the fall of the Berlin Wall; the space race; the suffragette movement; the Inca road system; the Magna Carta;
the Great Depression; the Hanseatic League; the Congress of Vienna; the history of tea; the history of zero;
the history of chess; the invention of the telephone; the Rosetta Stone; the Bronze Age; medieval guilds;
inflation; compound interest; index funds; mortgages; credit scores; supply and demand; exchange rates; tariffs;
unemployment insurance; central banks; bonds; recessions; opportunity cost; progressive taxation; pensions;
venture capital; cooperatives; microloans; budget deficits; auctions; monopolies; insurance deductibles;
machine learning; neural networks; encryption; the internet's domain name system; cloud computing; databases;
blockchains; search engines; recommendation systems; GPS; 3D printing; solar panels; wind turbines; heat pumps;
lithium batteries; self-driving cars; barcodes; touch screens; fibre optics; satellites; noise-cancelling headphones;
open-source software; version control; spam filters; speech recognition; quantum computers; robotics; e-readers;
jazz; impressionist painting; haiku; Greek tragedy; opera; calligraphy; film noir; folk tales; gothic architecture;
origami; street art; stand-up comedy; ballet; flamenco; science fiction; detective novels; the Odyssey; satire;
the rules of cricket; marathon running; rock climbing; fencing; the Olympic Games; sumo wrestling; yoga; cycling;
vitamin D; protein; dehydration; high blood pressure; type 2 diabetes; migraines; seasonal allergies; asthma;
stress; meditation; posture; intermittent fasting; caffeine; sugar substitutes; gut bacteria; eyesight; dental care;
first aid for burns; anxiety; grief; procrastination; friendship; body language; confirmation bias; empathy;
bilingualism; sign language; the origin of alphabets; slang; the passive voice; metaphors; punctuation; accents;
democracy; federalism; the United Nations; human rights; copyright; jury duty; privacy law; trade unions; lobbying;
census taking; urban planning; public transport; recycling; composting; food waste; biodiversity; wetlands; whales;
wolves; penguins; bats; mushrooms; orchids; ferns; bamboo; sourdough; chocolate; olive oil; coffee roasting; cheese;
probability; prime numbers; fractions; the Pythagorean theorem; standard deviation; logarithms; vectors; matrices;
game theory; fractals; binary numbers; the golden ratio; statistics in sports; sampling bias; optical illusions;
time zones; leap years; map projections; the equator; river deltas; monsoons; islands; mountain ranges; canals
""")

TASKS = _items("""
learn to play the guitar; remove a red wine stain; prepare for a job interview; train a puppy; grow tomatoes
on a balcony; save for a house deposit; write a cover letter; change a bicycle tyre; read more books; quit smoking;
ask for a pay rise; pack for a two-week trip; cook rice properly; sharpen a kitchen knife; organise a small closet;
study for a chemistry exam; make friends in a new city; run a first half marathon; plan a surprise birthday party;
give a wedding toast; negotiate a lower rent; start a podcast; learn Spanish in a year; stop biting nails;
set up a home office; reduce screen time; choose a laptop for college; fix a dripping tap; paint a bedroom;
file a tax return on time; host a board game night; care for a cactus; overcome stage fright; write a resignation
letter; bake bread without a machine; recover from jet lag; teach a child to swim; start a vegetable garden;
deal with a noisy neighbour; take better phone photos; manage a difficult coworker; lower an electricity bill;
prepare a house for winter; build a morning routine; return a faulty product; adopt an older cat; memorise a speech;
write a short poem; declutter a garage; choose running shoes; meditate for beginners; meal prep for a family of four;
plan a camping weekend; sell old furniture online; pick a health insurance plan; improve handwriting; learn touch
typing; split bills with housemates; care for a houseplant while away; volunteer at an animal shelter; keep a diary;
clean a cast iron pan; move abroad with children; give honest feedback; study with a part-time job; restart a hobby;
start a small bakery; prepare for a power cut; treat a sprained ankle; plan a school science fair; sew on a button;
talk to a teenager about money; write a complaint letter; stay awake on a night shift; cope with homesickness;
organise a charity run; descale a kettle; choose a first telescope; brew cold coffee; iron a shirt; fly with a baby
""")

PAIRS = _items("""
cats | dogs; renting | buying a home; coffee | tea; trains | planes; novels | short stories; Python | JavaScript;
Python | Rust; electric cars | petrol cars; city life | country life; bar charts | pie charts; mitosis | meiosis;
alligators | crocodiles; weather | climate; viruses | bacteria; debit cards | credit cards; stocks | bonds;
running | swimming; gas stoves | induction stoves; tablets | laptops; e-books | paper books; working from home |
working in an office; the Roman Empire | the Han dynasty; Mars | Venus; Buddhism | Stoicism; butter | margarine;
comedies | tragedies; guitars | violins; SQL databases | document databases; public schools | private schools;
tortoises | turtles; speed | velocity; mass | weight; jam | marmalade; moths | butterflies; compilers | interpreters;
freelancing | full-time work; hiking | cycling holidays; frost | snow; copper | aluminium; asteroids | meteors;
lists | tuples in Python; TCP | UDP; Linux | Windows; baking soda | baking powder; poetry | song lyrics;
nuclear power | solar power; moving abroad | staying near family; saving | paying off debt; wool | cotton;
rugby | American football; lakes | reservoirs; empathy | sympathy; maps | satellite photos; bread flour | cake flour;
astronomy | astrology; hostels | hotels; mediation | arbitration; the heart | the lungs; podcasts | radio
""")

PLACES = _items("""
Lisbon; Kyoto; Nairobi; Buenos Aires; Reykjavik; Hanoi; Marrakesh; Montreal; Edinburgh; Istanbul; Cape Town; Oslo;
Mexico City; Prague; Singapore; Dublin; Lima; Athens; Cairo; Melbourne; Krakow; Naples; Seville; Vancouver; Tbilisi;
Seoul; Jaipur; Havana; Copenhagen; Accra; Chicago; New Orleans; Santiago; Helsinki; Zagreb; Amsterdam; Quito;
Wellington; Dakar; Bruges; Ljubljana; Osaka; Porto; Riga; Tallinn; Valencia; Glasgow; Bergen; Hobart; Kathmandu
""")
COUNTRIES = _items("""
Portugal; Japan; Kenya; Argentina; Iceland; Vietnam; Morocco; Canada; Scotland; Turkey; South Africa; Norway; Mexico;
Poland; Ireland; Peru; Greece; Egypt; Australia; Italy; Spain; Georgia; Korea; India; Cuba; Denmark; Ghana; Chile;
Finland; Croatia; Nepal; Ecuador; New Zealand; Senegal; Belgium; Slovenia; Latvia; Estonia; Bolivia; Mongolia
""")
DISHES = _items("""
lentil soup; chicken curry; mushroom risotto; banana bread; vegetable lasagne; fish tacos; pancakes; potato salad;
beef stew; pad thai; apple pie; falafel; ramen; shakshuka; pumpkin soup; fried rice; oatmeal cookies; ratatouille;
chilli without meat; stuffed peppers; quiche; gnocchi; roast cauliflower; dumplings; paella; hummus; carrot cake;
onion tart; tomato sauce; granola; spring rolls; cornbread; omelette; bean burritos; rice pudding; borscht;
pesto pasta; meatballs; coleslaw; garlic bread; peanut noodles; baked salmon; scones; chickpea stew; lemon tart
""")
JOBS = _items("""
nurse; lighthouse keeper; carpenter; detective; librarian; pilot; baker; beekeeper; astronaut; tailor; geologist;
bus driver; violinist; clockmaker; gardener; chef; teacher; postal worker; surgeon; fisherman; translator; farmer;
photographer; firefighter; museum guard; plumber; architect; park ranger; chess champion; retired sailor; blacksmith;
travel agent; doctor; tour guide; bookseller; locksmith; mechanic; puppeteer; cartographer; weather forecaster
""")
EVENTS = _items("""
finds a letter addressed to someone else; misses the last train home; discovers a locked door in the cellar;
adopts a stray dog; has to tell the truth for one day; wakes up in the wrong century; loses a treasured ring;
inherits a boat; befriends a crow; enters a cooking contest; gets stuck in an elevator; receives a strange map;
hears music from an empty house; plants a seed that grows overnight; swaps places with a neighbour;
writes to a pen pal for twenty years; crosses a desert alone; repairs an old radio; saves a village library;
forgets an important name; meets a talking fox; races against a storm; finds a city under the ice; gets a second
chance; keeps a secret too long; wins a prize by mistake; returns to a childhood home; builds a bridge by hand;
follows a trail of paper boats; is snowed in with strangers; learns to dance at seventy; paints the same tree daily
""")
SUBJECTS = _items("""
moving tomorrow's meeting to Thursday; a late delivery; a request for two days off; a broken heating system;
thanking a mentor; declining a party invitation; asking for a deadline extension; a missing invoice; a team lunch;
a new recycling policy; a lost suitcase; feedback on a report draft; introducing a new colleague; a refund request;
confirming a dentist appointment; a school trip; a parking problem; joining a running club; an apology for a mistake;
a job application follow-up; a change of address; a noisy construction site; a library fine; renewing a lease;
a birthday dinner; a cancelled flight; a product question; an overdue library book; volunteering at a food bank;
a sick day; a summer internship; a book club meeting; a software outage; a price quote; a training course
""")
TONES = _items("""
friendly; formal; short and polite; cheerful; apologetic; direct; warm; professional; humorous; calm; persuasive
""")
AUDIENCES = _items("""
a ten-year-old; a high school student; a complete beginner; my grandmother; a busy manager; a curious teenager;
someone who hates jargon; a university student; a new employee; a tourist; a primary school class; an engineer
""")
LENGTHS = _items("""
in one paragraph; in two or three sentences; in about 100 words; as a short list; in five bullet points;
step by step; with one example; in simple words; in detail; with a short summary at the end; in under 150 words
""")
SYSTEMS = _items("""
You are a helpful assistant.; You are a patient teacher who explains things simply.; Answer in at most three
sentences.; You are a friendly travel guide.; You are a careful editor. Keep the writer's voice.; You are a
concise assistant. Avoid filler.; You are an expert programmer who writes clean, commented code.; You answer with
bullet points whenever possible.; You are a cheerful cooking coach.; You are a history professor.; You always give
one concrete example.; You are a customer support agent for a small online shop.; You write in British English.
""")
PEOPLE = _items("""
Ana Silva; Tom Becker; Mei Lin; Omar Haddad; Grace Otieno; Lucas Martin; Priya Nair; Ivan Petrov; Sofia Rossi;
Jack Murphy; Yuki Tanaka; Elena Popescu; Samuel Adeyemi; Nora Lindqvist; Diego Ramos; Hannah Weiss; Farid Rahimi;
Chloe Dubois; Ben Carter; Zoe Papadakis; Kofi Mensah; Laila Aziz; Peter Novak; Ruth Cohen; Marta Kowalska
""")
ADJ = _items("""
red; quiet; golden; hidden; northern; broken; silver; early; wild; little; bright; salted; wooden; second; green;
paper; winter; distant; copper; gentle; hollow; electric; plain; royal; morning
""")
NOUN = _items("""
river; lantern; garden; compass; harbour; window; orchard; engine; mirror; bridge; kettle; forest; signal; feather;
market; anchor; meadow; pencil; tower; blanket; island; basket; whistle; comet; cabin
""")

# name(args) -> result | what it does
FUNCTIONS = _lines("""
slugify(title: str) -> str | turns a title into a lowercase URL slug
is_palindrome(text: str) -> bool | checks whether a string reads the same backwards, ignoring case and punctuation
count_vowels(text: str) -> int | counts the vowels in a string
reverse_words(sentence: str) -> str | reverses the order of the words in a sentence
caesar_cipher(text: str, shift: int) -> str | shifts each letter by a fixed number of places
run_length_encode(text: str) -> str | compresses repeated characters into counts
word_frequencies(text: str) -> dict[str, int] | counts how often each word occurs
longest_word(sentence: str) -> str | returns the longest word of a sentence
is_anagram(a: str, b: str) -> bool | tells whether two words are anagrams
title_case(text: str) -> str | capitalises the main words of a heading
snake_to_camel(name: str) -> str | converts snake_case to camelCase
camel_to_snake(name: str) -> str | converts camelCase to snake_case
strip_html(html: str) -> str | removes all tags from an HTML string
extract_emails(text: str) -> list[str] | finds every email address in a text
extract_hashtags(text: str) -> list[str] | lists the hashtags in a message
mask_card_number(number: str) -> str | hides all but the last four digits
truncate(text: str, limit: int) -> str | shortens a text at a word boundary and adds dots
wrap_lines(text: str, width: int) -> list[str] | wraps a paragraph to a maximum width
common_prefix(words: list[str]) -> str | finds the longest prefix shared by all words
levenshtein(a: str, b: str) -> int | computes the edit distance between two strings
hamming_distance(a: str, b: str) -> int | counts the positions at which two strings differ
to_roman(number: int) -> str | writes a number as a Roman numeral
from_roman(numeral: str) -> int | reads a Roman numeral
number_to_words(number: int) -> str | spells out a number below one thousand
is_prime(n: int) -> bool | checks whether a number is prime
sieve(limit: int) -> list[int] | lists all primes up to a limit
prime_factors(n: int) -> list[int] | returns the prime factors in ascending order
gcd(a: int, b: int) -> int | computes the greatest common divisor
lcm(a: int, b: int) -> int | computes the least common multiple
fibonacci(n: int) -> int | returns the n-th Fibonacci number
factorial(n: int) -> int | computes n factorial without recursion
collatz_steps(n: int) -> int | counts the Collatz steps needed to reach one
digit_sum(n: int) -> int | adds the digits of an integer
is_perfect(n: int) -> bool | checks whether a number equals the sum of its divisors
power_mod(base: int, exponent: int, modulus: int) -> int | does modular exponentiation
square_root(x: float) -> float | approximates a square root with Newton's method
binomial(n: int, k: int) -> int | computes a binomial coefficient
pascal_row(n: int) -> list[int] | returns one row of Pascal's triangle
to_binary(n: int) -> str | converts an integer to a binary string
from_hex(text: str) -> int | parses a hexadecimal number by hand
is_leap_year(year: int) -> bool | tells whether a year is a leap year
days_between(start: str, end: str) -> int | counts the days between two ISO dates
age_in_years(birthday: str, today: str) -> int | computes an age from a date of birth
weekday_name(date: str) -> str | returns the day of the week of a date
format_duration(seconds: int) -> str | formats seconds as hours, minutes and seconds
parse_duration(text: str) -> int | parses text such as 1h20m into seconds
celsius_to_fahrenheit(c: float) -> float | converts a temperature
miles_to_km(miles: float) -> float | converts a distance
bmi(weight: float, height: float) -> float | computes the body mass index
compound_interest(amount: float, rate: float, years: int) -> float | grows a deposit year by year
monthly_payment(loan: float, rate: float, months: int) -> float | computes the payment of a loan
split_bill(total: float, people: int, tip: float) -> float | divides a restaurant bill with a tip
apply_discount(price: float, percent: float) -> float | reduces a price and rounds to cents
mean(values: list[float]) -> float | averages a list
median(values: list[float]) -> float | finds the middle value
mode(values: list[int]) -> int | finds the most common value
variance(values: list[float]) -> float | computes the sample variance
moving_average(values: list[float], window: int) -> list[float] | smooths a series
normalise(values: list[float]) -> list[float] | scales values to the range zero to one
cumulative_sum(values: list[float]) -> list[float] | returns the running totals
dot_product(a: list[float], b: list[float]) -> float | multiplies two vectors
cosine_similarity(a: list[float], b: list[float]) -> float | measures the angle between vectors
transpose(matrix: list[list[int]]) -> list[list[int]] | swaps rows and columns
matrix_multiply(a: list[list[float]], b: list[list[float]]) -> list[list[float]] | multiplies two matrices
rotate_matrix(grid: list[list[int]]) -> list[list[int]] | turns a square grid by ninety degrees
spiral_order(grid: list[list[int]]) -> list[int] | reads a grid in spiral order
flatten(nested: list) -> list | flattens lists of any depth
chunk(items: list, size: int) -> list[list] | splits a list into pieces of equal size
unique(items: list) -> list | removes duplicates and keeps the order
group_by_length(words: list[str]) -> dict[int, list[str]] | groups words by their length
partition(items: list[int], pivot: int) -> tuple[list[int], list[int]] | separates small from large values
rotate_list(items: list, k: int) -> list | rotates a list to the right
interleave(a: list, b: list) -> list | merges two lists alternately
intersection(a: list, b: list) -> list | returns the elements found in both lists
second_largest(values: list[int]) -> int | finds the second largest distinct value
two_sum(values: list[int], target: int) -> tuple[int, int] | finds two indices whose values add up to a target
max_subarray(values: list[int]) -> int | finds the largest sum of a contiguous slice
missing_number(values: list[int]) -> int | finds the missing number of a range
majority_element(values: list[int]) -> int | finds the value that fills more than half of a list
merge_sorted(a: list[int], b: list[int]) -> list[int] | merges two sorted lists
merge_intervals(spans: list[tuple[int, int]]) -> list[tuple[int, int]] | joins overlapping intervals
binary_search(values: list[int], target: int) -> int | finds an index in a sorted list
bubble_sort(values: list[int]) -> list[int] | sorts by swapping neighbours
insertion_sort(values: list[int]) -> list[int] | sorts by inserting each element
quick_sort(values: list[int]) -> list[int] | sorts recursively around a pivot
merge_sort(values: list[int]) -> list[int] | sorts by halving and merging
counting_sort(values: list[int], top: int) -> list[int] | sorts small integers by counting
heap_push(heap: list[int], value: int) -> None | inserts a value into a binary heap
kth_smallest(values: list[int], k: int) -> int | selects the k-th smallest value
permutations(items: list) -> list[list] | lists all orderings
combinations(items: list, k: int) -> list[list] | lists all subsets of size k
power_set(items: list) -> list[list] | lists all subsets
coin_change(coins: list[int], amount: int) -> int | finds the fewest coins for an amount
knapsack(weights: list[int], values: list[int], capacity: int) -> int | solves the 0/1 knapsack problem
longest_common_subsequence(a: str, b: str) -> str | finds the longest common subsequence
longest_increasing(values: list[int]) -> int | measures the longest increasing subsequence
climb_stairs(n: int) -> int | counts the ways to climb n steps one or two at a time
unique_paths(rows: int, cols: int) -> int | counts the paths through a grid
balanced_brackets(text: str) -> bool | checks that all brackets match
evaluate_rpn(tokens: list[str]) -> float | evaluates reverse Polish notation
infix_to_postfix(expression: str) -> str | converts an arithmetic expression
breadth_first(graph: dict, start: str) -> list[str] | visits a graph level by level
depth_first(graph: dict, start: str) -> list[str] | visits a graph branch by branch
shortest_path(graph: dict, start: str, goal: str) -> list[str] | finds the path with the fewest edges
dijkstra(graph: dict, start: str) -> dict[str, float] | finds the cheapest distances
topological_sort(graph: dict) -> list[str] | orders tasks by their dependencies
has_cycle(graph: dict) -> bool | detects a cycle in a directed graph
count_islands(grid: list[list[int]]) -> int | counts connected groups of land
flood_fill(grid: list[list[int]], row: int, col: int, colour: int) -> None | recolours a region
tree_height(root: Node) -> int | measures the height of a binary tree
invert_tree(root: Node) -> Node | mirrors a binary tree
in_order(root: Node) -> list[int] | walks a binary search tree in order
insert_node(root: Node, value: int) -> Node | inserts into a binary search tree
reverse_list(head: Node) -> Node | reverses a linked list
middle_node(head: Node) -> Node | finds the middle of a linked list
has_loop(head: Node) -> bool | detects a loop in a linked list
read_csv(path: str) -> list[dict] | loads a CSV file into dictionaries
write_csv(path: str, rows: list[dict]) -> None | saves dictionaries as CSV
load_config(path: str) -> dict | reads a JSON configuration with defaults
merge_dicts(a: dict, b: dict) -> dict | merges nested dictionaries
flatten_dict(data: dict, sep: str) -> dict | flattens nested keys
invert_dict(data: dict) -> dict | swaps keys and values
get_path(data: dict, path: str) -> object | looks up a dotted path in nested dictionaries
count_lines(path: str) -> int | counts the non-empty lines of a file
find_files(folder: str, suffix: str) -> list[str] | lists files with a given ending
largest_files(folder: str, count: int) -> list[str] | finds the biggest files
file_checksum(path: str) -> str | hashes a file in blocks
tail(path: str, count: int) -> list[str] | returns the last lines of a file
parse_log_line(line: str) -> dict | splits a log line into time, level and message
parse_query(query: str) -> dict[str, str] | parses a URL query string
build_url(base: str, params: dict) -> str | builds a URL with encoded parameters
validate_password(password: str) -> bool | checks length, digits and symbols
random_password(length: int) -> str | makes a random password
is_valid_ip(address: str) -> bool | validates an IPv4 address
is_valid_isbn(code: str) -> bool | checks an ISBN-10 checksum
luhn_check(number: str) -> bool | verifies a card number with the Luhn algorithm
rgb_to_hex(r: int, g: int, b: int) -> str | formats a colour
hex_to_rgb(code: str) -> tuple[int, int, int] | parses a colour
haversine(lat1: float, lon1: float, lat2: float, lon2: float) -> float | measures distance on a sphere
point_in_rectangle(x: float, y: float, box: tuple) -> bool | tests whether a point is inside
polygon_area(points: list[tuple[float, float]]) -> float | computes the area of a polygon
triangle_type(a: float, b: float, c: float) -> str | names a triangle by its sides
tic_tac_toe_winner(board: list[str]) -> str | finds the winner of a board
game_of_life(cells: list[list[int]]) -> list[list[int]] | advances the Game of Life by one step
roll_dice(count: int, sides: int) -> list[int] | simulates dice
shuffle_deck(seed: int) -> list[str] | returns a shuffled pack of cards
score_hand(cards: list[str]) -> int | scores a blackjack hand
is_valid_sudoku(board: list[list[int]]) -> bool | checks rows, columns and boxes
retry(action: Callable, attempts: int) -> object | calls a function again after an error
memoize(function: Callable) -> Callable | caches results by argument
debounce(function: Callable, delay: float) -> Callable | delays repeated calls
rate_limit(calls: list[float], limit: int, window: float) -> bool | decides whether one more call is allowed
paginate(items: list, page: int, size: int) -> list | returns one page of results
""")

# record: field=type ...  (types are read by value() in build_train.py)
SCHEMAS = _lines("""
book: title=title author=person year=int,1900,2024 pages=int,80,900 genre=fantasy/history/science/crime
customer: id=id name=person email=email city=city active=bool
order: id=id customer=person item=thing quantity=int,1,20 price=money shipped=bool
employee: name=person role=job salary=int,28000,120000 start_date=date remote=bool
recipe: name=dish servings=int,1,8 minutes=int,10,180 vegetarian=bool difficulty=easy/medium/hard
flight: number=code origin=city destination=city departure=time gate=int,1,60 delayed=bool
hotel: name=title city=city stars=int,1,5 price_per_night=money breakfast=bool
movie: title=title director=person year=int,1950,2024 rating=score genre=drama/comedy/thriller/animation
song: title=title artist=person album=title seconds=int,120,420 explicit=bool
student: id=id name=person grade=int,1,12 average=score subject=maths/biology/art/music
course: code=code title=topic teacher=person credits=int,1,12 room=int,100,399
invoice: number=code client=person issued=date due=date total=money paid=bool
product: sku=code name=thing category=kitchen/garden/office/toys price=money stock=int,0,500
review: product=thing author=person stars=int,1,5 date=date verified=bool
event: name=title city=city date=date start=time capacity=int,20,900
ticket: id=id reporter=person priority=low/medium/high/urgent status=open/closed/waiting created=date
server: host=word ip=ip cpu_cores=int,1,64 memory_gb=int,2,256 region=north/south/east/west
sensor: id=code location=kitchen/attic/garage/roof temperature=score humidity=int,10,99 battery=int,1,100
weather: city=city date=date high=int,5,40 low=int,-15,4 condition=sunny/rain/cloudy/snow
city: name=city country=country population=int,20000,9000000 elevation=int,0,3600
country: name=country capital=city area_km2=int,1000,900000 currency=word
patient: id=id name=person age=int,1,95 blood_type=A/B/AB/O admitted=date
appointment: patient=person doctor=person date=date time=time reason=checkup/vaccine/x-ray/advice
medicine: name=word dose_mg=int,5,800 times_per_day=int,1,4 with_food=bool
pet: name=word species=cat/dog/rabbit/parrot age=int,1,18 owner=person vaccinated=bool
plant: name=word light=low/medium/bright water_days=int,1,21 height_cm=int,5,220 toxic=bool
car: plate=code maker=word year=int,1990,2024 mileage=int,500,240000 fuel=petrol/diesel/electric/hybrid
bicycle: model=title gears=int,1,27 weight_kg=score colour=colour price=money
house: address=street rooms=int,1,9 area_m2=int,25,320 rent=money garden=bool
job_posting: title=job company=title city=city salary=int,25000,130000 remote=bool
bank_account: iban=code owner=person balance=money currency=EUR/USD/GBP/JPY opened=date
transaction: id=id payer=person payee=person amount=money date=date
expense: date=date category=food/travel/rent/books amount=money note=thing
budget: month=month income=money rent=money food=money savings=money
task: title=chore assignee=person due=date done=bool estimate_hours=int,1,40
project: name=title owner=person start=date budget=int,1000,90000 status=planned/active/paused
meeting: topic=topic organiser=person date=date time=time minutes=int,15,120
contact: name=person phone=phone email=email city=city
shop: name=title street=street city=city opens=time closes=time
restaurant: name=title cuisine=country rating=score seats=int,10,140 dish=dish
menu_item: dish=dish price=money calories=int,90,1200 spicy=bool
team: name=title city=city wins=int,0,30 losses=int,0,30 coach=person
player: name=person team=title goals=int,0,40 number=int,1,99 injured=bool
match: home=city away=city home_goals=int,0,6 away_goals=int,0,6 date=date
workout: date=date exercise=squats/rowing/running/swimming minutes=int,10,120 calories=int,80,900
planet: name=word moons=int,0,80 radius_km=int,1200,70000 rings=bool
element: symbol=code name=word atomic_number=int,1,118 state=solid/liquid/gas
museum: name=title city=city founded=int,1750,2015 free=bool visitors=int,9000,900000
painting: title=title artist=person year=int,1500,2020 technique=oil/watercolour/fresco
language: name=word speakers=int,2000,90000000 family=word country=country
package: tracking=code sender=person receiver=person weight_kg=score delivered=bool
train: number=code origin=city destination=city departs=time platform=int,1,24
user: username=word email=email joined=date admin=bool posts=int,0,4000
comment: id=id author=person text=opinion likes=int,0,900
article: title=topic author=person published=date words=int,300,4000 section=science/culture/sports
survey_answer: id=id age=int,16,90 city=city score=int,1,10 comment=opinion
subscription: user=word plan=free/basic/team/pro price=money renews=date auto_renew=bool
device: name=thing serial=code room=office/hall/lab/studio warranty_until=date working=bool
experiment: id=id seed=int,0,999 learning_rate=rate epochs=int,1,50 accuracy=score
log_entry: time=time level=DEBUG/INFO/WARNING/ERROR service=word message=opinion
parcel_locker: code=code street=street slots=int,4,60 free_slots=int,0,4
library_loan: book=title member=person borrowed=date due=date renewed=bool
vote: district=word candidate=person votes=int,100,90000 date=date
crop: name=word field=int,1,40 planted=date hectares=score irrigated=bool
""")

THINGS = _items("""
desk lamp; water bottle; notebook; umbrella; backpack; kettle; headphones; wall clock; garden hose; chess set;
yoga mat; toaster; keyboard; picture frame; tent; bread knife; bicycle pump; scarf; rice cooker; puzzle; drill;
camera strap; coffee grinder; window blind; board game; phone stand; first aid kit; wooden spoon; rain jacket; globe
""")
OPINIONS = _items("""
arrived a day early and works well; the second page would not load; please send the file again; very happy with it;
connection timed out after a retry; it was smaller than I expected; the staff were kind and patient; too loud at night;
cache rebuilt without errors; would order again next month; instructions were hard to follow; disk nearly full;
the colour is nicer in daylight; could be cheaper; user signed in from a new device; nothing to complain about
""")
WORDS = _items("""
maple; orion; cedar; falcon; nimbus; delta; quartz; willow; ember; pixel; tundra; saffron; zephyr; cobalt; juniper;
raven; lotus; basil; cosmo; pepper; luna; atlas; indigo; velvet; onyx; thistle; coral; mango; sierra; dune
""")
