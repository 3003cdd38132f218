"""The sentence templates that carry the four phenomena.

Slots: A, B people; x a noun; v, w verbs, p one that can be planned; q, r adjectives; t a past time,
f a future one; y a noun and N a first name with two renderings; S a surname; C how somebody is
addressed; you the second person.
"""

from data_prep.discourse_corpus.grammar import Line


def lines(table: str) -> list[Line]:
    """The templates of a table: a row of English, then its row of Russian."""
    rows = [row.strip() for row in table.strip().splitlines()]
    return [Line(en, ru) for en, ru in zip(rows[::2], rows[1::2], strict=True)]


# A noun is introduced, and "it" is said of it up to three sentences later.
INTRODUCE = lines("""
    {A} {v.past} {x.a} {t}.
    {t} {A} {v.past@A} {x.acc}.
    {t}, {A} {v.past} {x.a}.
    {t} {A} {v.past@A} {x.acc}.
    {A} {v.past} {x.the} {t}.
    {t} {A} {v.past@A} {x.acc}.
    {A} and {B} were talking about {x.the}.
    {A} и {B} говорили {x.about}.
    {A} {v.past} the {r} {x} {t}.
    {t} {A} {v.past@A} {r.acc@x} {x.acc}.
    {A} liked the {r} {x}.
    {A.dat} {x:нравился|нравилась|нравилось|нравились} {r.nom@x} {x}.
    {A} noticed the {r} {x}.
    {A} {A:заметил|заметила} {r.acc@x} {x.acc}.
    {A} was dreaming about {x.a}.
    {A} {A:мечтал|мечтала} {x.about}.
    {B} asked {A} about {x.the}.
    {B} {B:спросил|спросила} {A.acc} {x.about}.
    {A} showed {x.the} to {B}.
    {A} {A:показал|показала} {x.acc} {B.dat}.
    {A} looked at {x.the} with interest.
    {A} с интересом {A:посмотрел|посмотрела} на {x.acc}.
    {A} will {p.base} {x.a} {f}.
    {f} {A} {p.fut} {x.acc}.
    {A} wanted to {p.base} {x.a}.
    {A} {A:хотел|хотела} {p.inf} {x.acc}.
    {A} decided to {p.base} {x.the}.
    {A} {A:решил|решила} {p.inf} {x.acc}.
""")
PRONOUN = {
    "any": lines("""
        It was very {q}.
        {x:Он был|Она была|Оно было|Они были} очень {q.ins@x}.
        It seemed {q} to {B}.
        {x:Он показался|Она показалась|Оно показалось|Они показались} {B.dat} {q.ins@x}.
        {B} liked it very much.
        {x:Он|Она|Оно|Они} очень {x:понравился|понравилась|понравилось|понравились} {B.dat}.
        {B} said that it was too {q}.
        {B} {B:сказал|сказала}, что {x:он был|она была|оно было|они были} слишком {q.ins@x}.
        It was not at all {q}.
        {x:Он был|Она была|Оно было|Они были} совсем не {q.ins@x}.
        {A} remembered that it was {q}.
        {A} {A:вспомнил|вспомнила}, что {x:он был|она была|оно было|они были} {q.ins@x}.
        {B} saw it {t}.
        {t} {B} {x:его|её|его|их} {B:видел|видела}.
        {B} did not like it.
        {B.dat} {x:он не понравился|она не понравилась|оно не понравилось|они не понравились}.
        It surprised everyone.
        {x:Он всех удивил|Она всех удивила|Оно всех удивило|Они всех удивили}.
        {B} did not even look at it.
        {B} даже не {B:посмотрел|посмотрела} на {x:него|неё|него|них}.
        {A} often thought about it.
        {A} часто {A:думал|думала} о {x:нём|ней|нём|них}.
    """),
    "thing": lines("""
        It disappeared {t}.
        {t} {x:он исчез|она исчезла|оно исчезло|они исчезли}.
        It was lying on the floor.
        {x:Он лежал|Она лежала|Оно лежало|Они лежали} на полу.
        It belonged to {B.poss} grandmother.
        {x:Он принадлежал|Она принадлежала|Оно принадлежало|Они принадлежали} бабушке {B.gen}.
        {B} put it in the corner.
        {B} {B:положил|положила} {x:его|её|его|их} в угол.
        It cost a lot of money.
        {x:Он стоил|Она стоила|Оно стоило|Они стоили} много денег.
        {B} wants to buy it.
        {B} хочет {x:его|её|его|их} купить.
        Nobody knows where it is now.
        Никто не знает, где {x:он|она|оно|они} сейчас.
        {B} gave it to a neighbour.
        {B} {B:отдал|отдала} {x:его|её|его|их} соседу.
    """),
    "text": lines("""
        It was lying on the desk.
        {x:Он лежал|Она лежала|Оно лежало|Они лежали} на письменном столе.
        It disappeared {t}.
        {t} {x:он исчез|она исчезла|оно исчезло|они исчезли}.
        {B} put it in an envelope.
        {B} {B:положил|положила} {x:его|её|его|их} в конверт.
        {B} read it twice.
        {B} {B:прочитал|прочитала} {x:его|её|его|их} два раза.
        It was written in French.
        {x:Он|Она|Оно|Они} {x:был написан|была написана|было написано|были написаны} по-французски.
        {B} hid it under the pillow.
        {B} {B:спрятал|спрятала} {x:его|её|его|их} под подушку.
    """),
    "clothes": lines("""
        It was hanging in the corridor.
        {x:Он висел|Она висела|Оно висело|Они висели} в коридоре.
        It suited {B} very well.
        {x:Он очень шёл|Она очень шла|Оно очень шло|Они очень шли} {B.dat}.
        It was made of wool.
        {x:Он был сделан|Она была сделана|Оно было сделано|Они были сделаны} из шерсти.
        It cost a lot of money.
        {x:Он стоил|Она стоила|Оно стоило|Они стоили} много денег.
        {B} wants to borrow it.
        {B} хочет {x:его|её|его|их} одолжить.
        It was too big for {B}.
        {x:Он был|Она была|Оно было|Они были} {B.dat} слишком {x:велик|велика|велико|велики}.
    """),
    "food": lines("""
        It was on the table.
        {x:Он был|Она была|Оно было|Они были} на столе.
        It was fresh.
        {x:Он был свежим|Она была свежей|Оно было свежим|Они были свежими}.
        {B} did not want to try it.
        {B} не {B:хотел|хотела} {x:его|её|его|их} пробовать.
        It smelled wonderful.
        {x:Он чудесно пах|Она чудесно пахла|Оно чудесно пахло|Они чудесно пахли}.
        Unfortunately, it was cold.
        К сожалению, {x:он был холодным|она была холодной|оно было холодным|они были холодными}.
        {B} put it in the fridge.
        {B} {B:убрал|убрала} {x:его|её|его|их} в холодильник.
    """),
    "furniture": lines("""
        It stood near the window.
        {x:Он стоял|Она стояла|Оно стояло|Они стояли} у окна.
        It was broken.
        {x:Он был сломан|Она была сломана|Оно было сломано|Они были сломаны}.
        It belonged to {B.poss} parents.
        {x:Он принадлежал|Она принадлежала|Оно принадлежало|Они принадлежали} родителям {B.gen}.
        It cost a lot of money.
        {x:Он стоил|Она стоила|Оно стоило|Они стоили} много денег.
        {B} wants to sell it.
        {B} хочет {x:его|её|его|их} продать.
    """),
    "place": lines("""
        It was far away.
        {x:Он был|Она была|Оно было|Они были} далеко.
        It is not on the map.
        {x:Его|Её|Его|Их} нет на карте.
        {B} often drew it.
        {B} часто {x:его|её|его|их} {B:рисовал|рисовала}.
        It was almost empty.
        {x:Он был почти пуст|Она была почти пуста|Оно было почти пусто|Они были почти пусты}.
    """),
}


