"""The words as tables, one word a row, because that is how one proof-reads them."""

# English, Russian nominative, gender; then any of: * (endings stressed), a stem that has lost its
# vowel, 0 (indeclinable), mass (no English article), and for p the genitive and the dative.
NOUNS = {
    "thing": """
        knife нож m *
        umbrella зонт m *
        phone телефон m
        key ключ m *
        torch фонарь m *
        backpack рюкзак m *
        suitcase чемодан m
        wallet кошелёк m кошельк
        ball мяч m *
        camera фотоаппарат m
        kettle чайник m
        laptop ноутбук m
        whistle свисток m свистк
        bag сумка f
        lamp лампа f
        map карта f
        pen ручка f
        bottle бутылка f
        toy игрушка f
        basket корзина f
        guitar гитара f
        violin скрипка f
        doll кукла f
        vase ваза f
        candle свеча f *
        coin монета f
        ring кольцо n
        blanket одеяло n
        towel полотенце n
        bucket ведро n
        necklace ожерелье n
        radio радио n 0
        case футляр m
        watch часы p часов часам
        chess_set шахматы p шахмат шахматам
        perfume духи p духов духам mass
        sledge сани p саней саням
    """,
    "text": """
        magazine журнал m
        dictionary словарь m *
        ticket билет m
        passport паспорт m
        notebook блокнот m
        textbook учебник m
        plan план m
        report отчёт m
        book книга f
        newspaper газета f
        postcard открытка f
        note записка f
        article статья f *
        poster афиша f
        letter письмо n
        invitation приглашение n
        announcement объявление n
        poem стихотворение n
        timetable расписание n
        message сообщение n
    """,
    "clothes": """
        scarf шарф m
        sweater свитер m
        suit костюм m
        tie галстук m
        raincoat плащ m *
        belt ремень m * ремн
        hat шляпа f
        shirt рубашка f
        skirt юбка f
        blouse блузка f
        uniform форма f
        fur_coat шуба f
        coat пальто n 0
        dress платье n
        kimono кимоно n 0
    """,
    "food": """
        soup суп m mass
        bread хлеб m mass
        cheese сыр m mass
        tea чай m mass
        juice сок m mass
        cake торт m
        salad салат m
        rice рис m mass
        honey мёд m mass
        pie пирог m *
        chocolate шоколад m mass
        fish рыба f mass
        porridge каша f mass
        sausage колбаса f * mass
        pizza пицца f
        soda газировка f mass
        caviar икра f * mass
        milk молоко n mass
        butter масло n mass
        meat мясо n mass
        wine вино n mass
        apple яблоко n
        jam варенье n mass
        biscuit печенье n
        cream сливки p сливок сливкам mass
        pasta макароны p макарон макаронам mass
    """,
    "furniture": """
        table стол m *
        chair стул m
        wardrobe шкаф m
        fridge холодильник m
        carpet ковёр m * ковр
        television телевизор m
        bed кровать f
        shelf полка f
        picture картина f
        bench скамейка f
        stove плита f *
        bookcase этажерка f
        armchair кресло n
        mirror зеркало n
        piano пианино n 0
        clock часы p часов часам
        swing качели p качелей качелям
    """,
    "place": """
        house дом m
        museum музей m
        park парк m
        theatre театр m
        bank банк m
        market рынок m рынк
        bridge мост m
        garden сад m
        city город m
        factory завод m
        restaurant ресторан m
        school школа f
        hospital больница f
        pharmacy аптека f
        library библиотека f
        church церковь f церкв
        street улица f
        square площадь f
        village деревня f
        tower башня f
        cafe кафе n 0
        building здание n
        lake озеро n
        field поле n
        cemetery кладбище n
        embassy посольство n
    """,
    "animal": """
        parrot попугай m
        rabbit кролик m
        puppy щенок m щенк *
        kitten котёнок m котёнк
        bear медведь m
        wolf волк m
        elephant слон m *
        donkey осёл m * осл
        horse лошадь f
        cow корова f
        goat коза f *
        bird птица f
        mouse мышь f
        fox лиса f *
        squirrel белка f
        monkey обезьяна f
    """,
}

# English, Russian, gender: one rendering each. Cases by the regular declensions.
PEOPLE = """
    Anna Анна f
    Olga Ольга f
    Vera Вера f
    Nina Нина f
    Marina Марина f
    Sonya Соня f
    Tanya Таня f
    Polina Полина f
    Irina Ирина f
    Larisa Лариса f
    Ivan Иван m
    Boris Борис m
    Igor Игорь m
    Oleg Олег m
    Denis Денис m
    Anton Антон m
    Viktor Виктор m
    Sergei Сергей m
    Vadim Вадим m
    Maxim Максим m
"""

