"""Where a document takes place: its opening, and sentences that depend on nothing before them.

Neutral sentences say neither "it" of a thing nor "you". Those that name nobody (`impersonal`) can
also stand between a cue and the sentence that needs it: nobody does anything in them that "she
did" could mean.
"""

from dataclasses import dataclass

from data_prep.discourse_corpus.grammar import Line
from data_prep.discourse_corpus.lines import lines


def impersonal(table: list[Line]) -> list[Line]:
    """The lines of a table that name nobody."""
    return [line for line in table if "{A" not in line.en and "{B" not in line.en]


@dataclass(frozen=True)
class Scene:
    """Openings, neutral sentences, and the classes of nouns that belong to a place."""

    openings: list[Line]
    neutral: list[Line]
    nouns: tuple[str, ...]


SCENES = [
    Scene(  # at home
        lines("""
            {t}, {A} and {B} were at home.
            {t} {A} и {B} были дома.
            {A} came home late {t}.
            {t} {A} поздно {A:пришёл|пришла} домой.
            {A} invited {B} to dinner {t}.
            {t} {A} {A:пригласил|пригласила} {B.acc} на ужин.
        """),
        lines("""
            The children were sleeping upstairs.
            Дети спали наверху.
            {B} was cooking.
            {B} {B:готовил|готовила}.
            {A} washed the dishes.
            {A} {A:вымыл|вымыла} посуду.
            The neighbours were singing loudly.
            Соседи громко пели.
            {A} lit the candles.
            {A} {A:зажёг|зажгла} свечи.
            {B} watered the flowers.
            {B} {B:полил|полила} цветы.
            All the windows were open.
            Все окна были открыты.
        """),
        ("furniture", "thing", "clothes", "food"),
    ),
    Scene(  # at work
        lines("""
            {t}, {A} and {B} came to work early.
            {t} {A} и {B} рано пришли на работу.
            {A} has been working with {B} for three years.
            {A} работает с {B.ins} уже три года.
            {t}, there was a long meeting.
            {t} было долгое совещание.
        """),
        lines("""
            The telephones were ringing all day.
            Телефоны звонили весь день.
            {B} was preparing the documents.
            {B} {B:готовил|готовила} документы.
            Everyone was very busy.
            Все были очень заняты.
            The secretary brought the papers.
            Секретарь принёс бумаги.
            Two colleagues were on holiday.
            Двое коллег были в отпуске.
            {A} answered the questions.
            {A} {A:ответил|ответила} на вопросы.
            All the colleagues knew each other well.
            Все коллеги хорошо знали друг друга.
        """),
        ("text", "thing", "furniture"),
    ),
    Scene(  # shopping
        lines("""
            {t}, {A} and {B} went shopping.
            {t} {A} и {B} пошли за покупками.
            {A} needed to buy presents.
            {A.dat} нужно было купить подарки.
            {t}, {A} met {B} in the shopping centre.
            {t} {A} {A:встретил|встретила} {B.acc} в торговом центре.
        """),
        lines("""
            There were seven people in the queue.
            В очереди было семь человек.
            There were many people everywhere.
            Везде было много людей.
            The prices were very high.
            Цены были очень высокими.
            {B} was counting the coins.
            {B} {B:считал|считала} монеты.
            The sellers were shouting loudly.
            Продавцы громко кричали.
            {A} did not have much time.
            У {A.gen} было мало времени.
            {B} chose three apples.
            {B} {B:выбрал|выбрала} три яблока.
            {A} bought five oranges.
            {A} {A:купил|купила} пять апельсинов.
        """),
        ("food", "clothes", "thing", "furniture"),
    ),
    Scene(  # travelling
        lines("""
            {t}, {A} and {B} went on a trip.
            {t} {A} и {B} отправились в путешествие.
            {A} and {B} travelled by train.
            {A} и {B} ехали на поезде.
            {t}, {A} arrived in London.
            {t} {A} {A:приехал|приехала} в Лондон.
        """),
        lines("""
            The passengers were drinking tea.
            Пассажиры пили чай.
            {B} slept all the way.
            {B} {B:спал|спала} всю дорогу.
            The mountains were beautiful.
            Горы были красивыми.
            {A} was looking at the clouds.
            {A} {A:смотрел|смотрела} на облака.
            {A} was travelling with two friends.
            {A} {A:путешествовал|путешествовала} с двумя друзьями.
            The tourists were taking photographs.
            Туристы фотографировали.
            {B} had never been abroad before.
            {B} раньше никогда не {B:был|была} за границей.
        """),
        ("place", "thing", "text", "animal"),
    ),
    Scene(  # at school
        lines("""
            {t}, {A} and {B} were at school.
            {t} {A} и {B} были в школе.
            {A} teaches history.
            {A} преподаёт историю.
            {t}, the pupils were writing a test.
            {t} ученики писали контрольную.
        """),
        lines("""
            The pupils were listening carefully.
            Ученики внимательно слушали.
            The lessons end at two o'clock.
            Уроки заканчиваются в два часа.
            {B} knew all the answers.
            {B} {B:знал|знала} все ответы.
            The boys were playing football outside.
            Мальчики играли во дворе в футбол.
            The girls were whispering.
            Девочки шептались.
            {A} always got the best marks.
            {A} всегда {A:получал|получала} лучшие оценки.
            The holidays begin in two weeks.
            Каникулы начинаются через две недели.
        """),
        ("text", "thing", "clothes"),
    ),
    Scene(  # in hospital
        lines("""
            {t}, {A} was taken to hospital.
            {t} {A.acc} отвезли в больницу.
            {A} visited {B} in hospital {t}.
            {t} {A} {A:навестил|навестила} {B.acc} в больнице.
            {A} has been ill for a week.
            {A} болеет уже неделю.
        """),
        lines("""
            The nurses were very kind.
            Медсёстры были очень добрыми.
            {A} felt much better.
            {A} {A:чувствовал|чувствовала} себя намного лучше.
            The patients were asleep.
            Пациенты спали.
            {B} was very worried.
            {B} очень {B:волновался|волновалась}.
            The results will be ready in two days.
            Результаты будут готовы через два дня.
            {A} took the tablets.
            {A} {A:принял|приняла} таблетки.
            Visitors came every day.
            Посетители приходили каждый день.
        """),
        ("text", "thing", "food"),
    ),
    Scene(  # eating out
        lines("""
            {t}, {A} and {B} had dinner in town.
            {t} {A} и {B} ужинали в городе.
            {A} was celebrating a birthday {t}.
            {t} {A} {A:праздновал|праздновала} день рождения.
            {B} invited {A} to a restaurant {t}.
            {t} {B} {B:пригласил|пригласила} {A.acc} в ресторан.
        """),
        lines("""
            The waiters were in a hurry.
            Официанты спешили.
            The guests were singing.
            Гости пели.
            {A} was not hungry.
            {A} не {A:был голоден|была голодна}.
            {B} paid for everyone.
            {B} {B:заплатил|заплатила} за всех.
            All the tables were occupied.
            Все столики были заняты.
            The musicians were playing quietly.
            Музыканты тихо играли.
            {B} ordered two salads.
            {B} {B:заказал|заказала} два салата.
        """),
        ("food", "thing", "clothes"),
    ),
    Scene(  # at the theatre
        lines("""
            {t}, {A} and {B} went to the theatre.
            {t} {A} и {B} ходили в театр.
            {A} often goes to concerts.
            {A} часто ходит на концерты.
            {t}, {A} met {B} at a concert.
            {t} {A} {A:встретил|встретила} {B.acc} на концерте.
        """),
        lines("""
            The audience applauded for a long time.
            Зрители долго аплодировали.
            The actors were very talented.
            Актёры были очень талантливыми.
            {B} was sitting in the first row.
            {B} {B:сидел|сидела} в первом ряду.
            The lights went out.
            Огни погасли.
            {A} could hardly hear the singers.
            {A} с трудом {A:слышал|слышала} певцов.
            The tickets were sold out.
            Все билеты были проданы.
        """),
        ("clothes", "text", "thing", "place"),
    ),
    Scene(  # outdoors
        lines("""
            {t}, {A} and {B} went for a walk.
            {t} {A} и {B} пошли гулять.
            {A} and {B} were sitting in the park.
            {A} и {B} сидели в парке.
            {t}, {A} got lost in the forest.
            {t} {A} {A:заблудился|заблудилась} в лесу.
        """),
        lines("""
            The birds were singing.
            Птицы пели.
            The trees were already green.
            Деревья уже были зелёными.
            {A} was a little cold.
            {A.dat} было немного холодно.
            The children were running about.
            Дети бегали вокруг.
            {B} picked some flowers.
            {B} {B:собрал|собрала} цветы.
            The stars were shining brightly.
            Звёзды ярко светили.
            {A} saw four ducks.
            {A} {A:увидел|увидела} четырёх уток.
        """),
        ("animal", "place", "thing", "clothes"),
    ),
    Scene(  # in the country
        lines("""
            {t}, {A} and {B} went to the country.
            {t} {A} и {B} поехали за город.
            {A} grew up in the country.
            {A} {A:вырос|выросла} в деревне.
            {A} helps {B} on the farm.
            {A} помогает {B.dat} на ферме.
        """),
        lines("""
            The farmers were working in the fields.
            Фермеры работали на полях.
            {A} got up at five o'clock.
            {A} {A:встал|встала} в пять часов.
            The hens were walking in the yard.
            Куры ходили по двору.
            {B} was picking mushrooms.
            {B} {B:собирал|собирала} грибы.
            The apples were already ripe.
            Яблоки уже созрели.
            {A} was feeding the hens.
            {A} {A:кормил|кормила} кур.
        """),
        ("animal", "food", "furniture", "place"),
    ),
]