# Somebody is addressed, and later sentences keep the form of address.
ADDRESS = lines("""
    {C}, please sit down.
    {C}, {you:садись|садитесь}, пожалуйста.
    Good morning, {C}, please come in.
    Доброе утро, {C}, {you:заходи|заходите}, пожалуйста.
    {C}, do you remember {A}?
    {C}, {you:ты помнишь|вы помните} {A.acc}?
    {C}, please wait a minute.
    {C}, {you:подожди|подождите}, пожалуйста, минуту.
    {C}, you work too much.
    {C}, {you:ты слишком много работаешь|вы слишком много работаете}.
    {C}, I have a present for you.
    {C}, у меня для {you.gen} подарок.
    {C}, {A} wants to talk to you.
    {C}, {A} хочет с {you.ins} поговорить.
    I know you, {C}.
    Я {you.acc} знаю, {C}.
    {C}, here is your {x}.
    {C}, вот {you.nom@x} {x}.
    {C}, {A} found your {x}.
    {C}, {A} {A:нашёл|нашла} {you.acc@x} {x.acc}.
    {C}, {A} liked your {x}.
    {C}, {A.dat} {x:понравился|понравилась|понравилось|понравились} {you.nom@x} {x}.
    {C}, you look well.
    {C}, {you:ты хорошо выглядишь|вы хорошо выглядите}.
    {C}, {A} told me about you.
    {C}, {A} {A:рассказывал|рассказывала} мне о {you.loc}.
    {C}, can you hear me?
    {C}, {you:ты меня слышишь|вы меня слышите}?
""")
DEIXIS = lines("""
    Can you help me?
    {you:Ты можешь|Вы можете} мне помочь?
    Can you help {A} {f}?
    {you:Ты можешь|Вы можете} помочь {A.dat} {f}?
    Do you know {B}?
    {you:Ты знаешь|Вы знаете} {B.acc}?
    Do you like {A}?
    {you.dat} нравится {A}?
    Where is your {x}?
    Где {you.nom@x} {x}?
    Somebody took your {x}.
    Кто-то взял {you.acc@x} {x.acc}.
    I do not see your {x}.
    Я не вижу {you.acc@x} {x.acc}.
    {A} found your {x} {t}.
    {t} {A} {A:нашёл|нашла} {you.acc@x} {x.acc}.
    {A} is looking for your {x}.
    {A} ищет {you.acc@x} {x.acc}.
    {A} likes your {x}.
    {A.dat} {x:нравится|нравится|нравится|нравятся} {you.nom@x} {x}.
    Please give me the {x}.
    {you:Дай|Дайте} мне, пожалуйста, {x.acc}.
    Please bring the {x} {f}.
    {you:Принеси|Принесите}, пожалуйста, {x.acc} {f}.
    Please show the {x} to {A}.
    {you:Покажи|Покажите}, пожалуйста, {x.acc} {A.dat}.
    Why do you need the {x}?
    Зачем {you.dat} {x}?
    Do you need the {x}?
    {you.dat} {x:нужен|нужна|нужно|нужны} {x}?
    You will need the {x} {f}.
    {f} {you.dat} {x:понадобится|понадобится|понадобится|понадобятся} {x}.
    I will call you {f}.
    Я {you.dat} позвоню {f}.
    {A} will wait for you {f}.
    {f} {A} будет {you.acc} ждать.
    {A} often talks about you.
    {A} часто говорит о {you.loc}.
    {B} wants to go with you.
    {B} хочет пойти с {you.ins}.
    What do you think about {A}?
    Что {you:ты думаешь|вы думаете} {A.about}?
    Do you understand me?
    {you:Ты меня понимаешь|Вы меня понимаете}?
    You have a beautiful {x}.
    У {you.gen} {x:красивый|красивая|красивое|красивые} {x}.
    Do you want to talk to {B}?
    {you:Ты хочешь|Вы хотите} поговорить с {B.ins}?
    I will never forget you.
    Я никогда {you.acc} не забуду.
    Tell {B} everything.
    {you:Расскажи|Расскажите} {B.dat} всё.
    You must go to bed.
    {you.dat} нужно лечь в постель.
    You can take {x.the} {f}.
    {f} {you:ты можешь|вы можете} взять {x.acc}.
    When will you return the {x}?
    Когда {you:ты вернёшь|вы вернёте} {x.acc}?
    Where will you be {f}?
    Где {you:ты будешь|вы будете} {f}?
    {A} and {B} are proud of you.
    {A} и {B} гордятся {you.ins}.
    Open the window, please.
    {you:Открой|Откройте}, пожалуйста, окно.
    Come back {f}.
    {you:Возвращайся|Возвращайтесь} {f}.
""")