# English, gender, the Russian rendering, the foreign one (0: indeclinable).
NAMES = """
    Julia f Юлия Джулия
    Helen f Елена Хелен0
    Catherine f Екатерина Кэтрин0
    Mary f Мария Мэри0
    Susanna f Сусанна Сюзанна
    Martha f Марфа Марта
    Michael m Михаил Майкл
    Paul m Павел/Павл Пол
    George m Георгий Джордж
    Peter m Пётр/Петр Питер
    Eugene m Евгений Юджин
    Andrew m Андрей Эндрю0
    Nicholas m Николай Николас
    Daniel m Даниил Дэниел
"""

# English, masculine and feminine in Russian.
RUSSIAN_SURNAMES = (
    ("Petrov", "Петров"),
    ("Ivanov", "Иванов"),
    ("Sokolov", "Соколов"),
    ("Orlov", "Орлов"),
    ("Lebedev", "Лебедев"),
)
FOREIGN_SURNAMES = (
    ("Brown", "Браун"),
    ("Smith", "Смит"),
    ("Taylor", "Тейлор"),
    ("Wilson", "Уилсон"),
    ("Clark", "Кларк"),
)

# English, then two legitimate renderings with their genders (and stems, stress, plural forms).
SYNONYMS = {
    "place": """
        hotel | гостиница f | отель m
        shop | магазин m | лавка f
        flat | квартира f | апартаменты p апартаментов апартаментам
        path | тропинка f | дорожка f
    """,
    "thing": """
        car | машина f | автомобиль m
        ship | корабль m * | судно n
        plane | самолёт m | авиалайнер m
        couch | диван m | софа f *
        jacket | куртка f | пиджак m *
        cup | чашка f | кружка f
        film | фильм m | кино n 0
        story | рассказ m | история f
        photo | снимок m снимк | фотография f
    """,
    "animal": """
        cat | кот m * | кошка f
        dog | пёс m * пс | собака f
        pony | пони m 0 | лошадка f
    """,
    "person": """
        doctor | врач m * | доктор m
        teacher | учитель m | преподаватель m
        boss | начальник m | шеф m
        friend | друг m | приятель m
    """,
}

# base, past, infinitive, masculine past, third person future; classes of objects it goes with.
VERBS = {
    "thing": """
        find found найти нашёл найдёт
        buy bought купить купил купит
        lose lost потерять потерял потеряет
        bring brought принести принёс принесёт
        forget forgot забыть забыл забудет
        choose chose выбрать выбрал выберет
        hide hid спрятать спрятал спрячет
        sell sold продать продал продаст
        borrow borrowed одолжить одолжил одолжит
        return returned вернуть вернул вернёт
        wrap wrapped завернуть завернул завернёт
        drop dropped уронить уронил уронит
        steal stole украсть украл украдёт
        pick_up picked_up поднять поднял поднимет
        throw_away threw_away выбросить выбросил выбросит
        wipe wiped вытереть вытер вытрет
        order ordered заказать заказал закажет
    """,
    "text": """
        read read прочитать прочитал прочитает
        find found найти нашёл найдёт
        lose lost потерять потерял потеряет
        send sent отправить отправил отправит
        receive received получить получил получит
        print printed напечатать напечатал напечатает
        copy copied скопировать скопировал скопирует
        tear tore порвать порвал порвёт
        rewrite rewrote переписать переписал перепишет
        sign signed подписать подписал подпишет
        steal stole украсть украл украдёт
        hide hid спрятать спрятал спрячет
        keep kept сохранить сохранил сохранит
        check checked проверить проверил проверит
        study studied изучить изучил изучит
        forget forgot забыть забыл забудет
    """,
    "clothes": """
        hang hung повесить повесил повесит
        wash washed постирать постирал постирает
        buy bought купить купил купит
        sew sewed сшить сшил сошьёт
        choose chose выбрать выбрал выберет
        tear tore порвать порвал порвёт
        pack packed упаковать упаковал упакует
        return returned вернуть вернул вернёт
        try_on tried_on примерить примерил примерит
        mend mended зашить зашил зашьёт
        dry dried высушить высушил высушит
        hide hid спрятать спрятал спрячет
    """,
    "food": """
        buy bought купить купил купит
        try tried попробовать попробовал попробует
        bring brought принести принёс принесёт
        order ordered заказать заказал закажет
        choose chose выбрать выбрал выберет
        find found найти нашёл найдёт
        sell sold продать продал продаст
        forget forgot забыть забыл забудет
        praise praised похвалить похвалил похвалит
        weigh weighed взвесить взвесил взвесит
        spoil spoiled испортить испортил испортит
        serve served подать подал подаст
    """,
    "furniture": """
        move moved передвинуть передвинул передвинет
        repair repaired починить починил починит
        break broke сломать сломал сломает
        cover covered накрыть накрыл накроет
        push pushed толкнуть толкнул толкнёт
        clean cleaned почистить почистил почистит
        buy bought купить купил купит
        sell sold продать продал продаст
        order ordered заказать заказал закажет
        measure measured измерить измерил измерит
        choose chose выбрать выбрал выберет
    """,
    "place": """
        visit visited посетить посетил посетит
        photograph photographed сфотографировать сфотографировал сфотографирует
        draw drew нарисовать нарисовал нарисует
        see saw увидеть увидел увидит
        remember remembered вспомнить вспомнил вспомнит
        describe described описать описал опишет
        recognise recognised узнать узнал узнает
        leave left покинуть покинул покинет
    """,
    "animal": """
        see saw увидеть увидел увидит
        feed fed накормить накормил накормит
        photograph photographed сфотографировать сфотографировал сфотографирует
        draw drew нарисовать нарисовал нарисует
        find found найти нашёл найдёт
        catch caught поймать поймал поймает
        buy bought купить купил купит
        frighten frightened напугать напугал напугает
        stroke stroked погладить погладил погладит
        chase chased прогнать прогнал прогонит
        hear heard услышать услышал услышит
        weigh weighed взвесить взвесил взвесит
        describe described описать описал опишет
    """,
}