ANYWHERE = lines("""
    {A} smiled.
    {A} {A:улыбнулся|улыбнулась}.
    {B} laughed.
    {B} {B:засмеялся|засмеялась}.
    {B} was silent.
    {B} {B:молчал|молчала}.
    {A} sighed.
    {A} {A:вздохнул|вздохнула}.
    {A} was in a good mood.
    {A} {A:был|была} в хорошем настроении.
    {B} was tired.
    {B} {B:устал|устала}.
    {A} and {B} looked at each other.
    {A} и {B} посмотрели друг на друга.
    Outside, snowflakes were falling.
    На улице падали снежинки.
    Raindrops were beating on the windows.
    Капли дождя стучали в окна.
    Clouds were moving across the sky.
    По небу плыли облака.
    Somewhere far away, dogs were barking.
    Где-то далеко лаяли собаки.
    Nobody said anything.
    Никто ничего не сказал.
    Everyone was happy.
    Все были счастливы.
    There was plenty of time.
    Времени было много.
    {B} thought for a moment.
    {B} на минуту {B:задумался|задумалась}.
    {A} was thirty years old.
    {A.dat} было тридцать лет.
    {B} turned forty last year.
    В прошлом году {B.dat} исполнилось сорок лет.
    {A} and {B} have known each other since childhood.
    {A} и {B} знают друг друга с детства.
    {A} has two brothers.
    У {A.gen} два брата.
    {B} has three sisters.
    У {B.gen} три сестры.
    {A} and {B} needed a rest.
    {A.dat} и {B.dat} нужно было отдохнуть.
    {A} was right.
    {A} {A:был прав|была права}.
    {B} was surprised.
    {B} {B:удивился|удивилась}.
    {A} looked around.
    {A} {A:огляделся|огляделась} по сторонам.
    {B} agreed.
    {B} {B:согласился|согласилась}.
    A few minutes passed.
    Прошло несколько минут.
    Everyone was waiting patiently.
    Все терпеливо ждали.
    Somebody was laughing loudly.
    Кто-то громко смеялся.
    The streets were almost deserted.
    Улицы были почти безлюдны.
    There were only three days left until the holidays.
    До праздников оставалось всего три дня.
    Life goes on.
    Жизнь продолжается.
    {A} was not in a hurry.
    {A} никуда не {A:спешил|спешила}.
    {B} came a little later.
    {B} {B:пришёл|пришла} немного позже.
    Half an hour passed.
    Прошло полчаса.
    Two hours passed.
    Прошло два часа.
""")