# A verb phrase is left out in English and must be said in Russian.
QUESTION = lines("""
    Did {A} {v.base} {x.the}?
    {A} {v.past@A} {x.acc}?
    Did {A} {v.base} {x.the} {t}?
    {t} {A} {v.past@A} {x.acc}?
    Do they know whether {A} {v.past} {x.the}?
    Они знают, {v.past@A} ли {A} {x.acc}?
    Is it true that {A} {v.past} {x.the} {t}?
    Правда, что {t} {A} {v.past@A} {x.acc}?
""")
ANSWER = lines("""
    Yes, {A:he|she} did.
    Да, {v.past@A}.
    Of course {A:he|she} did.
    Конечно, {v.past@A}.
    No, {A:he|she} did not.
    Нет, не {v.past@A}.
    I have no doubt that {A:he|she} did.
    Не сомневаюсь, что {v.past@A}.
    Everyone says that {A:he|she} did.
    Все говорят, что {v.past@A}.
    I think {A:he|she} did.
    Думаю, что {v.past@A}.
    {A} says that {A:he|she} did not.
    {A} говорит, что не {v.past@A}.
""")
FUTURE_QUESTION = lines("""
    Will {A} {p.base} {x.the}?
    {A} {p.fut} {x.acc}?
    Will {A} {p.base} {x.the} {f}?
    {f} {A} {p.fut} {x.acc}?
    {A} promised to {p.base} {x.the} {f}.
    {A} {A:обещал|обещала} {p.inf} {x.acc} {f}.
""")
FUTURE_ANSWER = lines("""
    Of course {A:he|she} will.
    Конечно, {p.fut}.
    I hope {A:he|she} will.
    Надеюсь, что {p.fut}.
    {A} said that {A:he|she} would.
    {A} {A:сказал|сказала}, что {p.fut}.
    {B} will not.
    А {B} не {p.fut}.
    {B} will too.
    {B} тоже {p.fut}.
    {B} wants to, too.
    {B} тоже хочет {p.inf}.
    {B} promised to.
    {B} {B:обещал|обещала} {p.inf}.
""")
DEED = lines("""
    {A} {v.past} {x.the} {t}.
    {t} {A} {v.past@A} {x.acc}.
    {t}, {A} {v.past} {x.the}.
    {t} {A} {v.past@A} {x.acc}.
    Everyone knew that {A} {v.past} {x.the}.
    Все знали, что {A} {v.past@A} {x.acc}.
""")
SAME_DEED = lines("""
    {B} did too.
    {B} тоже {v.past@B}.
    {B} did not.
    А {B} не {v.past@B}.
    {B} said that {A} did not.
    {B} {B:сказал|сказала}, что {A} не {v.past@A}.
    {B} did not, of course.
    {B}, конечно, не {v.past@B}.
    {t}, {B} did too.
    {t} {B} тоже {v.past@B}.
""")