# English, Russian; what it can be said of.
ADJECTIVES = {
    "thing": """
        old старый
        new новый
        expensive дорогой
        beautiful красивый
        small маленький
        big большой
        strange странный
        heavy тяжёлый
        light лёгкий
        unusual необычный
        red красный
        blue синий
        green зелёный
        black чёрный
        white белый
        yellow жёлтый
    """,
    "text": """
        old старый
        new новый
        important важный
        interesting интересный
        short короткий
        long длинный
        strange странный
        boring скучный
        useful полезный
        unusual необычный
    """,
    "clothes": """
        warm тёплый
        new новый
        old старый
        expensive дорогой
        fashionable модный
        bright яркий
        dirty грязный
        clean чистый
        red красный
        blue синий
        black чёрный
        green зелёный
        white белый
        grey серый
    """,
    "food": """
        hot горячий
        cold холодный
        fresh свежий
        tasty вкусный
        sweet сладкий
        expensive дорогой
        strange странный
    """,
    "furniture": """
        old старый
        new новый
        heavy тяжёлый
        beautiful красивый
        modern современный
        cheap дешёвый
        white белый
        black чёрный
        brown коричневый
        big большой
        comfortable удобный
    """,
    "place": """
        big большой
        old старый
        quiet тихий
        beautiful красивый
        empty пустой
        famous известный
        small маленький
        modern современный
    """,
    "animal": """
        young молодой
        old старый
        clever умный
        hungry голодный
        small маленький
        kind добрый
        strong сильный
        white белый
        black чёрный
        big большой
    """,
    "person": """
        young молодой
        old старый
        clever умный
        kind добрый
        strict строгий
        famous известный
        cheerful весёлый
    """,
}
UNPLANNED = (
    "lose",
    "forget",
    "drop",
    "tear",
    "break",
    "frighten",
    "receive",
    "leave",
    "steal",
    "spoil",
    "push",
    "hear",
    "recognise",
    "remember",
)
NOT_GRADABLE = ("red", "blue", "green", "black", "white", "yellow", "grey", "brown")

PAST_TIMES = """
    yesterday | вчера
    in the morning | утром
    in the evening | вечером
    last week | на прошлой неделе
    last month | в прошлом месяце
    last summer | прошлым летом
    last winter | прошлой зимой
    on Monday | в понедельник
    on Tuesday | во вторник
    on Wednesday | в среду
    on Thursday | в четверг
    on Friday | в пятницу
    on Saturday | в субботу
    on Sunday | в воскресенье
    two days ago | два дня назад
    three days ago | три дня назад
    a week ago | неделю назад
    an hour ago | час назад
    five minutes ago | пять минут назад
    after lunch | после обеда
    before breakfast | перед завтраком
    at five o'clock | в пять часов
    at seven o'clock | в семь часов
    in the spring | весной
    in the autumn | осенью
"""

FUTURE_TIMES = """
    tomorrow | завтра
    on Monday | в понедельник
    on Wednesday | в среду
    on Friday | в пятницу
    on Sunday | в воскресенье
    next week | на следующей неделе
    next month | в следующем месяце
    in an hour | через час
    in two days | через два дня
    in ten minutes | через десять минут
    this evening | сегодня вечером
    after lunch | после обеда
    at six o'clock | в шесть часов
    at eight o'clock | в восемь часов
    in the spring | весной
    in the summer | летом
"""

# How somebody is addressed, and the pronoun that goes with it.
FAMILIAR = """
    Mum | мама
    Dad | папа
    Grandma | бабушка
    Grandpa | дедушка
    my darling | мой дорогой
    my boy | мальчик мой
    my girl | девочка моя
    old friend | старина
    little sister | сестрёнка
    little brother | братишка
    sweetheart | милая
    kid | малыш
"""
FORMAL = """
    Mr. Volkov | господин Волков
    Mr. Morozov | господин Морозов
    Mrs. Smirnova | госпожа Смирнова
    Mrs. Kuznetsova | госпожа Кузнецова
    Doctor | доктор
    Professor | профессор
    Captain | капитан
    Officer | офицер
    Inspector | инспектор
    Minister | господин министр
    Sir | сэр
    Madam | мадам
"""