SPOKEN = lines("""
    That is a good question.
    Это хороший вопрос.
    One moment.
    Одну минуту.
    I must think.
    Мне нужно подумать.
    Everyone is waiting.
    Все ждут.
    Today is Tuesday.
    Сегодня вторник.
    Today is Friday.
    Сегодня пятница.
    I am very tired today.
    У меня сегодня совсем нет сил.
    I have been living here for ten years.
    Я живу здесь уже десять лет.
    I have a little time.
    У меня есть немного времени.
    We must hurry.
    Надо спешить.
    {A} is at work now.
    {A} сейчас на работе.
    {B} is ill.
    {B} болеет.
    {B} is coming {f}.
    {B} придёт {f}.
    {A} and {B} are moving to London next month.
    В следующем месяце {A} и {B} переезжают в Лондон.
    {A} and {B} are waiting outside.
    {A} и {B} ждут на улице.
    I do not know.
    Я не знаю.
    Everything is all right.
    Всё в порядке.
    There is nothing to be done.
    Ничего не поделаешь.
    Thank God!
    Слава богу!
    Time flies.
    Время летит.
    What a surprise!
    Какой сюрприз!
    I will be at home {f}.
    {f} я буду дома.
    {B} always comes late.
    {B} всегда опаздывает.
    {A} lives in another city.
    {A} живёт в другом городе.
    I am listening carefully.
    Я внимательно слушаю.
    My parents are arriving {f}.
    {f} приезжают мои родители.
    My brother is a student.
    Мой брат учится в университете.
    My parents live in Moscow.
    Мои родители живут в Москве.
""")