# A noun is left out: "a blue one" agrees with the noun in Russian.
ATTRIBUTE = lines("""
    {A} {v.past} {q.a} {x} {t}.
    {t} {A} {v.past@A} {q.acc@x} {x.acc}.
    {t}, {A} {v.past} the {q} {x}.
    {t} {A} {v.past@A} {q.acc@x} {x.acc}.
    {A} had only {q.a} {x}.
    У {A.gen} {x:был|была|было|были} только {q.nom@x} {x}.
    {A} showed {q.a} {x} to {B}.
    {A} {A:показал|показала} {B.dat} {q.acc@x} {x.acc}.
""")
OTHER_ONE = lines("""
    {B} {w.past} {r.a} one.
    {B} {w.past@B} {r.acc@x}.
    {B} {w.past} the {r} one.
    {B} {w.past@B} {r.acc@x}.
    {B} needs {r.a} one.
    {B.dat} {x:нужен|нужна|нужно|нужны} {r.nom@x}.
    {B} wanted {r.a} one.
    {B} {B:хотел|хотела} {r.acc@x}.
    The {r} one was better.
    А {r.nom@x} {x:был|была|было|были} лучше.
    {B} liked the {r} one more.
    {B.dat} больше {x:понравился|понравилась|понравилось|понравились} {r.nom@x}.
    {B} asked {A} to bring {r.a} one.
    {B} {B:попросил|попросила} {A.acc} принести {r.acc@x}.
    The {r} one stayed at home.
    А {r.nom@x} {x:остался|осталась|осталось|остались} дома.
""")

# A first name or a noun with two renderings keeps the first one.
NAME_CUE = lines("""
    {N} {S} lives near the station.
    {N} {S} живёт рядом с вокзалом.
    {N} {S} works with {A}.
    {N} {S} работает вместе с {A.ins}.
    {N} {S} came to see {A} {t}.
    {t} к {A.dat} {N:приходил|приходила} {N} {S}.
    {N} {S} is friends with {A}.
    {N} {S} дружит с {A.ins}.
    {N} {S} is an old friend of the family.
    {N} {S} давно дружит с этой семьёй.
    {t}, {N} {S} wrote to {B}.
    {t} {B.dat} {N:написал|написала} {N} {S}.
    The new neighbour is called {N} {S}.
    {N:Нового соседа|Новую соседку} зовут {N} {S}.
    {N} {S} speaks three languages.
    {N} {S} говорит на трёх языках.
    {N} {S} is raising two children.
    {N} {S} воспитывает двоих детей.
""")
NAME_AGAIN = lines("""
    Everyone likes {N}.
    Все любят {N.acc}.
    {A} was waiting for {N}.
    {A} {A:ждал|ждала} {N.acc}.
    {B} gave {N} the {x}.
    {B} {B:дал|дала} {N.dat} {x.acc}.
    {B} gave a present to {N}.
    {B} {B:сделал|сделала} подарок {N.dat}.
    {A} went home with {N}.
    {A} {A:пошёл|пошла} домой с {N.ins}.
    {A} and {B} talked about {N} all evening.
    {A} и {B} весь вечер говорили {N.about}.
    {N} came back {t}.
    {t} {N} {N:вернулся|вернулась}.
    {t}, {N} was very tired.
    {t} {N} очень {N:устал|устала}.
    {B} will call {N} {f}.
    {f} {B} позвонит {N.dat}.
    {N} did not say a word.
    {N} не {N:сказал|сказала} ни слова.
    Nobody saw {N} {t}.
    {t} никто не видел {N.acc}.
    This is {N.poss} {x}.
    Это {x} {N.gen}.
    {N} {v.past} {x.the}.
    {N} {v.past@N} {x.acc}.
    {A} asked {N} about {x.the}.
    {A} {A:спросил|спросила} {N.acc} {x.about}.
    {N} and {A} were laughing.
    {N} и {A} смеялись.
""")
NOUN_CUE = lines("""
    {A} often thinks about {y.the}.
    {A} часто думает {y.about}.
    {A} wanted to see {y.the}.
    {A} {A:хотел|хотела} увидеть {y.acc}.
    {A} was looking for {y.a} {t}.
    {t} {A} {A:искал|искала} {y.acc}.
    {A} told {B} about {y.the}.
    {A} {A:рассказал|рассказала} {B.dat} {y.about}.
    {t}, everyone was talking about {y.the}.
    {t} все говорили {y.about}.
    {A} was reading about {y.a} {t}.
    {t} {A} {A:читал|читала} {y.about}.
    {y.the} was very {q}.
    {y} {y:был|была|было|были} очень {q.ins@y}.
    {A} always wanted to have {y.a} like that.
    {A} всегда {A:мечтал|мечтала} {y:о таком|о такой|о таком|о таких} {y.loc}.
    {A} needed {y.a}.
    {A.dat} {y:был нужен|была нужна|было нужно|были нужны} {y}.
""")
NOUN_AGAIN = lines("""
    {B} remembers {y.the} well.
    {B} хорошо помнит {y.acc}.
    {y.the} was not very {q}.
    {y} {y:был|была|было|были} не очень {q.ins@y}.
    {B} liked {y.the}.
    {B.dat} {y:понравился|понравилась|понравилось|понравились} {y}.
    {B} saw {y.the} {t}.
    {t} {B} {B:видел|видела} {y.acc}.
    {A} never forgot {y.the}.
    {A} никогда не {A:забывал|забывала} {y.acc}.
    {A} wrote to {B} about {y.the}.
    {A} {A:написал|написала} {B.dat} {y.about}.
    {B} was pleased with {y.the}.
    {B} {B:был доволен|была довольна} {y.ins}.
    {A} and {B} were arguing about {y.the}.
    {A} и {B} спорили {y.about}.
    Where is {y.the} now?
    Где теперь {y}?
    {B} did not expect anything else from {y.the}.
    {B} и не {B:ждал|ждала} ничего другого от {y.gen}.
    {t}, {B} dreamt of {y.the}.
    {t} {B.dat} {y:приснился|приснилась|приснилось|приснились} {y}.
    {B} took a photograph of {y.the}.
    {B} {B:сфотографировал|сфотографировала} {y.acc}.
""")
